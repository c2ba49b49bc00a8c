#include "coordinator/sim/sim_trace.h"

#include <numeric>

#include "coordinator/trace/trace_file.h"
#include "coordinator/trace/trace_summary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/sim/sim_cluster_testing.h"

namespace stagecoach {
namespace {

TraceHeader HeaderOf(const TestCluster& cluster) {
  TraceHeader header;
  header.version = "test";
  header.coordinator_host = "front";
  header.start_unix_us = 5;
  for (const PipelineStage& stage : cluster.sim.pipeline.stages) {
    const int32_t rank = static_cast<int32_t>(header.stages.size()) + 1;
    header.stages.push_back({rank, "h", stage.layers.begin, stage.layers.end, 1});
  }
  return header;
}

// What a traced run leaves in its file.
std::vector<TraceJob> Traced(const TestCluster& cluster, SimOptions options, SimOutcome* outcome) {
  SimTrace trace(HeaderOf(cluster));
  options.steps = &trace;
  options.on_job = [&trace](int64_t at_us) { trace.BeginJob(at_us); };
  absl::StatusOr<SimOutcome> run = Simulate(options);
  EXPECT_TRUE(run.ok()) << run.status();
  *outcome = *std::move(run);
  const testing::TempDir dir;
  EXPECT_TRUE(trace.Save(dir.File("out.json")).ok());
  absl::StatusOr<std::vector<TraceJob>> jobs = ReadTrace(dir.File("out.json"));
  EXPECT_TRUE(jobs.ok()) << jobs.status();
  return *std::move(jobs);
}

int64_t SumOf(const StateSums& sums) { return std::accumulate(sums.begin(), sums.end(), int64_t{0}); }

TEST(SimTrace, AccountsForEveryMicrosecondOfWhatTheRunReports) {
  TestCluster cluster({0, 1, 2}, {1, 2, 1});
  for (PipelineStage& stage : cluster.sim.pipeline.stages) stage.link = {.latency_s = 50e-6, .bytes_per_s = 2e7};
  cluster.sim.turn_s = 40e-6;
  cluster.sim.wake_s = 30e-6;
  SimOutcome outcome;
  const std::vector<TraceJob> jobs = Traced(cluster, RunOf(cluster, 24, 100, 30, 12), &outcome);
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_TRUE(jobs[0].header.simulated);
  EXPECT_TRUE(jobs[0].aligned);
  EXPECT_EQ(jobs[0].header.start_unix_us, 0);
  const TraceSummary summary = SummarizeTrace(jobs[0]);
  const SchedulerCounters& counters = outcome.jobs[0].counters;
  EXPECT_EQ(summary.micro_batches, static_cast<int64_t>(counters.micro_batches));
  EXPECT_EQ(summary.prefill_rows + summary.decode_rows,
            static_cast<int64_t>(counters.prefill_rows + counters.decode_rows));
  EXPECT_EQ(summary.wall_us, outcome.end_ns / 1000 - 40);  // from when the first frame leaves
  ASSERT_EQ(summary.stages.size(), 3u);
  for (size_t s = 0; s < 3; ++s) {
    const StateSums& us = summary.stages[s].us;
    EXPECT_EQ(SumOf(us), summary.wall_us);
    EXPECT_EQ(us[static_cast<size_t>(StageState::kCompute)], outcome.jobs[0].stages[s].compute_us);
  }
  EXPECT_GT(summary.stages[0].us[static_cast<size_t>(StageState::kSend)], 0);
  EXPECT_NEAR(summary.causes.bubble, outcome.jobs[0].bubble, 0.02);
  EXPECT_GT(summary.causes.coordinator, 0);
}

TEST(SimTrace, TheCoordinatorsTurnLiesBeforeTheFrameLeaves) {
  TestCluster cluster({0});
  cluster.sim.turn_s = 0.0005;
  SimOutcome outcome;
  const std::vector<TraceJob> jobs = Traced(cluster, RunOf(cluster, 1, 10, 20, 1), &outcome);
  ASSERT_EQ(jobs[0].steps.size(), 20u);
  for (const TraceStep& step : jobs[0].steps) {
    EXPECT_EQ(step.submit_us - step.ready_us, 500);
    EXPECT_EQ(step.stages[0].received_us, step.submit_us);
    EXPECT_EQ(step.confirm_us, step.submit_us + 1000);
  }
}

TEST(SimTrace, EveryJobOfARunThatLosesStagesIsThere) {
  TestCluster cluster = TestCluster::OfOwnHosts(3);
  SimOptions options = RunOf(cluster, 30, 100, 60, 8);
  options.failures = {.at_s = {0.0001, 7.5}, .detect_s = 6, .relaunch_s = 1};
  SimOutcome outcome;
  const std::vector<TraceJob> jobs = Traced(cluster, options, &outcome);
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_TRUE(jobs[0].steps.empty());  // lost before anything came back
  EXPECT_EQ(jobs[1].header.start_us, 6000100);
  EXPECT_EQ(jobs[1].begin_us(), 7000100);
  EXPECT_EQ(jobs[2].header.start_us, 13500000);
  for (const TraceJob& job : jobs) {
    const TraceSummary summary = SummarizeTrace(job);
    for (const TraceSummary::Stage& stage : summary.stages) EXPECT_EQ(SumOf(stage.us), summary.wall_us);
  }
}

TEST(SimTrace, CannotBeSavedWhereNothingCanBeWritten) {
  TestCluster cluster({0});
  SimTrace trace(HeaderOf(cluster));
  trace.BeginJob(0);
  EXPECT_TRUE(absl::IsInvalidArgument(trace.Save("/nowhere/out.json")));
}

}  // namespace
}  // namespace stagecoach
