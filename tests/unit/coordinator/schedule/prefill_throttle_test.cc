#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/job/job_choices.h"
#include "coordinator/schedule/chunk_planner.h"
#include "coordinator/schedule/policy/least_squares.h"
#include "coordinator/schedule/policy/step_time.h"
#include "coordinator/schedule/policy/throttled.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

using ::testing::DoubleNear;

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

constexpr int64_t kMost = 512;
constexpr double kPairUs = 0.02, kRowUs = 200, kStepUs = 3000;

MicroBatch Batch(const std::vector<std::pair<int32_t, int32_t>>& start_and_count) {
  MicroBatch batch;
  for (const auto& [start, count] : start_and_count) batch.slices.push_back({.start = start, .count = count});
  return batch;
}

int64_t TimeUs(const MicroBatch& batch) {
  double us = kStepUs;
  for (const SequenceSlice& slice : batch.slices) {
    us += kPairUs * slice.count * (slice.count + 2.0 * slice.start) + kRowUs * slice.count;
  }
  return std::llround(us);
}

// One prompt after the other, each cut as the planner says, as many rows as there are.
void Prefill(ChunkPlanner& planner, int64_t prompt) {
  for (int64_t row = 0; row < prompt;) {
    const int64_t rows = std::min(planner.Rows(row), prompt - row);
    const MicroBatch batch = Batch({{static_cast<int32_t>(row), static_cast<int32_t>(rows)}});
    planner.Add(batch, TimeUs(batch));
    row += rows;
  }
}

struct ChunkPlannerTest : ::testing::Test {
  ChunkPlanner planner{kMost};
};

TEST_F(ChunkPlannerTest, CutsConstantChunksUntilItKnowsWhatTheyCost) {
  for (int i = 0; i + 1 < ChunkPlanner::kNeeded; ++i) {
    const MicroBatch batch = Batch({{static_cast<int32_t>(i * kMost), kMost}});
    planner.Add(batch, TimeUs(batch));
    EXPECT_EQ(planner.Rows(100000), kMost);
  }
}

TEST_F(ChunkPlannerTest, MakesEveryChunkTakeAsLongAsTheFirst) {
  Prefill(planner, 20000);
  Prefill(planner, 20000);
  EXPECT_NEAR(planner.cost().value().attention_us, kPairUs, 1e-4);
  EXPECT_NEAR(planner.cost()->row_us, kRowUs, 1);
  EXPECT_EQ(planner.Rows(0), kMost);
  const double first_us = static_cast<double>(TimeUs(Batch({{0, kMost}})));
  int64_t before = kMost;
  for (int32_t history = 0; history < 20000; history += 1000) {
    const int64_t rows = planner.Rows(history);
    EXPECT_LE(rows, before) << "behind " << history;
    EXPECT_EQ(rows % ChunkPlanner::kStep, 0);
    before = rows;
    if (rows == kEqualTimeLeastRows) continue;
    const auto us = [history](int64_t count) {
      return static_cast<double>(TimeUs(Batch({{history, static_cast<int32_t>(count)}})));
    };
    EXPECT_LE(us(rows), first_us * 1.001) << rows << " rows behind " << history;
    EXPECT_GE(us(rows + ChunkPlanner::kStep), first_us * 0.999) << rows << " rows behind " << history;
  }
  EXPECT_LT(before, kMost / 2);
}

TEST_F(ChunkPlannerTest, LearnsFromOneLongPromptInChunksOfOneSizeThatTheyShouldShrink) {
  for (int32_t i = 0; i < 20; ++i) {
    const MicroBatch batch = Batch({{i * 512, 512}});
    planner.Add(batch, TimeUs(batch));
  }
  EXPECT_EQ(planner.Rows(0), kMost);
  EXPECT_LT(planner.Rows(10000), kMost);
  EXPECT_GE(TimeUs(Batch({{10000, static_cast<int32_t>(planner.Rows(10000))}})),
            TimeUs(Batch({{0, kMost}})) - static_cast<int64_t>(kStepUs))
      << "what it does not know keeps chunks large";
}

TEST_F(ChunkPlannerTest, TakesDecodeRowsAndFurtherChunksForWhatTheyAre) {
  for (int32_t i = 0; i < 200; ++i) {
    const int32_t history = i * 37 % 9000;
    const MicroBatch batch = Batch({{i, 1}, {3000 + i, 1}, {history, 100 + i % 300}, {0, 1 + i % 90}});
    planner.Add(batch, TimeUs(batch));
  }
  EXPECT_NEAR(planner.cost()->attention_us, kPairUs, 1e-3);
  EXPECT_NEAR(planner.cost()->row_us, kRowUs, 3);
}

TEST_F(ChunkPlannerTest, LearnsNothingFromDecodeRowsAlone) {
  for (int i = 0; i < 100; ++i) planner.Add(Batch({{i, 1}, {i, 1}}), 5000);
  EXPECT_FALSE(planner.cost().has_value());
}

TEST_F(ChunkPlannerTest, StaysInItsBoundsWhateverTheTimesAre) {
  for (const int64_t most : {1, 40, 64, 100, 512, 65536}) {
    ChunkPlanner planner(most);
    for (int32_t i = 0; i < 50; ++i) {
      const auto count = static_cast<int32_t>(std::max<int64_t>(2, most));
      planner.Add(Batch({{i * count, count}}), i % 3 == 0 ? INT64_MAX / 4 : i % 3);
      for (const int64_t history : {int64_t{0}, int64_t{1000}, int64_t{INT32_MAX}}) {
        EXPECT_LE(planner.Rows(history), most);
        EXPECT_GE(planner.Rows(history), std::min<int64_t>(most, kEqualTimeLeastRows));
      }
    }
  }
}

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
    EXPECT_NEAR(fit.time()->Us(rows, AttentionPairs(rows, 4096)) / step_us(rows, 4096), 1, 0.05) << rows;
  }
}

// The last of many stages: a layer of 4 ms for a prompt's chunk, and a head of 8 ms where anybody decodes.
TEST(StepTimeFit, TellsTheOutputHeadFromWhatEveryStepTakes) {
  const auto step_us = [](double rows, bool decodes) { return 500 + 60 * rows + (decodes ? 8000 : 0); };
  StepTimeFit fit;
  for (int i = 0; i < 100; ++i) {
    const int64_t prompt = 40 + i % 20, decode = i % 2;
    fit.Add(prompt + decode, 0, std::llround(step_us(static_cast<double>(prompt + decode), decode > 0)), decode);
  }
  for (const double rows : {40.0, 48.0, 59.0}) {
    EXPECT_NEAR(fit.time()->Us(rows, 0, 0) / step_us(rows, false), 1, 0.1) << rows;
    EXPECT_NEAR(fit.time()->Us(rows, 0, 1) / step_us(rows, true), 1, 0.1) << rows;
  }
}

TEST(StepTimeFit, TakesWhatAllStepsHaveForNoHeadsShare) {
  StepTimeFit fit;
  for (int i = 0; i < 100; ++i) fit.Add(1 + i % 8, 0, 9000, 1);
  EXPECT_NEAR(fit.time()->Us(4, 0, 0), 9000, 200) << "a prompt's step may take as long";
}

TEST(DerivedGap, CountsTheHeadAmongWhatADecodeStepTakes) {
  StepTimeModel time{.fixed_us = 500, .row_us = {60}, .head_us = 8000, .most_rows = kSeenAll};
  const PrefillThrottle::Load load = {.waiting_rows = 100000,
                                      .decoding = true,
                                      .decode_rows = 4,
                                      .step_rows = 4,
                                      .micro_batches = 64,
                                      .shortest_us = 1e12,
                                      .time = time};
  // Four decode steps of 8.74 ms each, of which 0.8 are aimed at: 27.97 ms a step.
  EXPECT_EQ(PrefillThrottle(kMostRows, 0).Rows(load), 320);
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
  EXPECT_THAT(sums.Solve({}), ::testing::Each(0));
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
  EXPECT_NEAR(fit.cost().value().fixed_us, 9000, 100);
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
