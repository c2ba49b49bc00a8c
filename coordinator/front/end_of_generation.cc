#include "coordinator/front/end_of_generation.h"

#include <limits>

namespace stagecoach {

void IgnoreEndOfGeneration(absl::Span<const TokenId> tokens, SamplingParams* sampling) {
  for (TokenId token : tokens) sampling->logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
}

}  // namespace stagecoach
