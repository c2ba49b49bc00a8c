#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_MARKED_PARSER_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_MARKED_PARSER_H_

#include <memory>
#include <string>
#include <vector>

#include "coordinator/text/output/output_grammar.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {

// An OutputParser by a grammar.
class MarkedParser : public OutputParser {
 public:
  MarkedParser(OutputGrammar grammar, const OutputStart& start, std::shared_ptr<const OutputTools> tools);

  bool inside_reasoning() const override { return place_ == Place::kReasoningStart || place_ == Place::kReasoning; }
  size_t held_bytes() const override { return held_.size() + space_.size(); }

 private:
  enum class Place {
    kStart,           // nothing but white space so far
    kReasoningStart,  // likewise, after the mark
    kReasoning,
    kContentStart,
    kContent,
    kCall,  // held_ begins with one
  };

  void Advance(bool at_end, Deltas* out) override;
  // Each takes something off held_ or goes to another place; false: it cannot without more text.
  bool Step(bool at_end, Deltas* out);
  bool StepStart(bool at_end);
  bool StepReasoningStart(bool at_end);
  bool StepReasoning(bool at_end, Deltas* out);
  bool StepContentStart(bool at_end);
  bool StepContent(bool at_end, Deltas* out);
  bool StepCall(bool at_end, Deltas* out);

  void SkipSpace();  // off held_, into space_ or nowhere
  // The first of `marks` is what held_ begins with (kYes), or may turn out to begin with.
  bool Begins(const std::vector<absl::string_view>& marks, bool at_end, bool* perhaps) const;
  // Text at the beginning of held_. White space is held back until it is known what follows.
  void PutOut(OutputKind kind, size_t bytes, Deltas* out);
  void PutOutCalls(const Calls& calls, size_t bytes, Deltas* out);
  void ChooseContentMarks();

  const OutputGrammar grammar_;
  const std::shared_ptr<const OutputTools> tools_;
  const bool reads_calls_;
  Place place_ = Place::kStart;
  bool may_open_again_ = false;  // the prompt opened the reasoning, and the model does so once more
  bool drops_space_;             // white space belongs to the format here
  bool in_section_ = false;
  bool in_content_marks_ = false;
  bool had_calls_ = false;
  std::vector<absl::string_view> reasoning_ends_;
  std::vector<absl::string_view> content_marks_;
  std::string space_;  // before held_
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_MARKED_PARSER_H_
