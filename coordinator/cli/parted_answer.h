#ifndef STAGECOACH_COORDINATOR_CLI_PARTED_ANSWER_H_
#define STAGECOACH_COORDINATOR_CLI_PARTED_ANSWER_H_

// One answer of `generate` as it grows: that of a conversation parted into what the model thinks and what it says, that
// of a raw prompt as it is.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/front/completion.h"
#include "coordinator/front/parsed_completion.h"
#include "coordinator/front/session.h"
#include "coordinator/text/output/output_parser.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

// Not thread-safe.
class PartedAnswer {
 public:
  // `tokenizer` outlives this. `parser`: null for a raw prompt, whose answer shows no control token.
  PartedAnswer(const Tokenizer* tokenizer, std::vector<std::string> stops, std::unique_ptr<OutputParser> parser);

  // What has become certain by an event, or by the answer's end although the engine did not say so: reasoning and
  // content alone, as nobody offers tools.
  std::vector<OutputDelta> Take(const SessionEvent& event);
  std::vector<OutputDelta> Abandon();

  const std::string& text() const { return text_; }            // so far
  const std::string& reasoning() const { return reasoning_; }  // so far
  // As of Completion.
  bool finished() const { return !finish_reason().empty(); }
  bool stopped_by_text() const { return raw_.has_value() ? raw_->stopped_by_text() : parsed_->stopped_by_text(); }
  const std::string& finish_reason() const {
    return raw_.has_value() ? raw_->finish_reason() : parsed_->finish_reason();
  }
  const std::string& rejection() const { return raw_.has_value() ? raw_->rejection() : parsed_->rejection(); }
  bool failed() const { return raw_.has_value() ? raw_->failed() : parsed_->failed(); }
  const std::vector<SampledToken>& tokens() const { return raw_.has_value() ? raw_->tokens() : parsed_->tokens(); }

 private:
  std::vector<OutputDelta> Keep(std::vector<OutputDelta> deltas);

  std::optional<Completion> raw_;  // one of these two
  std::optional<ParsedCompletion> parsed_;
  std::string text_, reasoning_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PARTED_ANSWER_H_
