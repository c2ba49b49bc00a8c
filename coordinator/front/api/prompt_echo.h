#ifndef STAGECOACH_COORDINATOR_FRONT_API_PROMPT_ECHO_H_
#define STAGECOACH_COORDINATOR_FRONT_API_PROMPT_ECHO_H_

// A prompt that is put before its answer, with the log-probabilities of its tokens if they are wanted.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/step/step.h"
#include "coordinator/front/api/answer_text.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

// Not thread-safe.
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

#endif  // STAGECOACH_COORDINATOR_FRONT_API_PROMPT_ECHO_H_
