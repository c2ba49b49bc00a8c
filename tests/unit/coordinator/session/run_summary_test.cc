#include "coordinator/session/run_summary.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

pb::JobStatistics JobOf(int stages, double compute_s_of_each, double ideal_s) {
  pb::JobStatistics statistics;
  for (int i = 0; i < stages; ++i) statistics.add_stages()->set_compute_s(compute_s_of_each);
  statistics.set_busy_s(2 * ideal_s);
  statistics.set_bubble(1 - compute_s_of_each / (2 * ideal_s));
  statistics.set_bubble_floor(1 - compute_s_of_each / ideal_s);
  return statistics;
}

// All stages' time in the ideal pipeline, as a reader of the sum finds it.
double IdealTimeOf(const pb::JobStatistics& sum) {
  double compute_s = 0;
  for (const pb::StageSummary& stage : sum.stages()) compute_s += stage.compute_s();
  return compute_s / (1 - sum.bubble_floor());
}

TEST(StatisticsSum, OfOneJobIsThatJob) {
  pb::JobStatistics sum;
  AddStatistics(JobOf(2, 3, 4), &sum);
  EXPECT_EQ(sum.bubble_floor(), 0.25);
  EXPECT_DOUBLE_EQ(sum.bubble(), 0.625);
  EXPECT_EQ(sum.stages(1).compute_s(), 3);
}

TEST(StatisticsSum, WhatTheIdealPipelineTookOfLateDoesNotDependOnEarlierJobs) {
  for (const int stages_before : {1, 2, 3}) {
    pb::JobStatistics earlier;
    AddStatistics(JobOf(stages_before, 1000, 2500), &earlier);
    pb::JobStatistics sum = earlier, later = earlier;
    AddStatistics(JobOf(2, 3, 4), &sum);
    AddStatistics(JobOf(2, 3 + 9, 4 + 10), &later);
    EXPECT_NEAR(IdealTimeOf(later) - IdealTimeOf(sum), 2 * 10, 1e-6) << stages_before;
  }
}

TEST(StatisticsSum, AJobThatHasNotBegunLeavesTheFloorAsItWas) {
  pb::JobStatistics sum;
  AddStatistics(JobOf(2, 3, 4), &sum);
  AddStatistics({}, &sum);
  EXPECT_DOUBLE_EQ(sum.bubble_floor(), 0.25);
  EXPECT_EQ(sum.stages_size(), 2);
}

}  // namespace
}  // namespace stagecoach
