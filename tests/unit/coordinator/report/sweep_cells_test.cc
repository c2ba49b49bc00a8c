#include "coordinator/report/sweep_cells.h"

#include <cmath>

#include "coordinator/report/report_figure.h"
#include "tests/testing/matchers.h"
#include "tests/testing/report/synthetic_sweep.h"

namespace stagecoach {
namespace {

std::vector<SweepCell> CellsIn(const std::vector<SweepPoint>& points) { return SweepCells({{"", "", points}}); }

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
  const std::vector<SweepCell> cells = CellsIn(points);
  ASSERT_EQ(cells.size(), 4u);
  for (const SweepCell& cell : cells) EXPECT_EQ(cell.runs.size(), 3u);
}

TEST(SweepCells, KeepsWhatWasSimulatedApart) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1});
  points.push_back(points[0]);
  points[1].simulated = true;
  EXPECT_EQ(CellsIn(points).size(), 2u);
}

TEST(SweepCells, TakesTheLastPointOfARepetition) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1});
  points.insert(points.begin(), points[0]);
  points[0].error = "it was lost";
  const std::vector<SweepCell> cells = CellsIn(points);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].runs.size(), 1u);
  EXPECT_TRUE(cells[0].failures.empty());
}

TEST(SweepCells, LearnsFromTheRunWhatWasLeftOpen) {
  std::vector<SweepPoint> points =
      SyntheticSweep({.stages = {2}, .threads = {3}, .concurrency = {4}, .repetitions = 1});
  points[0].config.stages = points[0].config.threads = 0;
  const std::vector<SweepCell> cells = CellsIn(points);
  EXPECT_EQ(cells[0].stages, 2);
  EXPECT_EQ(cells[0].threads, 3);
}

TEST(SweepCells, NamesModelsByTheirFileUnlessThatIsAmbiguous) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2, 4}, .concurrency = {4}, .repetitions = 1});
  points[0].config.model = "/a/m.gguf";
  points[1].config.model = "/b/m.gguf";
  points[2].config.model = "/b/other.gguf";
  const std::vector<SweepCell> cells = CellsIn(points);
  EXPECT_EQ(cells[0].model_name, "/a/m.gguf");
  EXPECT_EQ(cells[1].model_name, "/b/m.gguf");
  EXPECT_EQ(cells[2].model_name, "other.gguf");
  points[1].config.model = "dummy://qwen3-0.6b/q8_0";
  EXPECT_EQ(CellsIn(points)[1].model_name, "qwen3-0.6b/q8_0");
}

TEST(CellLabels, TellWhatDiffersAndWhatIsUnusual) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {4, 8}, .repetitions = 1});
  const std::vector<SweepPoint> other =
      SyntheticSweep({.stages = {2}, .concurrency = {8}, .policies = {Policy::kPrefillFirst}, .repetitions = 1});
  points.insert(points.end(), other.begin(), other.end());
  const std::vector<SweepCell> cells = CellsIn(points);
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
  EXPECT_THAT(LabelsOf(PointersTo(CellsIn(points)), {SweepField::kStages}),
              ElementsAre("real links, measured", "emulated links (2 ms)", "simulated"));
}

TEST(CellLabels, TellTheLoadOnce) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4, 8}, .repetitions = 1});
  points[1].config.arrivals = "poisson:2";
  points[1].config.concurrency = 0;
  EXPECT_THAT(LabelsOf(PointersTo(CellsIn(points)), {}), ElementsAre("4 at once", "poisson:2 arrivals"));
}

TEST(GroupCells, IgnoresWhatFollowsTheFieldThatIsLookedAt) {
  // Here `max_num_seqs` and `requests` go with `concurrency`.
  const std::vector<SweepCell> cells =
      CellsIn(SyntheticSweep({.stages = {1, 2}, .concurrency = {4, 8, 16}, .repetitions = 1}));
  EXPECT_EQ(GroupCells(PointersTo(cells), {SweepField::kConcurrency}).size(), 2u);
  EXPECT_EQ(GroupCells(PointersTo(cells), {SweepField::kStages}).size(), 3u);
}

TEST(GroupCells, KeepsApartWhatWasVariedOnItsOwn) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4, 8}, .repetitions = 1});
  points.push_back(points[0]);
  points.back().config.max_num_seqs = 100;
  EXPECT_EQ(GroupCells(PointersTo(CellsIn(points)), {SweepField::kConcurrency}).size(), 3u);
}

// Makes a point one of another world.
struct OtherWorld {
  const char* name;
  void (*set)(SweepPoint* point);
};
constexpr OtherWorld kOtherWorlds[] = {
    {"version", [](SweepPoint* point) { point->config.program_version = "0.0.9"; }},
    {"machine", [](SweepPoint* point) { point->config.machine = "another processor"; }},
    {"model file", [](SweepPoint* point) { point->config.header_hash = "0123456789abcdef"; }},
    {"arrivals file", [](SweepPoint* point) { point->config.arrivals_hash = "0123456789abcdef"; }},
    {"hosts", [](SweepPoint* point) { point->config.hosts = "far:2"; }},
    {"layers",
     [](SweepPoint* point) {
       point->config.layer_split = {20, 8};
     }},
    {"cluster", [](SweepPoint* point) { point->config.cluster = "cluster slow.json"; }},
    {"cluster's hosts", [](SweepPoint* point) { point->config.cluster_hash = "0123456789abcdef"; }},
    {"world", [](SweepPoint* point) { point->config.world = "wake 50 us"; }}};

// A world that happens to go with a chunk is no effect of the chunk.
TEST(GroupCells, ComparesNoChoiceAcrossTwoWorlds) {
  for (const OtherWorld& other : kOtherWorlds) {
    std::vector<SweepPoint> points =
        SyntheticSweep({.stages = {2}, .concurrency = {8}, .chunks = {64, 512}, .repetitions = 1});
    EXPECT_EQ(GroupCells(PointersTo(CellsIn(points)), {SweepField::kPrefillChunk}).size(), 1u);
    other.set(&points[1]);
    const std::vector<SweepCell> cells = CellsIn(points);
    EXPECT_EQ(GroupCells(PointersTo(cells), {SweepField::kPrefillChunk}).size(), 2u) << other.name;
    EXPECT_THAT(ChoiceFigures(PointersTo(cells)), IsEmpty()) << other.name;
    const std::vector<std::string> labels = LabelsOf(PointersTo(cells), {SweepField::kPrefillChunk});
    EXPECT_NE(labels[0], labels[1]) << other.name << ": the label tells it";
  }
}

TEST(GroupCells, DrawsNoLineOverStagesThroughTwoWorlds) {
  for (const OtherWorld& other : kOtherWorlds) {
    std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {8}, .repetitions = 1});
    other.set(&points[1]);
    // Which hosts and which layers is what a number of stages is about.
    const std::string name = other.name;
    const size_t lines = name == "hosts" || name == "layers" ? 1 : 2;
    const std::vector<SweepCell> cells = CellsIn(points);
    EXPECT_EQ(GroupCells(PointersTo(cells), {SweepField::kStages}).size(), lines) << name;
    const std::vector<std::string> labels = LabelsOf(PointersTo(cells), {SweepField::kStages});
    EXPECT_EQ(labels[0] == labels[1], lines == 1) << name;
  }
}

// Directories are compared whatever world each of them is of, and models with the file that each of them has.
TEST(GroupCells, ComparesSeriesOfDifferentWorlds) {
  for (const OtherWorld& other : kOtherWorlds) {
    const std::vector<SweepPoint> before = SyntheticSweep({.stages = {2}, .concurrency = {8}, .repetitions = 1});
    std::vector<SweepPoint> after = before;
    other.set(&after[0]);
    const std::vector<SweepCell> cells = SweepCells({{"before", "", before}, {"after", "", after}});
    EXPECT_EQ(GroupCells(PointersTo(cells), {SweepField::kSeries}).size(), 1u) << other.name;
    EXPECT_THAT(LabelsOf(PointersTo(cells), {}), ElementsAre("before", "after")) << other.name;
  }
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {2}, .concurrency = {8}, .repetitions = 1});
  points.push_back(points[0]);
  points[1].config.model = "/models/other.gguf";
  points[1].config.header_hash = "0123456789abcdef";
  EXPECT_EQ(GroupCells(PointersTo(CellsIn(points)), {SweepField::kModel}).size(), 1u);
}

TEST(PredictionRatio, IsOfWhatThePredictionSpeaksOf) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {2}, .concurrency = {1, 8}, .repetitions = 2});
  for (SweepPoint& point : points) {
    point.prediction->output_tokens_per_s = 100;
    point.result.output_tokens_per_s = 80 + 20 * static_cast<double>(point.config.repetition);
  }
  std::vector<SweepPoint> open = points;
  for (SweepPoint& point : open) point.config.arrivals = "poisson:1";
  const std::vector<SweepCell> cells = CellsIn(points), open_cells = CellsIn(open);
  for (const PredictedQuantity& quantity : PredictedQuantities()) {
    const std::string id = quantity.id;
    if (id == "output-rate") {
      EXPECT_NEAR(RatioOf(cells[0], quantity)->ratio(), 0.9, 1e-12);
    }
    if (id == "ttft") {  // of a prompt alone
      EXPECT_TRUE(RatioOf(cells[0], quantity).has_value());
      EXPECT_FALSE(RatioOf(cells[1], quantity).has_value());
    }
    if (id == "itl") {  // of so many sequences at once
      EXPECT_TRUE(RatioOf(cells[1], quantity).has_value());
      EXPECT_FALSE(RatioOf(open_cells[1], quantity).has_value());
    }
    if (id == "prefill-rate") {
      EXPECT_FALSE(RatioOf(cells[0], quantity).has_value());
    }
  }
}

}  // namespace
}  // namespace stagecoach
