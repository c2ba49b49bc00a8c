#ifndef STAGECOACH_COORDINATOR_ANSWER_END_OF_GENERATION_H_
#define STAGECOACH_COORDINATOR_ANSWER_END_OF_GENERATION_H_

#include <algorithm>
#include <limits>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"
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

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_ANSWER_END_OF_GENERATION_H_
