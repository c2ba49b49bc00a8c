#include "coordinator/perplexity/perplexity.h"

#include <cmath>
#include <numeric>

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

std::vector<TokenId> Numbers(int count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TargetLogprobs Rows(int32_t start, std::vector<float> logprobs) {
  return {.start = start, .logprobs = std::move(logprobs)};
}

TEST(PerplexityWindows, DoNotOverlapAndDropTheRest) {
  const PerplexityWindows windows(Numbers(11), 4, kNoToken);
  ASSERT_EQ(windows.count(), 2);
  EXPECT_THAT(windows.Window(0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(windows.Window(1), ElementsAre(4, 5, 6, 7));
}

TEST(PerplexityWindows, BeginWithTheBosTokenWhereThereIsOne) {
  const PerplexityWindows windows(Numbers(8), 4, 99);
  EXPECT_THAT(windows.Window(0), ElementsAre(99, 1, 2, 3));
  EXPECT_THAT(windows.Window(1), ElementsAre(99, 5, 6, 7));
}

TEST(PerplexityWindows, ScoreTheSecondHalvesAsLlamaCppDoes) {
  const PerplexityWindows windows(Numbers(19958), 512, kNoToken);
  EXPECT_EQ(windows.count(), 38);
  EXPECT_EQ(windows.first_scored(), 257);
  EXPECT_EQ(windows.scored_per_window(), 255);
  EXPECT_EQ(windows.count() * windows.scored_per_window(), 9690);
}

TEST(WindowScore, TakesPiecesInAnyOrderAndIgnoresRowsThatAreNotWanted) {
  WindowScore score(3, 6);  // positions 3, 4, 5: rows 2, 3, 4
  ASSERT_TRUE(score.Add(Rows(4, {-3, -9})).ok());
  EXPECT_FALSE(score.complete());
  ASSERT_TRUE(score.Add(Rows(0, {0, 0, -1, -2})).ok());
  EXPECT_TRUE(score.complete());
  EXPECT_THAT(score.logprobs(), ElementsAre(-1, -2, -3));
}

TEST(WindowScore, RefusesASecondScoreAndImpossibleOnes) {
  WindowScore score(1, 4);
  ASSERT_TRUE(score.Add(Rows(0, {-1})).ok());
  EXPECT_EQ(score.Add(Rows(0, {-1})).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(score.Add(Rows(1, {0.5f})).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(score.Add(Rows(1, {NAN})).code(), absl::StatusCode::kInternal);
}

TEST(PerplexityEstimate, IsTheExponentialOfTheMeanWithItsStandardError) {
  std::vector<WindowScore> windows(2, WindowScore(1, 3));
  ASSERT_TRUE(windows[0].Add(Rows(0, {-1, -2})).ok());
  ASSERT_TRUE(windows[1].Add(Rows(0, {-3, -4})).ok());
  const PerplexityEstimate estimate = EstimatePerplexity(windows);
  EXPECT_EQ(estimate.tokens, 4);
  EXPECT_DOUBLE_EQ(estimate.perplexity, std::exp(2.5));
  // Variance 1.25 of 4 values; the error of the mean is sqrt(1.25 / 3).
  EXPECT_DOUBLE_EQ(estimate.error, std::sqrt(1.25 / 3) * std::exp(2.5));
}

TEST(PerplexityEstimate, LeavesOutWindowsThatAreNotComplete) {
  std::vector<WindowScore> windows(2, WindowScore(1, 3));
  ASSERT_TRUE(windows[0].Add(Rows(0, {-1, -1})).ok());
  ASSERT_TRUE(windows[1].Add(Rows(0, {-9})).ok());
  const PerplexityEstimate estimate = EstimatePerplexity(windows);
  EXPECT_EQ(estimate.tokens, 2);
  EXPECT_DOUBLE_EQ(estimate.perplexity, std::exp(1.0));
  EXPECT_EQ(EstimatePerplexity({}).tokens, 0);
}

}  // namespace
}  // namespace stagecoach
