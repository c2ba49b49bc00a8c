#ifndef STAGECOACH_STAGE_WORKER_SAMPLE_LOGITS_RULES_H_
#define STAGECOACH_STAGE_WORKER_SAMPLE_LOGITS_RULES_H_

#include <cstdint>

#include "stage_worker/sample/token_history.h"

namespace stagecoach {

// Changes the raw logits [vocab] in place as the sequence's sampling parameters ask, in this order:
//   1. logit bias: added, in the order of the list.
//   2. repetition penalty r: every token that occurs among the last repeat_last_n of prompt and output (-1: all), once:
//   a logit above 0 is
//      divided by r, another multiplied by r.
//   3. presence and frequency, over the output only: logit -= presence + count * frequency.
// The rules of llama.cpp's penalties sampler. Tokens are in [0, vocab), see CheckOpenSequence.
void ApplyLogitsRules(const TokenHistory& history, float* logits);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SAMPLE_LOGITS_RULES_H_
