#ifndef STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLER_H_
#define STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLER_H_

// From logits to a token. Everything is deterministic: candidates are ranked by logit, higher first, and token id,
// lower first; what they weigh are integers, so that sums are exact in any order; the random number is addressed by
// (seed, position). A NaN is never a candidate.

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/step/step.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/sampling.h"
#include "stage_worker/sample/logits_rules.h"
#include "stage_worker/sample/ranking_cut.h"

namespace stagecoach {

// Keeps its memory between calls; one for each thread that samples.
class Sampler {
 public:
  // Picks from logits that went through the rules. `position`: of the new token in its sequence. Temperature 0: the
  // best-ranked token. Else, over the candidates:
  //   top-k   the first k (0: all);
  //   top-p   the shortest beginning of the ranking whose probabilities (softmax over what top-k left) reach top_p;
  //   min-p   those whose logit is at least best logit + log(min_p);
  //   then the weights of (logit - best logit) / temperature (see Weighing), and the draw: the first candidate in the
  //   order of token ids at which the running sum of weights exceeds UniformAt(seed, position) * their total.
  // When the best logit is not finite (all are NaN or -inf, or one is +inf) the best-ranked token is returned, which is
  // token 0 in the first case.
  TokenId Pick(const Kernels& kernels, const SamplingParams& sampling, int64_t position, const float* logits,
               int64_t vocab);

  // The `count` most probable tokens of raw logits below +infinity, most probable first; NaN is left out, and there may
  // be fewer. log_sum: Kernels::log_sum_exp of the logits.
  std::vector<TokenLogprob> TopLogprobs(const Kernels& kernels, const float* logits, int64_t vocab, float log_sum,
                                        int32_t count);

  // The whole way of a sampled row: raw logits [vocab] through the sequence's rules to a token, with the
  // log-probabilities it asks for. `position`: of the new token. Fills everything but SampledToken::sequence; does not
  // append to the history. Logits are invalid as the model gave them: what the rules make of them, such as -infinity
  // for a forbidden token, is not.
  SampledToken Sample(const Kernels& kernels, const TokenHistory& history, int32_t position, const float* logits,
                      int64_t vocab);

  // The most memory one sampler may hold, for the announcement of scratch.
  static size_t MaxBytes(int64_t vocab);

 private:
  TokenId PickBelow(const LogitPeak& peak, const Kernels& kernels, const SamplingParams& sampling, int64_t position,
                    const float* logits, int64_t vocab);
  int64_t Keep(const SamplingKernels& kernels, const RankingCut& cut, const float* logits, int64_t vocab);
  int64_t Draw(const SamplingKernels& kernels, const RankingCut& cut, const float* x, int64_t n, Weighing weighing,
               double uniform);

  LogitsRules rules_;
  RankingCutter cutter_;
  std::vector<float> adjusted_;     // logits after the rules
  std::vector<int32_t> kept_;       // begins with the tokens that a cut has left, ascending
  std::vector<float> kept_logits_;  // theirs
  std::vector<uint64_t> sums_;      // of weights, by block
};

// Whether a row of raw logits with this peak is none to pick from: it has a NaN, +infinity, or nothing above -infinity.
bool InvalidLogits(const LogitPeak& peak);

// log-softmax of one token: logit - log_sum, where log_sum is Kernels::log_sum_exp of the raw logits. Always a finite
// number, so that it can be printed as JSON: what is NaN or infinite becomes the lowest float.
float LogProbability(float logit, float log_sum);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLER_H_
