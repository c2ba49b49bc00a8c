#ifndef STAGECOACH_COORDINATOR_FRONT_END_OF_GENERATION_H_
#define STAGECOACH_COORDINATOR_FRONT_END_OF_GENERATION_H_

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"

namespace stagecoach {

// Makes these tokens impossible: an entry of logit_bias each, of which there may be kMaxLogitBias.
void IgnoreEndOfGeneration(absl::Span<const TokenId> tokens, SamplingParams* sampling);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_END_OF_GENERATION_H_
