#ifndef STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLER_H_
#define STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLER_H_

// From logits to a token. Everything is deterministic: candidates are ranked by logit, higher first, and token id,
// lower first; sums run in that order in double; the random number is addressed by (seed, position). A NaN ranks like
// -inf.

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/step/step.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/sample/token_history.h"

namespace stagecoach {

// Picks from logits that went through ApplyLogitsRules. Keeps its memory between calls; one for each thread that
// samples.
class Sampler {
 public:
  // `position`: of the new token in its sequence. Temperature 0: the best-ranked token. Else, over the ranked
  // candidates:
  //   top-k   the first k (0: all);
  //   top-p   the shortest prefix whose probabilities (softmax over what top-k left) reach top_p;
  //   min-p   those with at least min_p times the probability of the first;
  //   then weights exp((logit - best logit) / temperature), and the draw: the first candidate at which the running sum
  //   of weights exceeds UniformAt(seed, position) * total.
  // When the best logit is not finite (all are NaN or -inf, or one is +inf) the best-ranked token is returned, which is
  // token 0 in the first case.
  TokenId Pick(const SamplingParams& sampling, int64_t position, const float* logits, int64_t vocab);

  // The whole way of a sampled row: raw logits [vocab] through the sequence's rules to a token, with the
  // log-probabilities it asks for. `position`: of the new token. Fills everything but SampledToken::sequence; does not
  // append to the history.
  SampledToken Sample(const Kernels& kernels, const TokenHistory& history, int32_t position, const float* logits,
                      int64_t vocab);

  // The most memory one sampler may hold, for the announcement of scratch.
  static size_t MaxBytes(int64_t vocab);

 private:
  std::vector<uint64_t> ranked_;  // candidates, best first; see RankKey
  std::vector<double> weights_;
  std::vector<float> adjusted_;  // logits after the rules
};

// The best-ranked token; 0 when every logit is NaN or -inf.
TokenId Argmax(const float* logits, int64_t vocab);

// log-softmax of one token: logit - log_sum, where log_sum is Kernels::log_sum_exp of the raw logits. Always a finite
// number, so that it can be printed as JSON: what is NaN or infinite becomes the lowest float.
float LogProbability(float logit, float log_sum);

// The `count` most probable tokens of the raw logits (all, when there are fewer), most probable first.
std::vector<TokenLogprob> TopLogprobs(const float* logits, int64_t vocab, float log_sum, int32_t count);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLER_H_
