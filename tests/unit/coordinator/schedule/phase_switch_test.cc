#include <cmath>

#include "coordinator/schedule/policy/phases.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

// Four stages, half of the 64 sequences ended.
PhaseLoad HalfEmpty() {
  return {.running = 32,
          .admissible = 32,
          .admissible_rows = 32 * 200,
          .budget_rows = 512,
          .groups = 4,
          .stages = 4,
          .cost = RowCost{.fixed_us = 1600, .row_us = 100}};
}

TEST(PhaseSwitch, IntensitiesAreThoseOfTheFormula) {
  EXPECT_NEAR(DecodeIntensity(HalfEmpty()), 8.0 / 24 / (16.0 / 32), 1e-9);
  EXPECT_EQ(PhaseStepRows(HalfEmpty()), 184);  // the root of 16 * 6400 / 3
  EXPECT_NEAR(PrefillIntensity(HalfEmpty()), 1 - 3 * (184 - 16.0) / (6400 + 16 * 35 + 3 * (184 + 16)), 1e-9);
}

TEST(PhaseSwitch, StepsShrinkAsRowsRunOut) {
  PhaseLoad load = HalfEmpty();
  int64_t before = load.budget_rows;
  for (const int64_t rows : {1 << 30, 100000, 10000, 1000, 1}) {
    load.admissible_rows = rows;
    EXPECT_LE(PhaseStepRows(load), before);
    before = PhaseStepRows(load);
  }
  EXPECT_EQ(before, 64);
  load.budget_rows = 7;
  EXPECT_EQ(PhaseStepRows(load), 7);
  load.stages = 1;
  load.budget_rows = 512;
  EXPECT_EQ(PhaseStepRows(load), 512) << "there is no pipeline to fill";
}

TEST(PhaseSwitch, PromptsGetTheirPhaseAtOnceWhenNothingRuns) {
  PhaseLoad load = HalfEmpty();
  load.running = 0;
  load.admissible = load.admissible_rows = 1;
  EXPECT_TRUE(PrefillPays(load));
  load.cost = RowCost{.fixed_us = 0, .row_us = 0};
  EXPECT_TRUE(PrefillPays(load));
}

TEST(PhaseSwitch, OneFreePlaceIsNotWorthTheBubbleAndManyAre) {
  PhaseLoad load = HalfEmpty();
  load.running = 63;
  load.admissible = 1;
  load.admissible_rows = 200;
  EXPECT_FALSE(PrefillPays(load));
  EXPECT_TRUE(PrefillPays(HalfEmpty()));
}

TEST(PhaseSwitch, WithoutAPipelineThereIsNoBubbleToFear) {
  PhaseLoad load = HalfEmpty();
  load.stages = load.groups = 1;
  load.running = 63;
  load.admissible = 1;
  load.admissible_rows = 200;
  EXPECT_TRUE(PrefillPays(load));
}

TEST(PhaseSwitch, SmallDecodeBatchesCostMoreWhereReadingTheWeightsDoes) {
  PhaseLoad cheap = HalfEmpty(), dear = HalfEmpty();
  cheap.cost = RowCost{.fixed_us = 100, .row_us = 100};
  dear.cost = RowCost{.fixed_us = 100000, .row_us = 100};
  EXPECT_GT(DecodeIntensity(cheap), DecodeIntensity(dear));
  EXPECT_NEAR(DecodeIntensity(dear), 0.5, 0.01) << "half of the rows for the same reading";
  dear.cost = RowCost{.fixed_us = 1, .row_us = 0};
  EXPECT_NEAR(DecodeIntensity(dear), 0.5, 0.01) << "rows that cost nothing";
}

// deepseek-v3's experts: what a step of 64 rows reads is nearly all, and a step of one row a thirtieth.
PhaseLoad WithExperts() {
  PhaseLoad load = HalfEmpty();
  load.cost = RowCost{.fixed_us = 1600,
                      .row_us = 100,
                      .read_us = 1600,
                      .reads = {.experts = 0.97, .chosen = 8.0 / 256},
                      .most_rows = 1000};
  return load;
}

TEST(PhaseSwitch, ExpertsWantLargerStepsOfPrompts) {
  PhaseLoad load = WithExperts();
  load.admissible_rows = 1000;
  const double saturated = load.cost->FixedUs(1e6) / 100;
  EXPECT_NEAR(static_cast<double>(PhaseStepRows(load)), std::sqrt(saturated * 1000 / 3), 2);
  PhaseLoad line = HalfEmpty();
  line.admissible_rows = 1000;
  EXPECT_GT(PhaseStepRows(load), 4 * PhaseStepRows(line));
}

TEST(PhaseSwitch, StepsWithExpertsGrowNoFasterThanWhatIsKnown) {
  PhaseLoad load = WithExperts();
  load.cost->row_us = 0;  // hidden so far
  load.cost->most_rows = 3;
  EXPECT_EQ(PhaseStepRows(load), 128);
  load.cost->most_rows = 128;
  EXPECT_EQ(PhaseStepRows(load), 256);
  load.cost->most_rows = 500;
  EXPECT_EQ(PhaseStepRows(load), 512);
  load.cost->reads = {};
  load.cost->most_rows = 3;
  EXPECT_EQ(PhaseStepRows(load), 512) << "without experts a line tells";
}

TEST(PhaseSwitch, SmallDecodeBatchesOfExpertsReadLessAsWell) {
  PhaseLoad load = WithExperts();
  load.running = load.admissible = 8;
  load.cost->row_us = 1;
  PhaseLoad dense = load;
  dense.cost->read_us = 0;
  EXPECT_NEAR(DecodeIntensity(dense), 0.5, 0.01) << "two rows a group take as long as four";
  EXPECT_GT(DecodeIntensity(load), 0.75) << "and read much less here";
}

TEST(PhaseSwitch, FewerSequencesThanGroupsLeaveStagesEmpty) {
  PhaseLoad load = HalfEmpty();
  load.cost = RowCost{.fixed_us = 0, .row_us = 100};
  load.running = 1;
  load.admissible = 3;
  EXPECT_NEAR(DecodeIntensity(load), 0.25, 1e-9);
}

}  // namespace
}  // namespace stagecoach
