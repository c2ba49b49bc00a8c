#include "stage_worker/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/select.h"
#include "tests/testing/sample/naive_sampler.h"
#include "tests/testing/sanitizers.h"

namespace stagecoach {
namespace {

using testing::LogitShape;
using testing::LogitShapeName;
using testing::NaivePick;
using testing::NaiveRanking;
using testing::RandomLogits;
using testing::RandomSampling;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const Kernels& Best() { return *SelectKernels("auto").value(); }

TokenId Pick(const SamplingParams& sampling, int64_t position, const std::vector<float>& logits) {
  Sampler sampler;
  return sampler.Pick(Best(), sampling, position, logits.data(), static_cast<int64_t>(logits.size()));
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

SamplingParams AtTemperature(float temperature) { return {.temperature = temperature, .seed = 17}; }

TEST(Sampler, IsGreedyAtTemperatureZeroAndBreaksTiesByTheLowerId) {
  EXPECT_EQ(Pick(AtTemperature(0), 0, {1, 3, 2, 3}), 1);
  EXPECT_EQ(Pick(AtTemperature(0), 0, {-0.0f, 0.0f}), 0);
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
    EXPECT_EQ(reused.Pick(Best(), sampling, position, logits.data(), 6), token);
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

std::string Describe(const SamplingParams& sampling) {
  return absl::StrCat("temperature ", sampling.temperature, " top-k ", sampling.top_k, " top-p ", sampling.top_p,
                      " min-p ", sampling.min_p);
}

void ExpectTheDefinition(size_t vocab, int rounds, std::mt19937* random) {
  std::vector<const Kernels*> kernels;
  for (const Isa& isa : ListIsas()) {
    if (isa.available) kernels.push_back(isa.kernels);
  }
  Sampler sampler;
  for (int shape = 0; shape < static_cast<int>(LogitShape::kCount); ++shape) {
    const std::vector<float> logits = RandomLogits(static_cast<LogitShape>(shape), vocab, random);
    for (int round = 0; round < rounds; ++round) {
      const SamplingParams sampling = RandomSampling(vocab, random);
      const TokenId expected = NaivePick(sampling, round, logits);
      for (const Kernels* one : kernels) {
        ASSERT_EQ(sampler.Pick(*one, sampling, round, logits.data(), static_cast<int64_t>(vocab)), expected)
            << one->isa << " " << LogitShapeName(static_cast<LogitShape>(shape)) << " of " << vocab << ": "
            << Describe(sampling);
      }
    }
  }
}

TEST(Sampler, FollowsTheDefinitionForRandomLogitsAndParameters) {
  std::mt19937 random(1);
  const int rounds = testing::kSanitized ? 5 : 20;
  for (int i = 0; i < 60; ++i) ExpectTheDefinition(1 + random() % 300, rounds, &random);
  for (int i = 0; i < rounds; ++i) ExpectTheDefinition(300 + random() % 5000, 10, &random);
}

TEST(Sampler, FollowsTheDefinitionForALargeVocabulary) {
  std::mt19937 random(2);
  ExpectTheDefinition(151936, testing::kSanitized ? 1 : 4, &random);
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

SampledToken Sample(const Kernels& kernels, const SamplingParams& sampling, const std::vector<float>& logits) {
  const TokenHistory history({.sequence = 1, .prompt = {0, 1}, .output = {1}, .sampling = sampling});
  Sampler sampler;
  return sampler.Sample(kernels, history, 3, logits.data(), static_cast<int64_t>(logits.size()));
}

TEST(Sampler, SaysThatTheLogitsOfTheModelAreNotFinite) {
  SamplingParams all = AtTemperature(0.8f);
  all.top_k = 20;
  all.top_p = 0.9f;
  all.min_p = 0.01f;
  all.repeat_penalty = 1.2f;
  all.presence_penalty = all.frequency_penalty = 0.5f;
  all.logit_bias = {{1, -kInf}, {2, 5.0f}};
  for (const Isa& isa : ListIsas()) {
    if (!isa.available) continue;
    for (SamplingParams sampling : {AtTemperature(0), AtTemperature(1), all}) {
      sampling.logprobs = 3;
      for (const size_t vocab : {size_t{4}, size_t{67}, size_t{2500}}) {
        const std::vector<float> good(vocab, 1.5f);
        EXPECT_FALSE(Sample(*isa.kernels, sampling, good).invalid_logits) << isa.kernels->isa;
        std::vector<float> one_left(vocab, -kInf);
        one_left[2] = 1;
        EXPECT_FALSE(Sample(*isa.kernels, sampling, one_left).invalid_logits) << isa.kernels->isa;
        std::vector<std::vector<float>> bad = {std::vector<float>(vocab, kNan), std::vector<float>(vocab, -kInf),
                                               std::vector<float>(vocab, kInf)};
        for (const float value : {kNan, kInf}) {
          for (const size_t at : {size_t{0}, size_t{1}, vocab / 2, vocab - 1}) {
            bad.push_back(good);
            bad.back()[at] = value;
          }
        }
        bad.push_back(good);
        std::fill(bad.back().begin(), bad.back().begin() + static_cast<int64_t>(vocab / 2), kInf);
        for (const std::vector<float>& logits : bad) {
          const SampledToken sampled = Sample(*isa.kernels, sampling, logits);
          EXPECT_TRUE(sampled.invalid_logits) << isa.kernels->isa << " " << vocab;
          EXPECT_GE(sampled.token, 0);
          EXPECT_LT(sampled.token, static_cast<TokenId>(vocab));
          EXPECT_TRUE(std::isfinite(sampled.logprob));
          EXPECT_TRUE(sampled.top.empty());
        }
      }
    }
  }
}

TEST(Sampler, WhatRulesMakeOfGoodLogitsIsNotTheModelsFault) {
  SamplingParams sampling = AtTemperature(1);
  for (TokenId token = 0; token < 4; ++token) sampling.logit_bias.emplace_back(token, -kInf);
  EXPECT_FALSE(Sample(Best(), sampling, {1, 2, 3, 4}).invalid_logits) << "every token is forbidden";
  EXPECT_TRUE(Sample(Best(), sampling, {1, 2, kNan, 4}).invalid_logits) << "forbidden, but the model is broken";
  sampling = AtTemperature(1);
  sampling.repeat_penalty = 1e-6f;
  EXPECT_FALSE(Sample(Best(), sampling, {3e38f, 1, 1, 1}).invalid_logits) << "3e38 / 1e-6 is infinite";
}

// A grammar's choice is that among the allowed tokens alone, whatever else is asked for.
TEST(Sampler, PicksAmongAllowedTokensAsIfThereWereNoOthers) {
  std::mt19937 random(8);
  Sampler sampler;
  for (int round = 0; round < (testing::kSanitized ? 100 : 1000); ++round) {
    const size_t vocab = 1 + random() % 300;
    const auto shape = static_cast<LogitShape>(random() % static_cast<int>(LogitShape::kWithNan));
    const std::vector<float> logits = RandomLogits(shape, vocab, &random);
    OpenSequence open = {.sequence = 1, .prompt = {0}};
    open.sampling = RandomSampling(vocab, &random);
    open.sampling.logprobs = 2;
    AllowedTokens allowed{std::vector<uint64_t>((vocab + 63) / 64)};
    std::vector<float> masked(vocab, -kInf);
    TokenId first = kNoToken;
    for (size_t token = 0; token < vocab; ++token) {
      if (random() % 5 != 0 && (token + 1 < vocab || first != kNoToken)) continue;
      allowed.bits[token / 64] |= uint64_t{1} << token % 64;
      masked[token] = logits[token];
      if (first == kNoToken) first = static_cast<TokenId>(token);
    }
    const TokenHistory history(open);
    const SampledToken held =
        sampler.Sample(Best(), history, round, logits.data(), static_cast<int64_t>(vocab), &allowed);
    const SampledToken free = sampler.Sample(Best(), history, round, logits.data(), static_cast<int64_t>(vocab));
    const bool possible = *std::max_element(masked.begin(), masked.end()) > -kInf;
    EXPECT_EQ(held.token, possible ? NaivePick(open.sampling, round, masked) : first) << Describe(open.sampling);
    EXPECT_EQ(held.top, free.top) << "log-probabilities are the model's";
    EXPECT_EQ(held.invalid_logits, free.invalid_logits);
  }
}

TEST(Sampler, OfBadLogitsAGrammarStillTakesAnAllowedTokenAndSaysThatTheyAreBad) {
  const TokenHistory history({.sequence = 1, .prompt = {0}});
  Sampler sampler;
  const AllowedTokens allowed{{0b0100}};
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const std::vector<float>& logits : {std::vector<float>{bad, bad, bad, bad}, {1, bad, 1, 1}, {1, 1, bad, 1}}) {
      const SampledToken sampled = sampler.Sample(Best(), history, 1, logits.data(), 4, &allowed);
      EXPECT_EQ(sampled.token, 2);
      EXPECT_EQ(sampled.invalid_logits, bad != -kInf || logits[0] == bad);
    }
  }
}

TEST(Logprobs, AreTheRankedLogSoftmax) {
  const std::vector<float> logits = {1, 3, 3, 0, -kInf};
  const float log_sum = std::log(std::exp(1.0f) + 2 * std::exp(3.0f) + 1);
  Sampler sampler;
  const std::vector<TokenLogprob> top = sampler.TopLogprobs(Best(), logits.data(), 5, log_sum, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0], (TokenLogprob{1, 3 - log_sum}));
  EXPECT_EQ(top[1], (TokenLogprob{2, 3 - log_sum}));
  EXPECT_EQ(top[2], (TokenLogprob{0, 1 - log_sum}));
  EXPECT_EQ(sampler.TopLogprobs(Best(), logits.data(), 5, log_sum, 128).size(), 5u);
  EXPECT_TRUE(sampler.TopLogprobs(Best(), logits.data(), 5, log_sum, 0).empty());
}

TEST(Logprobs, AreTheFirstOfTheRankingForRowsOfEveryShape) {
  std::mt19937 random(4);
  Sampler sampler;
  for (const size_t vocab : {size_t{7}, size_t{300}, size_t{5000}, size_t{40000}}) {
    for (int shape = 0; shape < static_cast<int>(LogitShape::kCount); ++shape) {
      const std::vector<float> logits = RandomLogits(static_cast<LogitShape>(shape), vocab, &random);
      const std::vector<TokenId> ranked = NaiveRanking(logits);
      for (const int count : {1, 20, kMaxLogprobs}) {
        const auto top = sampler.TopLogprobs(Best(), logits.data(), static_cast<int64_t>(vocab), 2.5f, count);
        ASSERT_EQ(top.size(), std::min<size_t>(ranked.size(), static_cast<size_t>(count))) << shape;
        for (size_t i = 0; i < top.size(); ++i) {
          ASSERT_EQ(top[i], (TokenLogprob{ranked[i], LogProbability(logits[ranked[i]], 2.5f)})) << shape << " " << i;
        }
      }
    }
  }
}

TEST(Logprobs, AreAlwaysFinite) {
  EXPECT_EQ(LogProbability(-kInf, 1), std::numeric_limits<float>::lowest());
  EXPECT_EQ(LogProbability(kNan, 1), std::numeric_limits<float>::lowest());
  EXPECT_EQ(LogProbability(2, 3), -1);
}

}  // namespace
}  // namespace stagecoach
