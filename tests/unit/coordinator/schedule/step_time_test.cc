#include "coordinator/schedule/policy/step_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "coordinator/schedule/policy/least_squares.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;

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

TEST(StepTimes, RememberTheLargestStepOfLate) {
  StepTimeFit fit;
  RowCostFit row_fit;
  const auto learn = [&](int64_t rows, int64_t us) {
    Learn(fit, rows, 0, static_cast<double>(us));
    row_fit.Add(rows, us);
  };
  learn(512, 9000);
  for (int i = 0; i < StepTimeFit::kMemory; ++i) learn(8, 2000);
  for (const double most_rows : {fit.time()->most_rows, row_fit.cost()->most_rows}) EXPECT_NEAR(most_rows, 256, 1);
  learn(300, 6000);
  for (const double most_rows : {fit.time()->most_rows, row_fit.cost()->most_rows}) EXPECT_EQ(most_rows, 300);
}

TEST(StepTimes, FollowWhatChanges) {
  StepTimeFit fit;
  RowCostFit row_fit;
  const auto learn = [&](int results, int64_t row_us) {
    for (int64_t i = 0; i < results; ++i) {
      const int64_t rows = 1 + i % 64;
      Learn(fit, rows, 0, static_cast<double>(5000 + row_us * rows));
      row_fit.Add(rows, 5000 + row_us * rows);
    }
  };
  learn(1000, 100);
  learn(static_cast<int>(8 * StepTimeFit::kMemory), 300);
  EXPECT_NEAR(fit.time()->Us(64, 0) - fit.time()->Us(1, 0), 63 * 300, 300);
  EXPECT_NEAR(row_fit.cost()->row_us, 300, 5);
}

TEST(StepTimeFit, IsNeverNegative) {
  StepTimeFit fit;
  for (int i = 0; i < 20; ++i) Learn(fit, 1 + i % 5, 0, 1000 - 100 * (i % 5));
  EXPECT_GE(fit.time()->Us(512, 1e6), fit.time()->Us(1, 0));
  EXPECT_GE(fit.time()->Us(0, 0), 0);
}

TEST(LeastSquares, FindsTheCoefficientsOfAStraightPlane) {
  LeastSquares<3> sums;
  for (int i = 0; i < 20; ++i) {
    const double x = i % 5, y = i % 3;
    sums.Add({1, x, y}, 7 + 2 * x + 0.5 * y);
  }
  EXPECT_THAT(sums.Solve({}), ElementsAre(DoubleNear(7, 1e-9), DoubleNear(2, 1e-9), DoubleNear(0.5, 1e-9)));
}

TEST(LeastSquares, LeavesOutWhatWouldBeNegativeAndFitsTheRestAnew) {
  LeastSquares<2> sums;
  for (int x = 0; x < 10; ++x) sums.Add({1, static_cast<double>(x)}, 10 - x);
  EXPECT_THAT(sums.Solve({}), ElementsAre(DoubleNear(5.5, 1e-9), 0)) << "the mean";
}

TEST(LeastSquares, DoubtDecidesWhatExplainsAValueWhereFeaturesNeverDiffer) {
  LeastSquares<2> sums;
  EXPECT_THAT(sums.Solve({}), Each(0));
  for (int i = 0; i < 50; ++i) sums.Add({1, 2}, 10);
  EXPECT_THAT(sums.Solve({0, 1}), ElementsAre(DoubleNear(10, 1e-9), DoubleNear(0, 1e-9)));
  EXPECT_THAT(sums.Solve({1e6, 0}), ElementsAre(DoubleNear(0, 1e-3), DoubleNear(5, 1e-3)));
}

TEST(ForgetfulFit, HalvesTheWeightOfWhatItSawInItsMemory) {
  ForgetfulFit<1> fit(/*memory=*/10, {0});
  for (int i = 0; i < 1000; ++i) fit.Add({1}, 8);
  for (int i = 0; i < 10; ++i) fit.Add({1}, 0);
  EXPECT_NEAR(fit.Solve()[0], 4, 1e-9);
  EXPECT_EQ(fit.seen(), 1010);
}

TEST(RowCost, FollowsTheExpertsThatStepsRead) {
  static constexpr ReadCurve kManyExperts = {.experts = 0.95, .chosen = 8.0 / 256};  // as of deepseek-v3
  const auto step_us = [](int64_t rows) {
    const auto of = static_cast<double>(rows);
    return 3000 + 700 * (kManyExperts.Of(of) - 1) + 20 * of;
  };
  RowCostFit experts(kManyExperts), line;
  for (int i = 0; i < 40; ++i) {
    for (const int64_t rows : {1, 3, 8, 64}) {
      experts.Add(rows, static_cast<int64_t>(step_us(rows)));
      line.Add(rows, static_cast<int64_t>(step_us(rows)));
    }
  }
  const auto says = [](const RowCostFit& fit, int64_t rows) {
    return fit.cost()->FixedUs(static_cast<double>(rows)) + fit.cost()->row_us * static_cast<double>(rows);
  };
  for (const int64_t rows : {2, 16, 32, 128, 512}) {
    EXPECT_NEAR(says(experts, rows) / step_us(rows), 1, 0.01) << rows;
  }
  EXPECT_GT(says(line, 512) / step_us(512), 3) << "what a line has of them";
  EXPECT_EQ(line.cost()->read_us, 0);
}

TEST(RowCost, IsFoundFromStepsOfDifferentSizes) {
  RowCostFit fit;
  for (int i = 0; i < StepTimeFit::kNeeded; ++i) {
    EXPECT_FALSE(fit.cost().has_value());
    const int64_t rows = i % 2 == 0 ? 4 : 260;
    fit.Add(rows, 9000 + 150 * rows);
  }
  ASSERT_TRUE(fit.cost().has_value());
  EXPECT_NEAR(fit.cost()->fixed_us, 9000, 100);
  EXPECT_NEAR(fit.cost()->row_us, 150, 1);
}

TEST(RowCost, IsTheRowsAloneWhileAllStepsHaveOneSize) {
  RowCostFit fit;
  for (int i = 0; i < 100; ++i) fit.Add(64, 6400);
  EXPECT_NEAR(fit.cost()->fixed_us, 0, 1);
  EXPECT_NEAR(fit.cost()->row_us, 100, 1);
}

TEST(RowCost, IsNeverNegative) {
  RowCostFit fit;
  for (int i = 0; i < 20; ++i) fit.Add(1 + i % 5, 1000 - 100 * (i % 5));
  EXPECT_GE(fit.cost()->fixed_us, 0);
  EXPECT_EQ(fit.cost()->row_us, 0);
  for (int i = 0; i < 20; ++i) fit.Add(1 + i % 5, 0);
  EXPECT_GE(fit.cost()->fixed_us, 0);
  EXPECT_GE(fit.cost()->row_us, 0);
}

}  // namespace
}  // namespace stagecoach
