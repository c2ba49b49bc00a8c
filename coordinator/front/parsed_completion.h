#ifndef STAGECOACH_COORDINATOR_FRONT_PARSED_COMPLETION_H_
#define STAGECOACH_COORDINATOR_FRONT_PARSED_COMPLETION_H_

// One answer as it grows, parted into reasoning, content and calls: tokens in, deltas out, and why it ended.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/front/answer_end.h"
#include "coordinator/front/session.h"
#include "coordinator/text/output/output_parser.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

// Not thread-safe. The parser sees control tokens as their text, and none of the tokens that end an answer. Those that
// are no markers of its format are dropped, as Completion does, unless `render_control`. Stop strings are sought in
// each stretch of content, neither in reasoning nor in calls.
class ParsedCompletion {
 public:
  // `tokenizer` outlives this.
  ParsedCompletion(const Tokenizer* tokenizer, std::vector<std::string> stops, std::unique_ptr<OutputParser> parser,
                   bool render_control = false);

  // Takes what an event brings and returns what has become certain by it: whole code points, no part of a marker or a
  // stop string. After a stop string everything further is ignored.
  std::vector<OutputDelta> Take(const SessionEvent& event);

  // As Completion::Abandon.
  std::vector<OutputDelta> Abandon();

  bool finished() const { return end_.finished(); }
  bool stopped_by_text() const { return matcher_.stopped(); }
  const std::string& stop_string() const { return matcher_.match(); }  // the one that stopped it; else empty
  const std::string& finish_reason() const { return end_.reason; }     // as of Completion, whatever calls there are
  const std::string& rejection() const { return end_.rejection; }
  bool failed() const { return end_.failed; }

  const std::vector<SampledToken>& tokens() const { return tokens_; }  // with the one that ended it
  // Of each token: how many code points of text, markers and all, came before it.
  const std::vector<int64_t>& text_offsets() const { return text_offsets_; }
  // How many of tokens() are done with: all their text was returned or belongs to markers.
  size_t released_tokens() const { return released_tokens_; }
  // Those inside the reasoning, without the markers around it where these are tokens of their own.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  int64_t calls() const { return calls_; }  // that are complete

 private:
  using Deltas = std::vector<OutputDelta>;
  void PushToken(TokenId token, Deltas* out);
  void PushText(absl::string_view text, Deltas* out, bool control = false);
  void PushEnd(Deltas* out);
  void Pass(Deltas parsed, Deltas* out);  // through the search for stop strings
  static void PutOut(OutputKind kind, std::string text, Deltas* out);
  void CountReleased();

  const Tokenizer* tokenizer_;
  const bool render_control_;
  Detokenizer detokenizer_;
  std::unique_ptr<OutputParser> parser_;
  StopMatcher matcher_;
  AnswerEnd end_;
  std::vector<SampledToken> tokens_;
  std::vector<int64_t> text_offsets_;
  std::vector<uint64_t> ends_in_bytes_;  // of each token: of the text, markers and all
  uint64_t fed_bytes_ = 0;
  uint64_t dropped_bytes_ = 0;  // of these, control tokens behind what is held back
  int64_t code_points_ = 0;
  size_t released_tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
  int64_t calls_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_PARSED_COMPLETION_H_
