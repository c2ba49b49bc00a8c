#ifndef STAGECOACH_STAGE_WORKER_SAMPLE_LOGITS_RULES_H_
#define STAGECOACH_STAGE_WORKER_SAMPLE_LOGITS_RULES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stage_worker/kernels/sampling.h"
#include "stage_worker/sample/token_history.h"

namespace stagecoach {

// Changes raw logits as the sequence's sampling parameters ask, in this order:
//   1. logit bias: added, in the order of the list.
//   2. repetition penalty r: every token that occurs among the last repeat_last_n of prompt and output (-1: all), once:
//      a logit above 0 is divided by r, another multiplied by r.
//   3. presence and frequency, over the output only: logit -= presence + count * frequency.
//   4. end tokens are -infinity while the output has fewer than min_new_tokens.
// 2 and 3 are those of llama.cpp's penalties sampler. Keeps its memory between calls; for one thread.
class LogitsRules {
 public:
  // Whether the sequence asks for any of them.
  static bool ChangeAnything(const TokenHistory& history);

  // logits [vocab], in place. Tokens of the history are in [0, vocab), see CheckOpenSequence.
  void Apply(const SamplingKernels& kernels, const TokenHistory& history, int64_t vocab, float* logits);

  static size_t MaxBytes(int64_t vocab);

 private:
  void ApplyRepetition(const SamplingKernels& kernels, const TokenHistory& history, int64_t vocab, float* logits);

  std::vector<uint8_t> seen_;  // [vocab], all 0 between calls
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SAMPLE_LOGITS_RULES_H_
