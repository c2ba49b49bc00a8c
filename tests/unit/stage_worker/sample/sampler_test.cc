#include "stage_worker/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "common/base/counter_rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TokenId Pick(const SamplingParams& sampling, int64_t position, const std::vector<float>& logits) {
  Sampler sampler;
  return sampler.Pick(sampling, position, logits.data(), static_cast<int64_t>(logits.size()));
}

// How often each token is drawn at positions 0 .. draws-1.
std::map<TokenId, int> Draw(const SamplingParams& sampling, const std::vector<float>& logits, int draws) {
  std::map<TokenId, int> counts;
  for (int position = 0; position < draws; ++position) ++counts[Pick(sampling, position, logits)];
  return counts;
}

std::set<TokenId> DrawnTokens(const SamplingParams& sampling, const std::vector<float>& logits) {
  std::set<TokenId> tokens;
  for (const auto& [token, count] : Draw(sampling, logits, 2000)) tokens.insert(token);
  return tokens;
}

SamplingParams AtTemperature(float temperature) {
  SamplingParams sampling;
  sampling.temperature = temperature;
  sampling.seed = 17;
  return sampling;
}

TEST(Sampler, IsGreedyAtTemperatureZeroAndBreaksTiesByTheLowerId) {
  EXPECT_EQ(Pick(AtTemperature(0), 0, {1, 3, 2, 3}), 1);
  EXPECT_EQ(Pick(AtTemperature(0), 0, {-0.0f, 0.0f}), 0);
}

TEST(Sampler, FindsTheFirstOfTheLargestInAVocabularyOfAnySize) {
  const std::vector<float> values = {-kInf, kNan, -1, -0.0f, 0.0f, 0.5f, 0.5f, 1, kInf};
  std::mt19937 random(3);
  for (int64_t vocab = 1; vocab < 100; ++vocab) {
    for (size_t choices = 1; choices <= values.size(); ++choices) {
      std::vector<float> logits(static_cast<size_t>(vocab));
      for (float& logit : logits) logit = values[random() % choices];
      TokenId expected = 0;
      float best = -kInf;
      for (size_t i = 0; i < logits.size(); ++i) {
        if (!(logits[i] > best)) continue;
        best = logits[i];
        expected = static_cast<TokenId>(i);
      }
      ASSERT_EQ(Argmax(logits.data(), vocab), expected) << ::testing::PrintToString(logits);
    }
  }
}

TEST(Sampler, DrawsTheSameTokenForTheSameSeedAndPosition) {
  const std::vector<float> logits = {1, 1.5, 0.5, 1, 0.9f, 1.2f};
  const SamplingParams sampling = AtTemperature(1);
  SamplingParams other = sampling;
  other.seed = 18;
  int differences = 0;
  Sampler reused;
  for (int64_t position = 0; position < 100; ++position) {
    const TokenId token = Pick(sampling, position, logits);
    EXPECT_EQ(reused.Pick(sampling, position, logits.data(), 6), token);
    differences += Pick(other, position, logits) != token;
  }
  EXPECT_GT(differences, 20);
}

TEST(Sampler, DrawsInProportionToTheProbabilities) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  std::map<TokenId, int> counts = Draw(AtTemperature(1), logits, 8000);
  EXPECT_NEAR(counts[0], 1000, 120);
  EXPECT_NEAR(counts[1], 2000, 160);
  EXPECT_NEAR(counts[2], 5000, 200);
}

TEST(Sampler, DividesLogitsByTheTemperature) {
  const std::vector<float> logits = {0, std::log(2.0f)};
  std::map<TokenId, int> counts = Draw(AtTemperature(0.5f), logits, 5000);  // 1 : 4
  EXPECT_NEAR(counts[0], 1000, 120);
  EXPECT_EQ(DrawnTokens(AtTemperature(1e-30f), {1, 2, 1.999f}), (std::set<TokenId>{1}));
}

// The definition written out: rank, cut, weigh, walk to the random number.
TokenId PickByDefinition(const SamplingParams& sampling, int64_t position, const std::vector<float>& logits) {
  std::vector<TokenId> ranked(logits.size());
  for (size_t i = 0; i < ranked.size(); ++i) ranked[i] = static_cast<TokenId>(i);
  std::stable_sort(ranked.begin(), ranked.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < ranked.size()) ranked.resize(sampling.top_k);
  const float best = logits[ranked[0]];
  double total = 0, reached = 0;
  for (const TokenId token : ranked) total += FixedExp(logits[token] - best);
  std::vector<TokenId> kept;
  for (const TokenId token : ranked) {
    if (!kept.empty() && sampling.top_p < 1 && reached >= total * sampling.top_p) break;
    if (!kept.empty() && FixedExp(logits[token] - best) < sampling.min_p) break;
    kept.push_back(token);
    reached += FixedExp(logits[token] - best);
  }
  double weight_total = 0, sum = 0;
  for (const TokenId token : kept) weight_total += FixedExp((logits[token] - best) / sampling.temperature);
  const double target = UniformAt(sampling.seed, position) * weight_total;
  for (const TokenId token : kept) {
    sum += FixedExp((logits[token] - best) / sampling.temperature);
    if (sum > target) return token;
  }
  return kNoToken;
}

TEST(Sampler, FollowsTheDefinitionForRandomLogitsAndParameters) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2);
  Sampler sampler;
  for (int round = 0; round < 500; ++round) {
    std::vector<float> logits(1 + random() % 300);
    for (float& logit : logits) logit = std::round(normal(random) * 4) / 4;  // many ties
    SamplingParams sampling = AtTemperature(0.25f + static_cast<float>(random() % 8) / 4);
    sampling.top_k = static_cast<int32_t>(random() % 3 == 0 ? 0 : random() % 350);
    sampling.top_p = random() % 2 == 0 ? 1 : 0.05f + 0.9f * static_cast<float>(random() % 100) / 100;
    sampling.min_p = random() % 2 == 0 ? 0 : static_cast<float>(random() % 100) / 100;
    sampling.seed = random();
    EXPECT_EQ(sampler.Pick(sampling, round, logits.data(), static_cast<int64_t>(logits.size())),
              PickByDefinition(sampling, round, logits));
  }
}

TEST(Sampler, KeepsTheFirstKWithTiesByTheLowerId) {
  SamplingParams sampling = AtTemperature(1);
  sampling.top_k = 2;
  EXPECT_EQ(DrawnTokens(sampling, {1, 2, 1, 1}), (std::set<TokenId>{0, 1}));
}

TEST(Sampler, KeepsTheShortestPrefixThatReachesTopP) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  SamplingParams sampling = AtTemperature(1);
  sampling.top_p = 0.6f;
  EXPECT_EQ(DrawnTokens(sampling, logits), (std::set<TokenId>{0, 1}));
  sampling.top_p = 1e-6f;
  EXPECT_EQ(DrawnTokens(sampling, logits), (std::set<TokenId>{0}));
  // Probabilities of top-p do not depend on the temperature, which comes last.
  sampling.top_p = 0.6f;
  sampling.temperature = 5;
  EXPECT_EQ(DrawnTokens(sampling, logits), (std::set<TokenId>{0, 1}));
}

TEST(Sampler, KeepsTokensAboveAShareOfTheBestProbability) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  SamplingParams sampling = AtTemperature(1);
  sampling.min_p = 0.2f;
  EXPECT_EQ(DrawnTokens(sampling, logits), (std::set<TokenId>{0, 1, 2}));
  sampling.min_p = 1;
  EXPECT_EQ(DrawnTokens(sampling, logits), (std::set<TokenId>{0}));
}

TEST(Sampler, NeverDrawsATokenOfMinusInfinityOrNan) {
  EXPECT_EQ(DrawnTokens(AtTemperature(1), {-kInf, 0, kNan, 0.5f}), (std::set<TokenId>{1, 3}));
  SamplingParams sampling = AtTemperature(1);
  sampling.top_p = 0.999f;
  EXPECT_EQ(DrawnTokens(sampling, {-kInf, 0, kNan, 0.5f}), (std::set<TokenId>{1, 3}));
}

TEST(Sampler, FallsBackToTheBestRankedTokenWhenThereIsNoDistribution) {
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingParams sampling = AtTemperature(temperature);
    EXPECT_EQ(Pick(sampling, 3, {kNan, kNan}), 0);
    EXPECT_EQ(Pick(sampling, 3, {-kInf, kNan, -kInf}), 0);
    EXPECT_EQ(Pick(sampling, 3, {1, kInf, kInf}), 1);
    sampling.top_k = 1;
    sampling.top_p = 0.5f;
    EXPECT_EQ(Pick(sampling, 3, {kNan, -kInf}), 0);
  }
}

TEST(Logprobs, AreTheRankedLogSoftmax) {
  const std::vector<float> logits = {1, 3, 3, 0, kNan};
  const float log_sum = std::log(std::exp(1.0f) + 2 * std::exp(3.0f) + 1);
  const std::vector<TokenLogprob> top = TopLogprobs(logits.data(), 5, log_sum, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0], (TokenLogprob{1, 3 - log_sum}));
  EXPECT_EQ(top[1], (TokenLogprob{2, 3 - log_sum}));
  EXPECT_EQ(top[2], (TokenLogprob{0, 1 - log_sum}));
  EXPECT_EQ(TopLogprobs(logits.data(), 5, log_sum, 128).size(), 5u);
  EXPECT_TRUE(TopLogprobs(logits.data(), 5, log_sum, 0).empty());
}

TEST(Logprobs, AreAlwaysFinite) {
  EXPECT_EQ(LogProbability(-kInf, 1), std::numeric_limits<float>::lowest());
  EXPECT_EQ(LogProbability(kNan, 1), std::numeric_limits<float>::lowest());
  EXPECT_EQ(LogProbability(2, 3), -1);
}

}  // namespace
}  // namespace stagecoach
