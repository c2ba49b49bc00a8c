#ifndef STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLER_H_
#define STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLER_H_

// From logits to a token, deterministically: candidates rank by logit, higher first, then by token id, lower first.
// Weights are integers, so sums are exact in any order. The random number is addressed by (seed, position). A NaN is
// never a candidate.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/sampling.h"

namespace stagecoach {

// The tokens of one sequence, and where the output begins, which the penalties need. The same after a preemption or a
// restart, because OpenSequence brings both parts.
class TokenHistory {
 public:
  // With room for kRoom more tokens; beyond that memory grows by doubling.
  explicit TokenHistory(const OpenSequence& open);
  static constexpr size_t kRoom = 512;

  void AppendOutput(TokenId token);
  // Takes the last tokens back, until there are `size`. Requires: they are of the output.
  void CutTo(int64_t size);

  // Prompt, then output.
  absl::Span<const TokenId> tokens() const { return tokens_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t outputs() const { return size() - prompt_; }
  // Counts of the tokens in the output, in the order of first occurrence.
  struct Count {
    TokenId token;
    int32_t count;
  };
  absl::Span<const Count> output_counts() const { return output_counts_; }
  const SamplingParams& sampling() const { return sampling_; }

 private:
  SamplingParams sampling_;
  int64_t prompt_;  // tokens
  std::vector<TokenId> tokens_;
  std::vector<Count> output_counts_;            // beside the map, because it is read as a whole for every token
  absl::flat_hash_map<TokenId, size_t> place_;  // in output_counts_
};

// The tokens that a sequence's grammar allows next.
struct AllowedTokens {
  std::vector<uint64_t> bits;  // [ceil(V / 64)] bit t % 64 of word t / 64: token t is allowed
  bool complete = false;       // the output may end here
  bool any = true;             // one is allowed; where none was found, nothing can be sampled
};

// Applies the sequence's sampling parameters, and its grammar, to raw logits, in this order:
//   1. logit bias: added, in the order of the list.
//   2. repetition penalty r, once for every token among the last repeat_last_n of prompt and output (-1: all): a logit
//      above 0 is divided by r, another multiplied.
//   3. presence and frequency, over the output only: logit -= presence + count * frequency.
//   4. end tokens are -infinity while the output has fewer than min_new_tokens, unless it is a complete text, or the
//      grammar allows no other token.
//   5. tokens that the grammar does not allow are -infinity.
// 2 and 3 are those of llama.cpp's penalties sampler. Reuses its memory; for one thread.
class LogitsRules {
 public:
  // Whether the sequence asks for any of the first four.
  static bool ChangeAnything(const TokenHistory& history);

  // logits [vocab], in place. Tokens of the history are in [0, vocab), see CheckOpenSequence. allowed: nullptr without
  // a grammar.
  void Apply(const SamplingKernels& kernels, const TokenHistory& history, int64_t vocab, float* logits,
             const AllowedTokens* allowed = nullptr);

  static size_t MaxBytes(int64_t vocab) { return static_cast<size_t>(vocab); }

 private:
  void ApplyRepetition(const SamplingKernels& kernels, const TokenHistory& history, int64_t vocab, float* logits);

  std::vector<uint8_t> seen_;  // [vocab], all 0 between calls
};

// Logits rank by value, higher first, then by index, lower first. A cut keeps the beginning of the ranking: every logit
// above `floor`, and those equal to it before `tie_end`.
struct RankingCut {
  float floor = -std::numeric_limits<float>::infinity();
  int64_t tie_end = std::numeric_limits<int64_t>::max();
};

// Finds cuts by partitioning around values sampled from the row: one pass over it and some over ever smaller parts. NaN
// belongs to no ranking. Reuses its memory; for one thread.
class RankingCutter {
 public:
  // The first `count` >= 1 of n logits below +infinity; all, when there are not as many.
  RankingCut First(const SamplingKernels& kernels, const float* x, int64_t n, int64_t count);

  // The shortest beginning with at least `share` in (0, 1] of the weight of all n logits. Requires: weighing.best is
  // the largest logit, weighing.floor -infinity.
  RankingCut Heaviest(const SamplingKernels& kernels, const float* x, int64_t n, const Weighing& weighing, float share);

  static size_t MaxBytes(int64_t n);

  struct Memory {
    std::vector<int32_t> indices;
    std::vector<float> values;        // what a search has narrowed down to
    std::vector<uint64_t> sums;       // of its weights, by block
    std::vector<uint64_t> part_sums;  // of a part of them
  };

 private:
  Memory memory_;
};

// Keeps its memory between calls; one for each thread that samples.
class Sampler {
 public:
  // Picks the token at `position` from logits that went through the rules. Temperature 0: the best-ranked token. Else,
  // in this order:
  //   top-k   the first k (0: all);
  //   top-p   the shortest beginning of the ranking whose probabilities (softmax over top-k's candidates) reach top_p;
  //   min-p   those whose logit is at least best logit + log(min_p);
  //   draw    the first candidate by token id at which the running sum of weights of (logit - best logit) / temperature
  //           (see Weighing) exceeds UniformAt(seed, position) * their total.
  // If the best logit is not finite, the best-ranked token; token 0 if all are NaN or -inf.
  TokenId Pick(const Kernels& kernels, const SamplingParams& sampling, int64_t position, const float* logits,
               int64_t vocab);

  // The `count` most probable tokens of raw logits below +infinity, in order, without NaN; there may be fewer. log_sum:
  // Kernels::log_sum_exp of the logits.
  std::vector<TokenLogprob> TopLogprobs(const Kernels& kernels, const float* logits, int64_t vocab, float log_sum,
                                        int32_t count);

  // Samples a row: raw logits [vocab] through the sequence's rules to the token at `position`, with its
  // log-probabilities. Fills everything but SampledToken::sequence; does not append to the history. Validity is that of
  // the raw logits: a rule's -infinity is valid. allowed: as of LogitsRules; the token is always one of them, the first
  // where the rules have made all of them impossible.
  SampledToken Sample(const Kernels& kernels, const TokenHistory& history, int32_t position, const float* logits,
                      int64_t vocab, const AllowedTokens* allowed = nullptr);

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

// Whether a row of raw logits with this peak is invalid: a NaN, a +infinity, or nothing above -infinity.
bool InvalidLogits(const LogitPeak& peak);

// log-softmax of one token: logit - log_sum, where log_sum is Kernels::log_sum_exp of the raw logits. NaN and
// infinities become the lowest float, which JSON can hold.
float LogProbability(float logit, float log_sum);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLER_H_
