#ifndef STAGECOACH_COORDINATOR_FRONT_API_ANSWER_TEXT_H_
#define STAGECOACH_COORDINATOR_FRONT_API_ANSWER_TEXT_H_

// One choice of an answer as it grows: what the session says goes in, text and the tokens that made it come out.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/step/step.h"
#include "coordinator/front/completion.h"
#include "coordinator/front/parsed_completion.h"
#include "coordinator/front/session.h"
#include "coordinator/text/output/output_parser.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

// A token of a list with log-probabilities.
struct ListedToken {
  TokenId token = kNoToken;
  std::optional<float> logprob;  // absent: the first of a prompt, which nothing predicted
  std::vector<TokenLogprob> top;
  int64_t text_offset = 0;  // code points of the text before it
};

struct AnswerPiece {
  std::vector<OutputDelta> deltas;  // no two neighbours of one kind; none is empty
  std::vector<ListedToken> tokens;  // those whose last byte these deltas release
  bool empty() const { return deltas.empty() && tokens.empty(); }
};

struct AnswerTextOptions {
  std::vector<std::string> stops;
  std::vector<TokenId> stop_tokens;  // beside those that end every answer; their text is left out like those'
  bool include_stop = false;         // the stop string is part of the text
  std::vector<std::string> ends;     // more of those, which never are
  bool list_tokens = false;  // log-probabilities are wanted: of every sampled token but the one that ended the answer
  bool list_end = false;     // ... and of that one too
  int64_t first_offset = 0;  // of the text
  std::unique_ptr<OutputParser> parser;  // null: all is content as it is
  bool render_control = false;           // the text of control tokens is text too, where it is no marker
};

// Not thread-safe. How events are cut makes no difference to what comes out, pieces put together: a token behind the
// one that completes a stop string is not even counted.
class AnswerText {
 public:
  AnswerText(const Tokenizer* tokenizer, AnswerTextOptions options);

  // What has become certain by an event.
  AnswerPiece Take(const SessionEvent& event);

  bool finished() const { return !end_reason().empty(); }
  std::string finish_reason() const;     // "stop", or "length" for all other ends
  bool stopped_by_text() const;          // the request is of no more use
  const std::string& rejection() const;  // why it never ran, or failed; else empty
  int64_t sampled_tokens() const;
  int64_t reasoning_tokens() const;

 private:
  const std::string& end_reason() const;
  const std::vector<SampledToken>& tokens() const;
  void Feed(const SessionEvent& event, std::vector<OutputDelta>* deltas);
  const std::string& stop_string() const;
  bool StopIsText() const;  // the answer has ended by a stop string that is part of it
  size_t ReleasedTokens() const;
  void ListTokens(std::vector<ListedToken>* out);
  void List(const SampledToken& token, int64_t offset, std::vector<ListedToken>* out) const;

  const Tokenizer* tokenizer_;
  AnswerTextOptions options_;        // its parser was given away
  std::optional<Completion> plain_;  // one of these two
  std::optional<ParsedCompletion> parsed_;
  std::optional<SampledToken> stop_token_;  // of options_.stop_tokens; the completion does not see it
  int64_t code_points_ = 0;                 // of the text that came out
  size_t listed_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_API_ANSWER_TEXT_H_
