#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "coordinator/trace/clock_estimate.h"
#include "coordinator/trace/trace_job.h"
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

// Offsets of clocks from messages whose true times are known.

constexpr int64_t kSpanUs = 3000000;

// A ring of hops over hosts 0, 1, .., n - 1, 0, whose clocks are what `clock` says at a true time.
struct Ring {
  int clocks;
  std::function<double(int host, double at_us)> offset;
  std::function<double(int hop)> latency_us;  // a draw
  int64_t every_us = 4000;

  std::optional<std::vector<ClockCurve>> Estimate(double drift_ppm = kDriftPpm) const {
    std::vector<HopBounds> hops;
    for (int hop = 0; hop < clocks; ++hop) {
      const int to = (hop + 1) % clocks;
      HopBounds& bounds = hops.emplace_back(hop, to, 0, kSpanUs, drift_ppm);
      for (double at = hop * 500.0; at + 20000 < kSpanUs; at += static_cast<double>(every_us)) {
        const double there = at + latency_us(hop);
        const auto read = [&](int host, double us) { return static_cast<int64_t>(std::floor(us + offset(host, us))); };
        bounds.Add(static_cast<int64_t>(at), read(to, there) - read(hop, at));
      }
    }
    return EstimateClocks(clocks, hops);
  }

  void ExpectTheBoundsHold(double most_error_us) const {
    const auto curves = Estimate();
    ASSERT_TRUE(curves.has_value());
    for (int host = 1; host < clocks; ++host) {
      const ClockCurve& curve = (*curves)[static_cast<size_t>(host)];
      EXPECT_LE(curve.error_us, most_error_us) << host;
      for (int64_t at = 0; at < kSpanUs; at += 10007) {
        const double truth = offset(host, static_cast<double>(at));
        ASSERT_LE(std::abs(curve.At(at) - truth), curve.error_us) << "host " << host << " at " << at;
        EXPECT_NEAR(static_cast<double>(curve.ToFirst(at + std::llround(truth))), static_cast<double>(at),
                    curve.error_us + 2);
      }
    }
  }
};

TEST(ClockEstimate, IsRightWithinItsErrorWhateverTheOffsets) {
  std::mt19937 random(1);
  for (const int clocks : {2, 3, 5, 9}) {
    std::vector<double> offsets;
    for (int i = 0; i < clocks; ++i)
      offsets.push_back(i == 0 ? 0 : std::uniform_real_distribution<>(-1e12, 1e12)(random));
    const Ring ring{clocks, [&](int host, double) { return offsets[static_cast<size_t>(host)]; },
                    [&](int) { return 50 + std::exponential_distribution<>(0.01)(random); }};
    ring.ExpectTheBoundsHold(clocks * 80.0 + 20);
  }
}

TEST(ClockEstimate, EqualHopsLeaveNoErrorInTheOffsetButTheReading) {
  const Ring ring{4, [](int host, double) { return host * 1e6; }, [](int) { return 80.0; }};
  const auto curves = ring.Estimate();
  ASSERT_TRUE(curves.has_value());
  for (int host = 1; host < 4; ++host) {
    EXPECT_NEAR((*curves)[static_cast<size_t>(host)].At(kSpanUs / 2), host * 1e6, 2) << host;
  }
}

TEST(ClockEstimate, AnUnevenHopIsCoveredByTheError) {
  const Ring ring{3, [](int host, double) { return -5e5 * host; }, [](int hop) { return hop == 1 ? 900.0 : 20.0; }};
  ring.ExpectTheBoundsHold(1000);
}

TEST(ClockEstimate, FollowsClocksThatDrift) {
  std::mt19937 random(2);
  const Ring ring{3, [](int host, double at) { return host * 1e9 + host * 40e-6 * at + 30 * std::sin(at / 1e6); },
                  [&](int) { return 60 + std::exponential_distribution<>(0.02)(random); }};
  ring.ExpectTheBoundsHold(260);
}

TEST(ClockEstimate, SaysThatTimesContradictEachOther) {
  std::vector<HopBounds> hops = {{0, 1, 0, kSpanUs}, {1, 0, 0, kSpanUs}};
  hops[0].Add(1000, 100);
  hops[1].Add(1000, -300);  // the whole round took less than no time
  EXPECT_FALSE(EstimateClocks(2, hops).has_value());
}

TEST(ClockEstimate, AWayThatLeadsOverAHostTwiceBoundsItTheMore) {
  // 0 -> 1 -> 2 -> 1 -> 0, where the ways to and from host 2 are slow.
  std::vector<HopBounds> hops = {{0, 1, 0, kSpanUs}, {1, 2, 0, kSpanUs}, {2, 1, 0, kSpanUs}, {1, 0, 0, kSpanUs}};
  for (int64_t at = 0; at < kSpanUs; at += 10000) {
    hops[0].Add(at, 7000 + 30);
    hops[1].Add(at, -7000 + 100 + 5000);
    hops[2].Add(at, -100 + 7000 + 5000);
    hops[3].Add(at, -7000 + 30);
  }
  const auto curves = EstimateClocks(3, hops);
  ASSERT_TRUE(curves.has_value());
  EXPECT_LT((*curves)[1].error_us, 80);
  EXPECT_GT((*curves)[2].error_us, 4900);
  EXPECT_NEAR((*curves)[1].At(0), 7000, 2);
  EXPECT_NEAR((*curves)[2].At(0), 100, 20);
}

TEST(ClockEstimate, OneHostNeedsNone) {
  const auto curves = EstimateClocks(1, {});
  ASSERT_TRUE(curves.has_value());
  EXPECT_EQ((*curves)[0].At(123), 0);
  EXPECT_EQ((*curves)[0].ToFirst(123), 123);
  EXPECT_EQ((*curves)[0].error_us, 0);
}

}  // namespace
}  // namespace stagecoach
