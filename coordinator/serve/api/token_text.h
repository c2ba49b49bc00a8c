#ifndef STAGECOACH_COORDINATOR_SERVE_API_TOKEN_TEXT_H_
#define STAGECOACH_COORDINATOR_SERVE_API_TOKEN_TEXT_H_

// Tokens as answers show them in lists with log-probabilities, and a prompt that is put before its answer.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/json/json.h"
#include "common/step/step.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

// A token as completions show it: its text, or "bytes:\xe2\x80" when its bytes are no valid UTF-8.
std::string TokenText(const Tokenizer& tokenizer, TokenId token);
// The second of these forms, of any token.
std::string TokenBytesText(const Tokenizer& tokenizer, TokenId token);

// Bytes as a list of numbers.
Json BytesJson(absl::string_view bytes);

// A token as conversations show it: {token, logprob, bytes, top_logprobs: [{token, logprob, bytes}]}.
Json TokenJson(const Tokenizer& tokenizer, const ListedToken& token);

// A prompt that is echoed, with the log-probabilities of its tokens if `scored`. Not thread-safe.
class PromptEcho {
 public:
  PromptEcho(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt, const std::string& text, bool scored);

  // Of a request with score_from 1.
  void Take(const std::vector<TargetLogprobs>& scores);
  bool complete() const { return missing_ == 0; }
  AnswerPiece Release() { return std::move(piece_); }

 private:
  AnswerPiece piece_;
  size_t missing_ = 0;  // scores
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_TOKEN_TEXT_H_
