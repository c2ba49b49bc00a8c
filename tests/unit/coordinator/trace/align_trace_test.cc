#include "coordinator/trace/align_trace.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/trace/made_up_run.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using testing::MadeUpRun;

TEST(AlignTrace, BringsTheTimesOfEveryStageToTheEnginesClock) {
  const MadeUpRun truth{
      .compute_us = {3000, 4000, 2000}, .in_flight = 3, .micro_batches = 400, .turn_us = 30, .hop_us = 80};
  MadeUpRun seen = truth;
  seen.offset_us = {987654321, -400000, 86400000000};
  const TraceJob expected = truth.Recorded();
  TraceJob job = seen.Recorded();
  ASSERT_TRUE(AlignTrace(&job).ok());
  ASSERT_EQ(job.clocks.size(), 3u);
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_NEAR(static_cast<double>(job.clocks[s].offset_us), static_cast<double>(seen.offset_us[s]), 3) << s;
    EXPECT_LE(std::abs(job.clocks[s].offset_us - seen.offset_us[s]), job.clocks[s].error_us) << s;
    EXPECT_LT(job.clocks[s].error_us, 400) << s;
    for (size_t i = 0; i < job.steps.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(job.steps[i].stages[s].start_us),
                  static_cast<double>(expected.steps[i].stages[s].start_us), 3);
    }
  }
}

TEST(AlignTrace, StagesOfTheCoordinatorsHostHaveItsClock) {
  TraceJob job = MadeUpRun{.compute_us = {3000, 4000}, .in_flight = 2, .micro_batches = 10, .hop_us = 50}.Recorded();
  for (TraceStage& stage : job.header.stages) stage.host = "front";
  const std::vector<TraceStep> before = job.steps;
  ASSERT_TRUE(AlignTrace(&job).ok());
  EXPECT_EQ(job.clocks[0].error_us, 0);
  EXPECT_EQ(job.clocks[1].offset_us, 0);
  EXPECT_EQ(job.steps[7].stages[1].start_us, before[7].stages[1].start_us);
}

TEST(AlignTrace, HostsOfOneNameWhoseClocksDifferAreToldApart) {
  MadeUpRun run{.compute_us = {3000, 4000}, .in_flight = 2, .micro_batches = 50, .hop_us = 50};
  run.offset_us = {0, -7000000};
  TraceJob job = run.Recorded();
  for (TraceStage& stage : job.header.stages) stage.host = "front";
  ASSERT_TRUE(AlignTrace(&job).ok());
  EXPECT_NEAR(static_cast<double>(job.clocks[1].offset_us), -7000000, 100);
  EXPECT_GT(job.clocks[1].error_us, 0);
}

TEST(AlignTrace, GivesEveryFrameItsOwnSend) {
  TraceJob job =
      MadeUpRun{.compute_us = {1000, 1000}, .in_flight = 1, .micro_batches = 4, .hop_us = 600, .send_us = 500}
          .Recorded();
  TraceStep last = job.steps.back();  // the shutdown tells of the last one
  last.number = 4;
  last.shutdown = true;
  last.decode_rows = 0;
  for (TraceSpan& span : last.stages) {
    span.send_start_us = span.end_us;
    span.send_end_us = span.end_us + 500;
    for (int64_t* us : {&span.received_us, &span.start_us, &span.end_us}) *us += 100000;
  }
  last.ready_us = last.submit_us += 100000;
  last.confirm_us += 100000;
  job.steps.push_back(last);
  ASSERT_TRUE(AlignTrace(&job).ok());
  ASSERT_EQ(job.steps.size(), 4u);
  for (const TraceStep& step : job.steps) {
    for (const TraceSpan& span : step.stages) {
      EXPECT_EQ(span.send_start_us, span.end_us) << step.number;
      EXPECT_EQ(span.send_end_us, span.end_us + 500) << step.number;
    }
  }
}

TEST(AlignTrace, ASendThatNobodyToldOfIsUnknown) {
  TraceJob job =
      MadeUpRun{.compute_us = {1000}, .in_flight = 1, .micro_batches = 3, .hop_us = 600, .send_us = 500}.Recorded();
  job.steps[2].stages[0].send_start_us = job.steps[1].stages[0].send_start_us;  // still the one before
  job.steps[2].stages[0].send_end_us = job.steps[1].stages[0].send_end_us;
  ASSERT_TRUE(AlignTrace(&job).ok());
  EXPECT_EQ(job.steps[0].stages[0].send_end_us - job.steps[0].stages[0].send_start_us, 500);
  EXPECT_EQ(job.steps[1].stages[0].send_end_us, job.steps[1].stages[0].send_start_us);
  EXPECT_EQ(job.steps[2].stages[0].send_end_us, job.steps[2].stages[0].send_start_us);
}

TEST(AlignTrace, MicroBatchesThatWereLeftOutLeaveTheOthersAsTheyWere) {
  TraceJob whole =
      MadeUpRun{.compute_us = {1000, 900}, .in_flight = 2, .micro_batches = 30, .hop_us = 60, .send_us = 50}.Recorded();
  TraceJob job = whole;
  job.steps.erase(job.steps.begin() + 10, job.steps.begin() + 13);
  ASSERT_TRUE(AlignTrace(&whole).ok());
  const absl::Status aligned = AlignTrace(&job);
  ASSERT_TRUE(aligned.ok()) << aligned;
  for (const TraceStep& step : job.steps) {
    const TraceSpan& expected = whole.steps[step.number].stages[0];
    const int64_t took_us = step.stages[0].send_end_us - step.stages[0].send_start_us;
    EXPECT_EQ(took_us, step.number == 9 ? 0 : expected.send_end_us - expected.send_start_us) << step.number;
  }
}

TEST(AlignTrace, RefusesTimesThatNoClocksCanHave) {
  TraceJob job = MadeUpRun{.compute_us = {3000}, .micro_batches = 3, .hop_us = 50}.Recorded();
  job.steps[1].stages[0].end_us += 100000;  // longer than it was away
  EXPECT_THAT(std::string(AlignTrace(&job).message()), HasSubstr("contradict"));
  job = MadeUpRun{.compute_us = {3000}, .micro_batches = 3, .hop_us = 50}.Recorded();
  job.steps[1].stages[0].end_us = 0;
  EXPECT_THAT(std::string(AlignTrace(&job).message()), HasSubstr("micro-batch 1 has times that go back"));
}

TEST(AlignTrace, NoNumbersOverflow) {
  constexpr int64_t kMost = int64_t{1} << 53;
  for (const int64_t far_us : {kMost, -kMost}) {
    MadeUpRun run{.compute_us = std::vector<int64_t>(600, 1), .micro_batches = 2, .hop_us = 50};
    for (size_t s = 0; s < 600; ++s) run.offset_us[s] = s % 2 == 0 ? far_us : -far_us;
    TraceJob job = run.Recorded();
    EXPECT_TRUE(AlignTrace(&job).ok());
    for (size_t s = 0; s < 600; ++s) {  // a job that cannot be
      for (TraceStep& step : job.steps) {
        TraceSpan& span = step.stages[s];
        span.received_us = -kMost;
        span.start_us = span.end_us = span.send_start_us = span.send_end_us = kMost;
      }
    }
    job.aligned = false;
    EXPECT_FALSE(AlignTrace(&job).ok());
  }
}

TEST(AlignTrace, WhatIsSimulatedHasOneClock) {
  MadeUpRun run{.compute_us = {3000, 4000}, .in_flight = 2, .micro_batches = 5};
  TraceJob job = run.Recorded();
  job.header.simulated = true;
  const TraceSpan before = job.steps[3].stages[1];
  ASSERT_TRUE(AlignTrace(&job).ok());
  EXPECT_TRUE(job.aligned);
  EXPECT_EQ(job.steps[3].stages[1].end_us, before.end_us);
  EXPECT_EQ(job.clocks[1].error_us, 0);
}

}  // namespace
}  // namespace stagecoach
