#ifndef STAGECOACH_COORDINATOR_ANSWER_ANSWER_H_
#define STAGECOACH_COORDINATOR_ANSWER_ANSWER_H_

// One answer as it grows: tokens in; reasoning, content and calls out, and why it ended.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"
#include "coordinator/session/session.h"
#include "coordinator/text/output/output_parser.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

// Such a token is never printed, even where it has a printable text.
inline bool IsEndOfGeneration(const Tokenizer& tokenizer, TokenId token) {
  const absl::Span<const TokenId> set = tokenizer.end_of_generation();
  return std::binary_search(set.begin(), set.end(), token);
}

// Makes these tokens impossible: an entry of logit_bias each, of which there may be kMaxLogitBias.
inline void IgnoreEndOfGeneration(absl::Span<const TokenId> tokens, SamplingParams* sampling) {
  for (TokenId token : tokens) sampling->logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
}

// A token of a list with log-probabilities.
struct ListedToken {
  TokenId token = kNoToken;
  std::optional<float> logprob;  // absent: the first of a prompt, which nothing predicted
  std::vector<TokenLogprob> top;
  int64_t text_offset = 0;  // code points of the text before it
  // The part of the answer (a stretch of reasoning or of content, or a call, from 0) that had begun last when it was
  // released: the one that its text is in, if it has any.
  size_t part = 0;
};

struct AnswerOptions {
  // Sought in each stretch of content, neither in reasoning nor in calls; the answer ends before the first.
  std::vector<std::string> stops;
  std::vector<std::string> ends;         // more of those
  bool include_stop = false;             // the text goes on to the end of the stop string, if it is one of `stops`
  std::vector<TokenId> stop_tokens;      // beside those that end every answer; without text, as those
  std::unique_ptr<OutputParser> parser;  // null: all is content as it is
  bool render_control = false;           // control tokens that are no markers are text too
  bool one_call = false;                 // the answer ends behind its first call
  bool list_end = false;                 // TakeListed gives the token that ended the answer as well
  int64_t first_offset = 0;              // of the text, in TakeListed
};

// Not thread-safe. The joined deltas do not depend on how events are cut. A parser sees control tokens as their text,
// but not the tokens that end an answer.
class Answer {
 public:
  // `tokenizer` outlives this.
  Answer(const Tokenizer* tokenizer, AnswerOptions options);

  // What an event makes certain: whole code points, no part of a marker or a stop string, no two neighbours of one
  // kind. After a stop string or token, or the call that ended it, further tokens are ignored and not counted.
  std::vector<OutputDelta> Take(const SessionEvent& event);
  // Ends the answer early (a signal, a lost job); returns what was held back.
  std::vector<OutputDelta> Abandon();
  // Tokens completed since the last call: all their text was returned or belongs to markers. Without the one that ended
  // the answer, unless options.list_end.
  std::vector<ListedToken> TakeListed();

  bool finished() const { return !finish_reason_.empty(); }
  // "tool_calls": it came to its end and has calls; "stop": it has none; "length", "cancelled"; empty while it goes on.
  const std::string& finish_reason() const { return finish_reason_; }
  const std::string& rejection() const { return rejection_; }  // why it never ran, or failed; empty otherwise
  bool failed() const { return failed_; }                      // it could not be computed to its end
  // Stopped by a stop string: the request is of no use any more and should be cancelled.
  bool stopped_by_text() const { return matcher_.stopped(); }
  const std::string& stop_string() const { return matcher_.match(); }  // the one that stopped it; else empty
  // Likewise by options.one_call.
  bool ended_by_call() const { return options_.one_call && calls_ > 0; }
  // That have ended, also those that broke after they had begun to leave.
  int64_t calls() const { return calls_; }

  const std::string& text() const { return text_; }                    // content so far
  const std::string& reasoning() const { return reasoning_; }          // so far
  const std::vector<SampledToken>& tokens() const { return tokens_; }  // with the one that ended it
  // Of each token: how many code points of text, markers and all, came before it.
  const std::vector<int64_t>& text_offsets() const { return text_offsets_; }
  size_t released_tokens() const { return released_tokens_; }  // how many of tokens() are done with
  // Those inside the reasoning, without the markers around it where these are tokens of their own.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  // Whether it is one that ends the answer, which is never text, even where it has a printable one.
  bool Ends(TokenId token) const;

 private:
  using Deltas = std::vector<OutputDelta>;
  void PushToken(TokenId token, Deltas* out);
  void PushText(absl::string_view text, Deltas* out, bool control = false);
  void PushEnd(Deltas* out);
  void Pass(Deltas parsed, Deltas* out);  // through the search for stop strings
  void PutOut(OutputKind kind, std::string text, Deltas* out);
  bool NeedsNoMore() const { return matcher_.stopped() || ended_by_call(); }
  void Begin(OutputKind kind);  // a part, unless it goes on
  bool StopIsText() const;
  void CountReleased();
  size_t ListableTokens() const;

  const Tokenizer* tokenizer_;
  AnswerOptions options_;
  Detokenizer detokenizer_;
  StopMatcher matcher_;
  std::string finish_reason_, rejection_;
  bool failed_ = false;
  bool stop_token_ = false;    // the last token is one of options_.stop_tokens
  bool ends_by_last_ = false;  // the last token is the one that ended the answer
  int64_t calls_ = 0;

  std::string text_, reasoning_;
  std::vector<SampledToken> tokens_;
  std::vector<int64_t> text_offsets_;
  std::vector<uint64_t> ends_in_bytes_;  // of each token: of the text, markers and all
  uint64_t fed_bytes_ = 0;               // that came out of the detokenizer
  uint64_t dropped_bytes_ = 0;           // of these, control tokens behind what is held back
  int64_t code_points_ = 0;              // of these
  size_t released_tokens_ = 0, listed_ = 0;
  size_t parts_ = 0;                             // that have begun
  OutputKind last_part_ = OutputKind::kContent;  // kCallStart: a call
  std::vector<size_t> released_in_;              // of each released token: its part
  int64_t reasoning_tokens_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_ANSWER_ANSWER_H_
