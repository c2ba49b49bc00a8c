#include "coordinator/schedule/prefill_throttle.h"

#include "coordinator/schedule/row_cost.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

constexpr int64_t kMostRows = 512;

int64_t Rows(const PrefillThrottle::Load& load) { return PrefillThrottle(kMostRows, 0).Rows(load); }

TEST(PrefillThrottle, LimitsNothingWhileNobodyDecodes) {
  EXPECT_EQ(Rows({.waiting_rows = 1, .free_share = 0}), PrefillThrottle::kNoLimit);
  EXPECT_EQ(PrefillThrottle(kMostRows, 1).Rows({.waiting_rows = 1}), PrefillThrottle::kNoLimit)
      << "there is no gap to keep";
}

TEST(PrefillThrottle, SpreadsWhatWaitsOverEightMicroBatches) {
  EXPECT_EQ(Rows({.waiting_rows = 800, .decoding = true}), 100);
  EXPECT_EQ(Rows({.waiting_rows = 801, .decoding = true}), 101);
  EXPECT_EQ(Rows({.waiting_rows = 100000, .decoding = true}), kMostRows);
}

TEST(PrefillThrottle, FillsTheLastFreeBlocksSlowly) {
  const auto rows = [](double free_share) {
    return Rows({.waiting_rows = 100000, .free_share = free_share, .decoding = true});
  };
  EXPECT_EQ(rows(1), 512);
  EXPECT_EQ(rows(0.525), 256) << "half way between all and the reserve";
  EXPECT_EQ(rows(0.05), kThrottledLeastRows);
  EXPECT_EQ(rows(0), kThrottledLeastRows);
}

TEST(PrefillThrottle, NeverGivesLessThanTheLeastRows) {
  EXPECT_EQ(Rows({.waiting_rows = 0, .decoding = true}), kThrottledLeastRows);
  EXPECT_EQ(PrefillThrottle(8, 0).Rows({.waiting_rows = 1, .decoding = true}), kThrottledLeastRows)
      << "the chunk and the budget cut it, not this";
}

// The gap is 100 ms, of which each of two micro-batches may take 50; a step takes 10 ms and a row 1.
PrefillThrottle::Load Loaded(int64_t decode_rows) {
  return {.waiting_rows = 100000,
          .decoding = true,
          .decode_rows = decode_rows,
          .micro_batches = 2,
          .cost = RowCost{.fixed_us = 10000, .row_us = 1000}};
}

TEST(PrefillThrottle, KeepsTheGapThatIsWantedBetweenTwoTokens) {
  const PrefillThrottle throttle(kMostRows, 100000);
  EXPECT_EQ(throttle.Rows(Loaded(0)), 40);
  EXPECT_EQ(throttle.Rows(Loaded(4)), 36) << "decode rows take their part";
  EXPECT_EQ(throttle.Rows(Loaded(30)), kThrottledLeastRowsForGap);
  EXPECT_EQ(throttle.Rows(Loaded(1000)), kThrottledLeastRowsForGap);
  EXPECT_EQ(PrefillThrottle(kMostRows, 1000).Rows(Loaded(0)), kThrottledLeastRowsForGap)
      << "one that no step could keep";
  EXPECT_EQ(PrefillThrottle(kMostRows, 1e9).Rows(Loaded(4)), kMostRows);
}

TEST(PrefillThrottle, GivesTheLeastRowsBesideDecodeRowsUntilItKnowsWhatARowCosts) {
  PrefillThrottle::Load load = Loaded(4);
  load.cost.reset();
  EXPECT_EQ(PrefillThrottle(kMostRows, 100000).Rows(load), kThrottledLeastRowsForGap);
  load.cost = RowCost{.fixed_us = 10000, .row_us = 0};
  EXPECT_EQ(PrefillThrottle(kMostRows, 100000).Rows(load), kMostRows) << "rows that cost nothing";
}

// Of the weights of deepseek-v3 and the like.
constexpr ReadCurve kManyExperts = {.experts = 0.95, .chosen = 8.0 / 256};

TEST(PrefillThrottle, KeepsTheGapWhereRowsReadExpertsOfTheirOwn) {
  PrefillThrottle::Load load = Loaded(4);
  load.cost = RowCost{.fixed_us = 2000, .row_us = 100, .read_us = 1500, .reads = kManyExperts};
  const auto step_us = [&](int64_t rows) {
    const auto all = static_cast<double>(load.decode_rows + rows);
    return load.cost->FixedUs(all) + 100 * all;
  };
  for (const double gap_us : {30000.0, 60000.0, 90000.0, 150000.0}) {
    const int64_t rows = PrefillThrottle(kMostRows, gap_us).Rows(load);
    EXPECT_LE(step_us(rows), gap_us / 2) << gap_us;
    if (rows < kMostRows) {
      EXPECT_GT(step_us(rows + 1), gap_us / 2) << gap_us;
    }
  }
  EXPECT_EQ(PrefillThrottle(kMostRows, 1e9).Rows(load), kMostRows);
  load.cost->row_us = 0;
  EXPECT_EQ(PrefillThrottle(kMostRows, 200000).Rows(load), kMostRows) << "all experts are read by then";
}

TEST(RowCost, FollowsTheExpertsThatStepsRead) {
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

TEST(RowCost, RemembersTheLargestStepOfLate) {
  RowCostFit fit;
  fit.Add(512, 9000);
  for (int i = 0; i < RowCostFit::kMemory; ++i) fit.Add(8, 2000);
  EXPECT_NEAR(fit.cost()->most_rows, 256, 1);
  fit.Add(300, 6000);
  EXPECT_EQ(fit.cost()->most_rows, 300);
}

TEST(RowCost, IsFoundFromStepsOfDifferentSizes) {
  RowCostFit fit;
  for (int i = 0; i < RowCostFit::kNeeded; ++i) {
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

TEST(RowCost, FollowsWhatChanges) {
  RowCostFit fit;
  for (int i = 0; i < 1000; ++i) fit.Add(1 + i % 64, 5000 + 100 * (1 + i % 64));
  for (int i = 0; i < 8 * RowCostFit::kMemory; ++i) fit.Add(1 + i % 64, 5000 + 300 * (1 + i % 64));
  EXPECT_NEAR(fit.cost()->row_us, 300, 5);
}

}  // namespace
}  // namespace stagecoach
