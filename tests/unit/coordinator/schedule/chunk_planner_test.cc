#include "coordinator/schedule/chunk_planner.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/job/job_choices.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

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

TEST(ChunkPlanner, CutsConstantChunksUntilItKnowsWhatTheyCost) {
  ChunkPlanner planner(kMost);
  for (int i = 0; i + 1 < ChunkPlanner::kNeeded; ++i) {
    const MicroBatch batch = Batch({{static_cast<int32_t>(i * kMost), kMost}});
    planner.Add(batch, TimeUs(batch));
    EXPECT_EQ(planner.Rows(100000), kMost);
  }
}

TEST(ChunkPlanner, MakesEveryChunkTakeAsLongAsTheFirst) {
  ChunkPlanner planner(kMost);
  Prefill(planner, 20000);
  Prefill(planner, 20000);
  ASSERT_TRUE(planner.cost().has_value());
  EXPECT_NEAR(planner.cost()->attention_us, kPairUs, 1e-4);
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

TEST(ChunkPlanner, LearnsFromOneLongPromptInChunksOfOneSizeThatTheyShouldShrink) {
  ChunkPlanner planner(kMost);
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

TEST(ChunkPlanner, TakesDecodeRowsAndFurtherChunksForWhatTheyAre) {
  ChunkPlanner planner(kMost);
  for (int32_t i = 0; i < 200; ++i) {
    const int32_t history = i * 37 % 9000;
    const MicroBatch batch = Batch({{i, 1}, {3000 + i, 1}, {history, 100 + i % 300}, {0, 1 + i % 90}});
    planner.Add(batch, TimeUs(batch));
  }
  EXPECT_NEAR(planner.cost()->attention_us, kPairUs, 1e-3);
  EXPECT_NEAR(planner.cost()->row_us, kRowUs, 3);
}

TEST(ChunkPlanner, LearnsNothingFromDecodeRowsAlone) {
  ChunkPlanner planner(kMost);
  for (int i = 0; i < 100; ++i) planner.Add(Batch({{i, 1}, {i, 1}}), 5000);
  EXPECT_FALSE(planner.cost().has_value());
}

TEST(ChunkPlanner, StaysInItsBoundsWhateverTheTimesAre) {
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

}  // namespace
}  // namespace stagecoach
