#include "stage_worker/sample/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/base/counter_rng.h"
#include "stage_worker/sample/logits_rules.h"

namespace stagecoach {
namespace {

// A candidate as one number, so that sorting ascending gives the ranking: the order-reversing image of the logit's bits
// above the token id. For floats, a < b iff the image of a is above that of b; -0 is made +0 and NaN -inf first.
uint64_t RankKey(float logit, TokenId token) {
  if (std::isnan(logit)) logit = -std::numeric_limits<float>::infinity();
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return (static_cast<uint64_t>(~ascending) << 32) | static_cast<uint32_t>(token);
}

TokenId RankedToken(uint64_t key) { return static_cast<TokenId>(key & 0xffffffffu); }

// The best `count` of all tokens, ranked.
void Rank(const float* logits, int64_t vocab, int64_t count, std::vector<uint64_t>* ranked) {
  ranked->resize(static_cast<size_t>(vocab));
  for (int64_t token = 0; token < vocab; ++token) {
    (*ranked)[static_cast<size_t>(token)] = RankKey(logits[token], static_cast<TokenId>(token));
  }
  if (count < vocab) {
    std::nth_element(ranked->begin(), ranked->begin() + count, ranked->end());
    ranked->resize(static_cast<size_t>(count));
  }
  std::sort(ranked->begin(), ranked->end());
}

// How many of the ranked candidates top-p and min-p leave; at least 1. weights: exp(logit - best logit) of each.
size_t CountKept(const std::vector<double>& weights, const SamplingParams& sampling) {
  size_t kept = weights.size();
  if (sampling.top_p < 1) {
    double total = 0;
    for (const double weight : weights) total += weight;
    const double wanted = total * sampling.top_p;
    double sum = weights[0];
    for (kept = 1; kept < weights.size() && sum < wanted; ++kept) sum += weights[kept];
  }
  // Weights descend and the first is 1, so min-p too cuts a tail.
  while (kept > 1 && weights[kept - 1] < sampling.min_p) --kept;
  return kept;
}

}  // namespace

TokenId Sampler::Pick(const SamplingParams& sampling, int64_t position, const float* logits, int64_t vocab) {
  if (sampling.temperature == 0) return Argmax(logits, vocab);
  const int64_t top_k = sampling.top_k > 0 ? std::min<int64_t>(sampling.top_k, vocab) : vocab;
  Rank(logits, vocab, top_k, &ranked_);
  const float best = logits[RankedToken(ranked_[0])];
  if (!std::isfinite(best)) return RankedToken(ranked_[0]);

  if (sampling.top_p < 1 || sampling.min_p > 0) {
    weights_.resize(ranked_.size());
    for (size_t i = 0; i < ranked_.size(); ++i) {
      const float logit = logits[RankedToken(ranked_[i])];
      weights_[i] = std::isnan(logit) ? 0 : FixedExp(logit - best);
    }
    ranked_.resize(CountKept(weights_, sampling));
  }
  weights_.resize(ranked_.size());
  double total = 0;
  for (size_t i = 0; i < ranked_.size(); ++i) {
    const float logit = logits[RankedToken(ranked_[i])];
    weights_[i] = std::isnan(logit) ? 0 : FixedExp((logit - best) / sampling.temperature);
    total += weights_[i];
  }
  const double target = UniformAt(sampling.seed, static_cast<uint64_t>(position)) * total;
  double sum = 0;
  for (size_t i = 0; i < ranked_.size(); ++i) {
    sum += weights_[i];
    if (sum > target) return RankedToken(ranked_[i]);
  }
  // Not reached: the last sum is `total`, and target < total because the random number is at most 1 - 2^-53.
  return RankedToken(ranked_[0]);
}

SampledToken Sampler::Sample(const Kernels& kernels, const TokenHistory& history, int32_t position, const float* logits,
                             int64_t vocab) {
  const SamplingParams& sampling = history.sampling();
  adjusted_.assign(logits, logits + vocab);
  ApplyLogitsRules(history, adjusted_.data());
  SampledToken sampled;
  sampled.position = position;
  sampled.token = Pick(sampling, position, adjusted_.data(), vocab);
  if (sampling.logprobs < 0) return sampled;
  const float log_sum = kernels.log_sum_exp(logits, vocab);
  sampled.logprob = LogProbability(logits[sampled.token], log_sum);
  sampled.top = TopLogprobs(logits, vocab, log_sum, sampling.logprobs);
  return sampled;
}

size_t Sampler::MaxBytes(int64_t vocab) {
  // Ranked candidates, once more those of TopLogprobs, weights, adjusted logits.
  return static_cast<size_t>(vocab) * (2 * sizeof(uint64_t) + sizeof(double) + sizeof(float));
}

TokenId Argmax(const float* logits, int64_t vocab) {
  // The largest first, in lanes that the compiler makes vectors of, then where it is: a vocabulary is long.
  constexpr int64_t kLanes = 16;
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
  int64_t token = 0;
  for (; token + kLanes <= vocab; token += kLanes) {
    for (int64_t i = 0; i < kLanes; ++i) lanes[i] = logits[token + i] > lanes[i] ? logits[token + i] : lanes[i];
  }
  for (; token < vocab; ++token) lanes[0] = logits[token] > lanes[0] ? logits[token] : lanes[0];  // false for NaN
  const float best = *std::max_element(lanes, lanes + kLanes);
  if (best == -std::numeric_limits<float>::infinity()) return 0;  // nothing but that and NaN
  return static_cast<TokenId>(std::find(logits, logits + vocab, best) - logits);
}

float LogProbability(float logit, float log_sum) {
  const float logprob = logit - log_sum;
  return std::isfinite(logprob) ? logprob : std::numeric_limits<float>::lowest();
}

std::vector<TokenLogprob> TopLogprobs(const float* logits, int64_t vocab, float log_sum, int32_t count) {
  std::vector<TokenLogprob> top;
  if (count < 1) return top;
  std::vector<uint64_t> ranked;
  Rank(logits, vocab, std::min<int64_t>(count, vocab), &ranked);
  for (const uint64_t key : ranked) {
    const TokenId token = RankedToken(key);
    top.push_back({token, LogProbability(logits[token], log_sum)});
  }
  return top;
}

}  // namespace stagecoach
