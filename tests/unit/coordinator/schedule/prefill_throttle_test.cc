#include <algorithm>
#include <vector>

#include "coordinator/schedule/policy/step_time.h"
#include "coordinator/schedule/policy/throttled.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMostRows = 512;
constexpr double kSeenAll = 2 * kMostRows;  // rows of a step of late

// Rows cost next to nothing, so that only the queue and the free blocks count.
int64_t Rows(PrefillThrottle::Load load) {
  load.time = StepTimeModel{.row_us = {1}, .most_rows = kSeenAll};
  return PrefillThrottle(kMostRows, 0).Rows(load);
}

TEST(PrefillThrottle, LimitsNothingWhileNobodyDecodes) {
  EXPECT_EQ(Rows({.waiting_rows = 1, .free_share = 0}), kAllRows);
  EXPECT_EQ(PrefillThrottle(kMostRows, 1).Rows({.waiting_rows = 1}), kAllRows) << "there is no gap to keep";
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
  const PrefillThrottle::Load load = {
      .waiting_rows = 1, .decoding = true, .time = StepTimeModel{.row_us = {1}, .most_rows = kSeenAll}};
  EXPECT_EQ(PrefillThrottle(8, 0).Rows(load), kThrottledLeastRows) << "the chunk and the budget cut it, not this";
}

// The gap is 100 ms, of which each of two micro-batches may take 50; a step takes 10 ms and a row 1.
PrefillThrottle::Load Loaded(int64_t decode_rows) {
  return {.waiting_rows = 100000,
          .decoding = true,
          .decode_rows = decode_rows,
          .step_rows = std::max<int64_t>(decode_rows, 1),
          .micro_batches = 2,
          .shortest_us = 1e9,
          .time = StepTimeModel{.fixed_us = 10000, .row_us = {1000}, .most_rows = kSeenAll}};
}

TEST(PrefillThrottle, KeepsTheGapThatIsWantedBetweenTwoTokens) {
  const PrefillThrottle throttle(kMostRows, 100000);
  EXPECT_EQ(throttle.Rows(Loaded(0)), 40);
  EXPECT_EQ(throttle.Rows(Loaded(4)), 36) << "decode rows take their part";
  EXPECT_EQ(throttle.Rows(Loaded(30)), kThrottledLeastRows);
  EXPECT_EQ(throttle.Rows(Loaded(1000)), kThrottledLeastRows);
  EXPECT_EQ(PrefillThrottle(kMostRows, 1000).Rows(Loaded(0)), kThrottledLeastRows) << "one that no step could keep";
  EXPECT_EQ(PrefillThrottle(kMostRows, 1e9).Rows(Loaded(4)), kMostRows);
}

TEST(PrefillThrottle, GivesTheLeastRowsBesideDecodeRowsUntilItKnowsWhatARowCosts) {
  for (const double gap_us : {0.0, 100000.0}) {
    PrefillThrottle::Load load = Loaded(4);
    load.time.reset();
    EXPECT_EQ(PrefillThrottle(kMostRows, gap_us).Rows(load), kThrottledLeastRows);
    load.time = StepTimeModel{.fixed_us = 10000, .most_rows = kSeenAll};
    EXPECT_EQ(PrefillThrottle(kMostRows, gap_us).Rows(load), kMostRows) << "rows that cost nothing";
  }
}

TEST(PrefillThrottle, TakesRowsThatWereNotSeenYetToCostWhatThoseDidThatWere) {
  PrefillThrottle::Load load = Loaded(4);
  load.time = StepTimeModel{.fixed_us = 10000, .most_rows = 50};
  EXPECT_EQ(PrefillThrottle(kMostRows, 100000).Rows(load), 246) << "250 rows in the time of 5 steps of 50";
  load.time->most_rows = 4;
  EXPECT_EQ(PrefillThrottle(kMostRows, 100000).Rows(load), kThrottledLeastRows);
  EXPECT_EQ(PrefillThrottle(kMostRows, 0).Rows(load), 36) << "of 100 ms";
  load.micro_batches = 100;
  EXPECT_EQ(PrefillThrottle(kMostRows, 0).Rows(load), 24)
      << "with half of the rate in view, half as many again as seen";
}

// The second of two long steps after short ones waits for the first at every stage.
TEST(PrefillThrottle, LengthensStepsLittleByLittleAfterShortOnes) {
  PrefillThrottle::Load load = Loaded(0);
  const PrefillThrottle throttle(kMostRows, 100000);
  std::vector<int64_t> rows;
  load.shortest_us = 10000;
  for (int step = 0; step < 5; ++step) {
    rows.push_back(throttle.Rows(load));
    load.shortest_us = load.time->Us(static_cast<double>(rows.back()), 0);
  }
  EXPECT_THAT(rows, ElementsAre(23, 29, 36, 40, 40)) << "a third of the gap, a fifth more than before, half of the gap";
  load.micro_batches = 1;
  load.shortest_us = 10000;
  EXPECT_EQ(throttle.Rows(load), 90) << "with one in flight nothing waits";
}

TEST(PrefillThrottle, GivesFewerRowsTheMoreAreBeforeThem) {
  PrefillThrottle::Load load = Loaded(0);
  load.time->pair_us = 0.05;
  int64_t before = kMostRows;
  for (const int64_t history : {0, 1024, 2048, 4096}) {
    load.history = history;
    const int64_t rows = PrefillThrottle(kMostRows, 200000).Rows(load);
    const double us = load.time->Us(static_cast<double>(rows), AttentionPairs(rows, history));
    EXPECT_LE(us, 100000) << history;
    EXPECT_GT(us, 97000) << history;
    EXPECT_LT(rows, before) << history;
    before = rows;
  }
}

TEST(PrefillThrottle, GivesAtLeastAsManyRowsAsAreWorthWhatAStepTakesForNone) {
  PrefillThrottle::Load load = Loaded(4);
  load.waiting_rows = 80;
  const auto rate = [&](int64_t rows) {
    const auto of = static_cast<double>(rows);
    return of / load.time->Us(of, 0);
  };
  for (const double gap_us : {0.0, 1e9}) {
    const int64_t rows = PrefillThrottle(kMostRows, gap_us).Rows(load);
    EXPECT_GE(rate(rows), 0.8 * rate(kMostRows)) << "in place of an eighth of them";
    EXPECT_LT(rate(rows - 1), 0.8 * rate(kMostRows));
  }
  EXPECT_EQ(PrefillThrottle(kMostRows, 60000).Rows(load), kThrottledLeastRows) << "where the gap leaves room for them";
}

// Of the weights of deepseek-v3 and the like.
constexpr ReadCurve kManyExperts = {.experts = 0.95, .chosen = 8.0 / 256};

TEST(PrefillThrottle, KeepsTheGapWhereRowsReadExpertsOfTheirOwn) {
  PrefillThrottle::Load load = Loaded(4);
  load.time =
      StepTimeModel{.fixed_us = 2000, .read_us = 1500, .row_us = {100}, .reads = kManyExperts, .most_rows = kSeenAll};
  const auto step_us = [&](int64_t rows) { return load.time->Us(static_cast<double>(load.decode_rows + rows), 0); };
  for (const double gap_us : {30000.0, 60000.0, 90000.0, 150000.0}) {
    const int64_t rows = PrefillThrottle(kMostRows, gap_us).Rows(load);
    EXPECT_LE(step_us(rows), gap_us / 2) << gap_us;
    if (rows < kMostRows) {
      EXPECT_GT(step_us(rows + 1), gap_us / 2) << gap_us;
    }
  }
  EXPECT_EQ(PrefillThrottle(kMostRows, 1e9).Rows(load), kMostRows);
  load.time->row_us = {};
  EXPECT_EQ(PrefillThrottle(kMostRows, 200000).Rows(load), kMostRows) << "all experts are read by then";
}

// Of a micro-batch of late: what the derived gap makes of it.
struct Derived {
  int64_t rows = 0;
  double gap_ms = 0;
  double rate = 0;  // over the best of any chunk of up to kMostRows
};

Derived Derive(const StepTimeModel& time, int64_t decode_rows, int32_t micro_batches) {
  const PrefillThrottle::Load load = {.waiting_rows = 100000,
                                      .decoding = true,
                                      .decode_rows = decode_rows,
                                      .step_rows = decode_rows,
                                      .micro_batches = micro_batches,
                                      .shortest_us = 1e12,
                                      .time = time};
  const auto step_us = [&](int64_t rows) { return time.Us(static_cast<double>(decode_rows + rows), 0); };
  double best = 0;
  for (int64_t rows = 1; rows <= kMostRows; ++rows) best = std::max(best, static_cast<double>(rows) / step_us(rows));
  const int64_t rows = PrefillThrottle(kMostRows, 0).Rows(load);
  return {rows, micro_batches * step_us(rows) / 1000, static_cast<double>(rows) / step_us(rows) / best};
}

StepTimeModel Dense(double fixed_ms, double row_ms) {
  return {.fixed_us = 1000 * fixed_ms, .row_us = {1000 * row_ms}, .most_rows = kSeenAll};
}

TEST(DerivedGap, IsAQuarterOfASecondWhereAlmostTheWholeRateFitsIntoIt) {
  // Half of a Qwen3-0.6B on each of two cores.
  const Derived two_stages = Derive(Dense(9.5, 0.86), 4, 2);
  EXPECT_LE(two_stages.gap_ms, 250);
  EXPECT_GT(two_stages.gap_ms, 195);
  EXPECT_GE(two_stages.rate, 0.8);
  const Derived one_stage = Derive(Dense(19, 1.72), 8, 1);
  EXPECT_LE(one_stage.gap_ms, 250);
  EXPECT_GE(one_stage.rate, 0.8);
  EXPECT_EQ(Derive(Dense(1, 0.05), 8, 2).rows, kMostRows) << "chunks that are no longer";
}

TEST(DerivedGap, IsFourDecodeStepsWhereTheseAreLonger) {
  // An 8B in Q8_0 at 40 GB/s.
  const StepTimeModel slow = Dense(200, 10);
  for (const int32_t micro_batches : {1, 4}) {
    const Derived derived = Derive(slow, 1, micro_batches);
    EXPECT_LE(derived.gap_ms, 4 * micro_batches * 210);
    EXPECT_GT(derived.gap_ms, 3.1 * micro_batches * 210);
    EXPECT_GE(derived.rate, 0.5);
    EXPECT_LT(derived.rate, 0.8) << "the rate yields to the gap";
  }
}

TEST(DerivedGap, GrowsWhereHalfOfTheRateDoesNotFitIntoIt) {
  constexpr ReadCurve kExperts = {.experts = 0.95, .chosen = 8.0 / 128};
  const auto time = [&](double read_ms) {
    return StepTimeModel{.fixed_us = 1000 * read_ms,
                         .read_us = 1000 * read_ms,
                         .row_us = {50 * read_ms},
                         .reads = kExperts,
                         .most_rows = kSeenAll};
  };
  const Derived small = Derive(time(5), 1, 1);
  EXPECT_LE(small.gap_ms, 250);
  EXPECT_GE(small.rate, 0.8) << "experts of which a step reads all within the gap";
  const Derived many_decode = Derive(time(40), 8, 1);
  EXPECT_LE(many_decode.gap_ms, 4 * time(40).Us(8, 0) / 1000) << "they read many of the experts themselves";
  EXPECT_GE(many_decode.rate, 0.5);
  const Derived one_decodes = Derive(time(40), 1, 1);
  EXPECT_GT(one_decodes.gap_ms, 250);
  EXPECT_GE(one_decodes.rate, 0.5);
  EXPECT_LT(one_decodes.rate, 0.51) << "no longer than half of the rate takes";
}

}  // namespace
}  // namespace stagecoach
