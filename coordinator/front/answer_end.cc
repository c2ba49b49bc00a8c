#include "coordinator/front/answer_end.h"

#include <algorithm>

namespace stagecoach {

AnswerEnd EndOfAnswer(const pb::RequestFinished& finished) {
  switch (finished.reason()) {
    case pb::RequestFinished::REASON_STOP: return {.reason = "stop"};
    case pb::RequestFinished::REASON_LENGTH:
    case pb::RequestFinished::REASON_SCORED: return {.reason = "length"};
    case pb::RequestFinished::REASON_REJECTED:
    case pb::RequestFinished::REASON_FAILED:
      return {.reason = "cancelled",
              .rejection = finished.error().empty() ? "the engine refused it" : finished.error(),
              .failed = finished.reason() == pb::RequestFinished::REASON_FAILED};
    default: return {.reason = "cancelled"};
  }
}

bool IsEndOfGeneration(const Tokenizer& tokenizer, TokenId token) {
  const absl::Span<const TokenId> set = tokenizer.end_of_generation();
  return std::binary_search(set.begin(), set.end(), token);
}

}  // namespace stagecoach
