#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_HARMONY_PARSER_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_HARMONY_PARSER_H_

#include <memory>
#include <string>
#include <vector>

#include "coordinator/text/output/call_readers.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {

// The answer is a row of messages, each with a head that says what it is: reasoning (the channel "analysis"), a call
// (it has a function for its recipient), else content.
class HarmonyParser : public OutputParser {
 public:
  HarmonyParser(const OutputStart& start, std::shared_ptr<const OutputTools> tools);

  bool inside_reasoning() const override { return place_ == Place::kBody && kind_ == OutputKind::kReasoning; }
  size_t held_bytes() const override { return held_.size(); }

 private:
  enum class Place {
    kBetween,  // after a message
    kHead,     // after the role, which is in the prompt the first time
    kBody,
    kCall,  // held_ is a head with what follows it
    kAfterCall,
  };

  void Advance(bool at_end, Deltas* out) override;
  // Each takes something off held_ or goes to another place; false: it cannot without more text.
  bool Step(bool at_end, Deltas* out);
  bool StepBetween(bool at_end, Deltas* out);
  bool StepHead(bool at_end, Deltas* out);
  bool StepBody(bool at_end, Deltas* out);
  bool StepCall(bool at_end, Deltas* out);
  // Where the head ends with a message's mark.
  void TakeHead(size_t bytes, Deltas* out);
  void PutOut(size_t bytes, Deltas* out);

  const std::shared_ptr<const OutputTools> tools_;
  Place place_ = Place::kHead;
  OutputKind kind_ = OutputKind::kContent;  // of the body
  size_t head_bytes_ = 0;                   // kCall
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_HARMONY_PARSER_H_
