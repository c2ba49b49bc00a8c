#ifndef STAGECOACH_COORDINATOR_FRONT_COMPLETION_H_
#define STAGECOACH_COORDINATOR_FRONT_COMPLETION_H_

// One answer as it grows: tokens in, text out, and why it ended.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/front/session.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

// Not thread-safe.
class Completion {
 public:
  // `tokenizer` outlives this. `render_control`: control tokens are text too, but for those that end an answer.
  Completion(const Tokenizer* tokenizer, std::vector<std::string> stops, bool render_control = false);

  // Takes what an event brings and returns the text that has become certain by it: whole code points, no part of a stop
  // string. After a stop string everything further is ignored.
  std::string Take(const SessionEvent& event);

  // The answer ends here although the engine did not say so (a signal, a lost job); returns the text that was held
  // back.
  std::string Abandon();

  bool finished() const { return !finish_reason_.empty(); }
  // Stopped by a stop string: the request is of no use any more and should be cancelled.
  bool stopped_by_text() const { return matcher_.stopped(); }
  const std::string& stop_string() const { return matcher_.match(); }  // the one that stopped it; else empty
  const std::string& finish_reason() const {
    return finish_reason_;
  }                                                            // "stop", "length", "cancelled"; empty while running
  const std::string& rejection() const { return rejection_; }  // why it never ran, or failed; empty otherwise
  bool failed() const { return failed_; }                      // it could not be computed to its end

  const std::string& text() const { return text_; }
  const std::vector<SampledToken>& tokens() const { return tokens_; }  // with the one that ended it
  // Of each token: how many code points of text came before it.
  const std::vector<int64_t>& text_offsets() const { return text_offsets_; }
  int64_t code_points() const { return code_points_; }  // of all tokens, held back or not
  // How many of tokens() are done with: their last byte was returned, or is not text.
  size_t released_tokens() const { return released_tokens_; }

 private:
  bool IsEndOfGeneration(TokenId token) const;
  std::string Append(std::string text);
  void CountReleased();

  const Tokenizer* tokenizer_;
  Detokenizer detokenizer_;
  StopMatcher matcher_;
  std::string text_;
  int64_t code_points_ = 0;
  std::vector<SampledToken> tokens_;
  std::vector<int64_t> text_offsets_;
  std::vector<uint64_t> ends_in_bytes_;  // of each token
  uint64_t fed_bytes_ = 0;               // that came out of the detokenizer
  size_t released_tokens_ = 0;
  std::string finish_reason_;
  std::string rejection_;
  bool failed_ = false;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_COMPLETION_H_
