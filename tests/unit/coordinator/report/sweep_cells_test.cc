#include "coordinator/report/sweep_cells.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/report/synthetic_sweep.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> LabelsOf(const CellPointers& cells, const std::vector<SweepField>& along) {
  const CellLabels labels(cells, along);
  std::vector<std::string> texts;
  for (const SweepCell* cell : cells) texts.push_back(labels.Of(*cell));
  return texts;
}

TEST(SpreadOf, IsTheMedianWithTheEnds) {
  const Spread odd = SpreadOf({3, 1, 2}), even = SpreadOf({4, 1, 2, 3}), none = SpreadOf({std::nan("")});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.low, 1);
  EXPECT_EQ(odd.high, 3);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(none.count, 0);
}

TEST(SweepCells, JoinsTheRepetitionsOfAConfiguration) {
  const std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {4, 8}, .repetitions = 3});
  const std::vector<SweepCell> cells = SweepCells(points);
  ASSERT_EQ(cells.size(), 4u);
  for (const SweepCell& cell : cells) EXPECT_EQ(cell.runs.size(), 3u);
}

TEST(SweepCells, KeepsWhatWasSimulatedApart) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1});
  points.push_back(points[0]);
  points[1].simulated = true;
  EXPECT_EQ(SweepCells(points).size(), 2u);
}

TEST(SweepCells, TakesTheLastPointOfARepetition) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1});
  points.insert(points.begin(), points[0]);
  points[0].error = "it was lost";
  const std::vector<SweepCell> cells = SweepCells(points);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].runs.size(), 1u);
  EXPECT_TRUE(cells[0].failures.empty());
}

TEST(SweepCells, LearnsFromTheRunWhatWasLeftOpen) {
  std::vector<SweepPoint> points =
      SyntheticSweep({.stages = {2}, .threads = {3}, .concurrency = {4}, .repetitions = 1});
  points[0].config.stages = points[0].config.threads = 0;
  const std::vector<SweepCell> cells = SweepCells(points);
  EXPECT_EQ(cells[0].stages, 2);
  EXPECT_EQ(cells[0].threads, 3);
}

TEST(SweepCells, NamesModelsByTheirFileUnlessThatIsAmbiguous) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2, 4}, .concurrency = {4}, .repetitions = 1});
  points[0].config.model = "/a/m.gguf";
  points[1].config.model = "/b/m.gguf";
  points[2].config.model = "/b/other.gguf";
  const std::vector<SweepCell> cells = SweepCells(points);
  EXPECT_EQ(cells[0].model_name, "/a/m.gguf");
  EXPECT_EQ(cells[1].model_name, "/b/m.gguf");
  EXPECT_EQ(cells[2].model_name, "other.gguf");
  points[1].config.model = "dummy://qwen3-0.6b/q8_0";
  EXPECT_EQ(SweepCells(points)[1].model_name, "qwen3-0.6b/q8_0");
}

TEST(CellLabels, TellWhatDiffersAndWhatIsUnusual) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {4, 8}, .repetitions = 1});
  const std::vector<SweepPoint> other =
      SyntheticSweep({.stages = {2}, .concurrency = {8}, .policies = {Policy::kPrefillFirst}, .repetitions = 1});
  points.insert(points.end(), other.begin(), other.end());
  const std::vector<SweepCell> cells = SweepCells(points);
  EXPECT_THAT(LabelsOf(PointersTo(cells), {}),
              ElementsAre("1 stage, 4 at once", "1 stage, 8 at once", "2 stages, 4 at once", "2 stages, 8 at once",
                          "2 stages, 8 at once, policy prefill-first"));
  EXPECT_THAT(LabelsOf({&cells[3], &cells[4]}, {}), ElementsAre("policy decode-priority", "policy prefill-first"));
  EXPECT_THAT(UsualTexts(PointersTo(cells)), ElementsAre("policy decode-priority"));
}

TEST(CellLabels, SayWhatWasNotReal) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {2}, .concurrency = {8}, .repetitions = 1});
  for (const SyntheticMatrix& matrix :
       {SyntheticMatrix{.stages = {2}, .concurrency = {8}, .repetitions = 1, .link_latency_s = 0.002},
        SyntheticMatrix{.stages = {2}, .concurrency = {8}, .repetitions = 1, .simulated = true}}) {
    points.push_back(SyntheticSweep(matrix)[0]);
  }
  const std::vector<SweepCell> cells = SweepCells(points);
  EXPECT_THAT(LabelsOf(PointersTo(cells), {SweepField::kStages}),
              ElementsAre("real links, measured", "emulated links (2 ms)", "simulated"));
}

TEST(CellLabels, TellTheLoadOnce) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4, 8}, .repetitions = 1});
  points[1].config.arrivals = "poisson:2";
  points[1].config.concurrency = 0;
  const std::vector<SweepCell> cells = SweepCells(points);
  EXPECT_THAT(LabelsOf(PointersTo(cells), {}), ElementsAre("4 at once", "poisson:2 arrivals"));
}

TEST(GroupCells, IgnoresWhatFollowsTheFieldThatIsLookedAt) {
  // Here `max_num_seqs` and `requests` go with `concurrency`.
  const std::vector<SweepCell> cells =
      SweepCells(SyntheticSweep({.stages = {1, 2}, .concurrency = {4, 8, 16}, .repetitions = 1}));
  EXPECT_EQ(GroupCells(PointersTo(cells), {SweepField::kConcurrency}).size(), 2u);
  EXPECT_EQ(GroupCells(PointersTo(cells), {SweepField::kStages}).size(), 3u);
}

TEST(GroupCells, KeepsApartWhatWasVariedOnItsOwn) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4, 8}, .repetitions = 1});
  points.push_back(points[0]);
  points.back().config.max_num_seqs = 100;
  const std::vector<SweepCell> cells = SweepCells(points);
  EXPECT_EQ(GroupCells(PointersTo(cells), {SweepField::kConcurrency}).size(), 3u);
}

TEST(PredictionRatio, IsOfWhatThePredictionSpeaksOf) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {2}, .concurrency = {1, 8}, .repetitions = 2});
  for (SweepPoint& point : points) {
    point.prediction->output_tokens_per_s = 100;
    point.result.output_tokens_per_s = 80 + 20 * static_cast<double>(point.config.repetition);
  }
  const std::vector<SweepCell> cells = SweepCells(points);
  for (const PredictedQuantity& quantity : PredictedQuantities()) {
    const std::string id = quantity.id;
    if (id == "output-rate") {
      EXPECT_NEAR(RatioOf(cells[0], quantity)->ratio(), 0.9, 1e-12);
    }
    if (id == "ttft") {  // of a prompt alone
      EXPECT_TRUE(RatioOf(cells[0], quantity).has_value());
      EXPECT_FALSE(RatioOf(cells[1], quantity).has_value());
    }
    if (id == "prefill-rate") {
      EXPECT_FALSE(RatioOf(cells[0], quantity).has_value());
    }
  }
}

}  // namespace
}  // namespace stagecoach
