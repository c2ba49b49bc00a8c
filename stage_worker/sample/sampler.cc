#include "stage_worker/sample/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "common/base/counter_rng.h"
#include "stage_worker/kernels/sampling.h"

namespace stagecoach {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// There is one.
TokenId FirstAllowed(const AllowedTokens& allowed) {
  size_t word = 0;
  while (allowed.bits[word] == 0) ++word;
  return static_cast<TokenId>(word * 64) + static_cast<TokenId>(std::countr_zero(allowed.bits[word]));
}

size_t WeightBlocks(int64_t n) { return static_cast<size_t>((n + kWeightBlock - 1) / kWeightBlock); }

}  // namespace

TokenId Sampler::Pick(const Kernels& kernels, const SamplingParams& sampling, int64_t position, const float* logits,
                      int64_t vocab) {
  return PickBelow(kernels.sampling->find_peak(logits, vocab), kernels, sampling, position, logits, vocab);
}

TokenId Sampler::PickBelow(const LogitPeak& peak, const Kernels& kernels, const SamplingParams& sampling,
                           int64_t position, const float* logits, int64_t vocab) {
  const SamplingKernels& fast = *kernels.sampling;
  if (sampling.temperature == 0 || !std::isfinite(peak.max)) return static_cast<TokenId>(peak.index);

  const float* x = logits;
  int64_t n = vocab;
  const bool only_k = sampling.top_k > 0 && sampling.top_k < vocab;
  if (only_k) {
    n = Keep(fast, cutter_.First(fast, x, n, sampling.top_k), logits, vocab);
    x = kept_logits_.data();
  }
  RankingCut cut;
  Weighing weighing = {peak.max, std::numbers::log2e_v<float>, -kInf};
  if (sampling.top_p < 1) cut = cutter_.Heaviest(fast, x, n, weighing, sampling.top_p);
  weighing.scale = std::min(1 / sampling.temperature, 1e38f) * std::numbers::log2e_v<float>;
  if (sampling.min_p > 0) weighing.floor = peak.max + FixedLog(sampling.min_p);
  const double uniform = UniformAt(sampling.seed, static_cast<uint64_t>(position));
  const int64_t drawn = Draw(fast, cut, x, n, weighing, uniform);
  return only_k ? kept_[static_cast<size_t>(drawn)] : static_cast<TokenId>(drawn);
}

// Puts what the cut leaves into kept_ and kept_logits_, in the order of the tokens; returns their number.
int64_t Sampler::Keep(const SamplingKernels& kernels, const RankingCut& cut, const float* logits, int64_t vocab) {
  const size_t room = static_cast<size_t>(vocab + kGatherSlack);
  if (kept_.size() < room) kept_.resize(room);
  if (kept_logits_.size() < room) kept_logits_.resize(room);  // at once, so that it never grows in a later step
  // Before the end of the ties what equals the cut's floor stays, after it what is above.
  const int64_t border = std::min(cut.tie_end, vocab);
  int64_t above = 0;
  int64_t kept = kernels.gather(logits, border, cut.floor, kInf, kept_.data(), &above);
  const int64_t before = kept;
  kept += kernels.gather(logits + border, vocab - border, std::nextafter(cut.floor, kInf), kInf, kept_.data() + kept,
                         &above);
  for (int64_t i = before; i < kept; ++i) kept_[i] += static_cast<int32_t>(border);
  for (int64_t i = 0; i < kept; ++i) kept_logits_[i] = logits[kept_[i]];
  return kept;
}

// The index of the drawn one of the n logits that the cut and weighing.floor leave; the best is always among them.
int64_t Sampler::Draw(const SamplingKernels& kernels, const RankingCut& cut, const float* x, int64_t n,
                      Weighing weighing, double uniform) {
  // Before the end of the ties what equals the cut's floor counts, after it what is above.
  struct Part {
    int64_t begin, end;
    Weighing weighing;
    size_t first_sum;
  } parts[2];
  const int64_t border = std::min(cut.tie_end, n);
  parts[0] = {0, border, weighing, 0};
  parts[0].weighing.floor = std::max(weighing.floor, cut.floor);
  parts[1] = {border, n, weighing, WeightBlocks(border)};
  parts[1].weighing.floor = std::max(weighing.floor, std::nextafter(cut.floor, kInf));
  if (sums_.size() < WeightBlocks(n) + 1) sums_.resize(WeightBlocks(n) + 1);  // for a border anywhere
  uint64_t total = 0;
  for (const Part& part : parts) {
    total += kernels.weigh(x + part.begin, part.end - part.begin, part.weighing, sums_.data() + part.first_sum);
  }

  // The random number is a multiple of 2^-53, so this is exact; it is below the total.
  const unsigned __int128 random = static_cast<uint64_t>(uniform * 0x1p53);
  const uint64_t target = static_cast<uint64_t>((random * total) >> 53);
  uint64_t sum = 0;
  for (const Part& part : parts) {
    size_t block = part.first_sum;
    for (int64_t begin = part.begin; begin < part.end; begin += kWeightBlock, ++block) {
      if (sum + sums_[block] <= target) {
        sum += sums_[block];
        continue;
      }
      uint32_t weights[kWeightBlock];
      kernels.weigh_each(x + begin, std::min<int64_t>(kWeightBlock, part.end - begin), part.weighing, weights);
      int64_t i = 0;
      while (sum + weights[i] <= target) sum += weights[i++];
      return begin + i;
    }
  }
  return 0;  // not reached: the last sum is the total
}

SampledToken Sampler::Sample(const Kernels& kernels, const TokenHistory& history, int32_t position, const float* logits,
                             int64_t vocab, const AllowedTokens* allowed) {
  const SamplingParams& sampling = history.sampling();
  const float* adjusted = logits;
  if (allowed != nullptr || LogitsRules::ChangeAnything(history)) {
    adjusted_.assign(logits, logits + vocab);
    rules_.Apply(*kernels.sampling, history, vocab, adjusted_.data(), allowed);
    adjusted = adjusted_.data();
  }
  SampledToken sampled;
  sampled.position = position;
  const LogitPeak peak = kernels.sampling->find_peak(adjusted, vocab);
  const bool impossible = allowed != nullptr && peak.max == -kInf;
  sampled.token = impossible ? FirstAllowed(*allowed) : PickBelow(peak, kernels, sampling, position, adjusted, vocab);
  // A rule can make an invalid logit of a valid one, and a grammar the opposite.
  sampled.invalid_logits = (allowed != nullptr || InvalidLogits(peak)) &&
                           (adjusted == logits || InvalidLogits(kernels.sampling->find_peak(logits, vocab)));
  if (sampling.logprobs < 0 || sampled.invalid_logits) return sampled;  // no probabilities come of invalid logits
  const float log_sum = kernels.log_sum_exp(logits, vocab);
  sampled.logprob = LogProbability(logits[sampled.token], log_sum);
  sampled.top = TopLogprobs(kernels, logits, vocab, log_sum, sampling.logprobs);
  return sampled;
}

std::vector<TokenLogprob> Sampler::TopLogprobs(const Kernels& kernels, const float* logits, int64_t vocab,
                                               float log_sum, int32_t count) {
  std::vector<TokenLogprob> top;
  if (count < 1) return top;
  const int64_t kept = Keep(*kernels.sampling, cutter_.First(*kernels.sampling, logits, vocab, count), logits, vocab);
  std::sort(kept_.begin(), kept_.begin() + kept,
            [logits](TokenId a, TokenId b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  // More than asked for only where invalid logits that a rule has hidden rank above all others.
  const int64_t most = std::min<int64_t>(kept, count);
  top.reserve(static_cast<size_t>(most));
  for (int64_t i = 0; i < most; ++i) top.push_back({kept_[i], LogProbability(logits[kept_[i]], log_sum)});
  return top;
}

size_t Sampler::MaxBytes(int64_t vocab) {
  const size_t tokens = static_cast<size_t>(vocab) + kGatherSlack;
  return RankingCutter::MaxBytes(vocab) + LogitsRules::MaxBytes(vocab) +
         tokens * (2 * sizeof(float) + sizeof(int32_t)) + (WeightBlocks(vocab) + 1) * sizeof(uint64_t);
}

bool InvalidLogits(const LogitPeak& peak) { return peak.invalid > 0 || peak.max == -kInf; }

float LogProbability(float logit, float log_sum) {
  const float logprob = logit - log_sum;
  return std::isfinite(logprob) ? logprob : std::numeric_limits<float>::lowest();
}

}  // namespace stagecoach
