#include "coordinator/schedule/step_time.h"

#include <algorithm>
#include <cstdint>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

void Learn(StepTimeFit& fit, int64_t rows, int64_t history, double us) {
  fit.Add(rows, AttentionPairs(static_cast<double>(rows), static_cast<double>(history)), static_cast<int64_t>(us));
}

TEST(StepTimeFit, IsUnknownBeforeSoManyResults) {
  StepTimeFit fit;
  for (int i = 0; i < StepTimeFit::kNeeded; ++i) {
    EXPECT_FALSE(fit.time().has_value());
    Learn(fit, 1 + i, 0, 1000);
  }
  EXPECT_TRUE(fit.time().has_value());
}

TEST(StepTimeFit, TellsAttentionFromTheRestOfARowsWork) {
  const auto step_us = [](double rows, double history) {
    return 9000 + 800 * rows + 0.1 * AttentionPairs(rows, history);
  };
  StepTimeFit fit;
  for (int chunk = 0; chunk < 32; ++chunk) {
    Learn(fit, 128, 128 * chunk, step_us(128, 128 * chunk));
    Learn(fit, 4, 0, step_us(4, 0));
  }
  for (const double rows : {4.0, 128.0, 512.0}) {
    const double us = fit.time()->Us(rows, AttentionPairs(rows, 4096));
    EXPECT_NEAR(us / step_us(rows, 4096), 1, 0.05) << rows;
  }
}

// A step reads what its rows choose, and while it does they are computed: with 115 rows and more that takes longer.
TEST(StepTimeFit, FollowsReadingThatHidesTheWorkOfRows) {
  const ReadCurve experts = {.experts = 0.95, .chosen = 8.0 / 128};
  const auto step_us = [&](double rows) { return 500 + std::max(20000 * experts.Of(rows), 1600 * rows); };
  StepTimeFit fit(experts);
  for (int i = 0; i < 100; ++i) Learn(fit, 4, 0, step_us(4));
  for (const int64_t rows : {128, 159, 158, 96, 93, 76, 60, 58, 60, 61}) Learn(fit, rows, 0, step_us(rows));
  for (const double rows : {4.0, 40.0, 60.0, 96.0, 160.0, 256.0}) {
    EXPECT_NEAR(fit.time()->Us(rows, 0) / step_us(rows), 1, 0.06) << rows;
  }
}

TEST(StepTimeFit, OfMoreRowsThanWereSeenIsAtMostAsMuchARow) {
  StepTimeFit fit;
  for (int i = 0; i < 20; ++i) Learn(fit, 4 + i % 2, 0, 25000);
  EXPECT_NEAR(fit.time()->most_rows, 5, 0.1);
  EXPECT_NEAR(fit.time()->Us(80, 0), 25000, 3000) << "rows that seem to cost nothing";
  EXPECT_NEAR(fit.time()->MostUs(80, 0), 16 * 25000, 8000);
  EXPECT_EQ(fit.time()->MostUs(4, 0), fit.time()->Us(4, 0));
}

TEST(StepTimeFit, RemembersTheLargestStepOfLate) {
  StepTimeFit fit;
  Learn(fit, 512, 0, 9000);
  for (int i = 0; i < StepTimeFit::kMemory; ++i) Learn(fit, 8, 0, 2000);
  EXPECT_NEAR(fit.time()->most_rows, 256, 1);
  Learn(fit, 300, 0, 6000);
  EXPECT_EQ(fit.time()->most_rows, 300);
}

TEST(StepTimeFit, FollowsWhatChanges) {
  StepTimeFit fit;
  for (int i = 0; i < 1000; ++i) Learn(fit, 1 + i % 64, 0, 5000 + 100 * (1 + i % 64));
  for (int i = 0; i < 8 * StepTimeFit::kMemory; ++i) Learn(fit, 1 + i % 64, 0, 5000 + 300 * (1 + i % 64));
  EXPECT_NEAR(fit.time()->Us(64, 0) - fit.time()->Us(1, 0), 63 * 300, 300);
}

TEST(StepTimeFit, IsNeverNegative) {
  StepTimeFit fit;
  for (int i = 0; i < 20; ++i) Learn(fit, 1 + i % 5, 0, 1000 - 100 * (i % 5));
  EXPECT_GE(fit.time()->Us(512, 1e6), fit.time()->Us(1, 0));
  EXPECT_GE(fit.time()->Us(0, 0), 0);
}

}  // namespace
}  // namespace stagecoach
