#include "tests/testing/sample/naive_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "common/base/counter_rng.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/sampling.h"
#include "stage_worker/kernels/select.h"

namespace stagecoach::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Of one logit, see Weighing. temperature_inverse: 1 for the softmax itself.
uint64_t WeightOf(float logit, float best, float temperature_inverse) {
  uint32_t weight = 0;
  const Weighing weighing = {best, temperature_inverse * std::numbers::log2e_v<float>, -kInf};
  static const SamplingKernels& scalar = *SelectKernels("scalar").value()->sampling;
  scalar.weigh_each(&logit, 1, weighing, &weight);
  return weight;
}

}  // namespace

std::vector<TokenId> NaiveRanking(const std::vector<float>& logits) {
  std::vector<TokenId> ranked;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) ranked.push_back(static_cast<TokenId>(i));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  return ranked;
}

// Rank, cut, weigh, walk through the tokens to the random number.
TokenId NaivePick(const SamplingParams& sampling, int64_t position, const std::vector<float>& logits) {
  std::vector<TokenId> ranked = NaiveRanking(logits);
  if (ranked.empty() || logits[ranked[0]] == -kInf) return 0;
  const float best = logits[ranked[0]];
  if (sampling.temperature == 0 || best == kInf) return ranked[0];
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < ranked.size()) ranked.resize(sampling.top_k);
  uint64_t total = 0;
  for (const TokenId token : ranked) total += WeightOf(logits[token], best, 1);
  const uint64_t wanted = static_cast<uint64_t>(static_cast<double>(total) * static_cast<double>(sampling.top_p));
  uint64_t reached = 0;
  std::vector<TokenId> kept;
  for (const TokenId token : ranked) {
    if (!kept.empty() && sampling.top_p < 1 && reached >= wanted) break;
    if (sampling.min_p > 0 && logits[token] < best + FixedLog(sampling.min_p)) break;
    kept.push_back(token);
    reached += WeightOf(logits[token], best, 1);
  }
  std::sort(kept.begin(), kept.end());
  const float scale = std::min(1 / sampling.temperature, 1e38f);
  uint64_t weight_total = 0, sum = 0;
  for (const TokenId token : kept) weight_total += WeightOf(logits[token], best, scale);
  const unsigned __int128 random =
      static_cast<uint64_t>(UniformAt(sampling.seed, static_cast<uint64_t>(position)) * 0x1p53);
  const uint64_t target = static_cast<uint64_t>((random * weight_total) >> 53);
  for (const TokenId token : kept) {
    sum += WeightOf(logits[token], best, scale);
    if (sum > target) return token;
  }
  return kNoToken;
}

const char* LogitShapeName(LogitShape shape) {
  constexpr const char* kNames[] = {"normal",      "few values", "all equal", "nearly equal", "wide",
                                    "lonely best", "long tail",  "masked",    "with NaN"};
  return kNames[static_cast<int>(shape)];
}

std::vector<float> RandomLogits(LogitShape shape, size_t vocab, std::mt19937* random) {
  std::normal_distribution<float> normal(0, 2);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> logits(vocab);
  for (float& logit : logits) {
    switch (shape) {
      case LogitShape::kFewValues: logit = std::round(normal(*random) * 2) / 2; break;
      case LogitShape::kAllEqual: logit = -7.25f; break;
      case LogitShape::kNearlyEqual: logit = 3 + static_cast<float>((*random)() % 4000) * 0x1p-22f; break;
      case LogitShape::kWide: logit = -40 * uniform(*random); break;
      case LogitShape::kLonelyBest: logit = normal(*random) - 20; break;
      case LogitShape::kLongTail:
        logit = (*random)() % 1000 == 0 ? 10 + normal(*random) : 0.1f * normal(*random);
        break;
      case LogitShape::kMasked: logit = (*random)() % 50 == 0 ? normal(*random) : -kInf; break;
      case LogitShape::kWithNan: logit = (*random)() % 3 == 0 ? kNan : normal(*random); break;
      default: logit = normal(*random); break;
    }
  }
  if (shape == LogitShape::kLonelyBest) logits[(*random)() % vocab] = 9;
  return logits;
}

SamplingParams RandomSampling(size_t vocab, std::mt19937* random) {
  const auto one_of = [random](auto... choices) {
    const float values[] = {static_cast<float>(choices)...};
    return values[(*random)() % (sizeof(values) / sizeof(values[0]))];
  };
  SamplingParams sampling;
  sampling.temperature = one_of(0.25, 0.7, 1, 1, 1.5, 100, 1e-30);
  sampling.top_k = (*random)() % 2 == 0 ? 0 : static_cast<int32_t>((*random)() % (vocab + vocab / 8 + 1));
  if ((*random)() % 4 == 0) sampling.top_k = 1 + static_cast<int32_t>((*random)() % 50);
  sampling.top_p = one_of(1, 1, 1e-9, 0.1, 0.5, 0.9, 0.95, 0.999, 0.9999999);
  sampling.min_p = one_of(0, 0, 0, 1e-5, 0.05, 0.5, 1);
  sampling.seed = (*random)();
  return sampling;
}

}  // namespace stagecoach::testing
