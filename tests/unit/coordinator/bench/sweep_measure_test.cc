#include "coordinator/bench/sweep_measure.h"

#include "common/base/clock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/bench/fake_engine.h"

namespace stagecoach {
namespace {

TEST(RequestMeter, CountsFromTheArrivalOnAndBetweenTokens) {
  RequestMeter meter(0, 0);
  meter.Arrived(1, 1'000'000, 100);
  meter.Arrived(2, 1'500'000, 50);
  meter.Tokens(1, 1'250'000, 1);
  meter.Tokens(1, 1'350'000, 1);
  meter.Tokens(2, 2'500'000, 1);
  meter.Tokens(1, 3'000'000, 1);
  meter.Ended(1);
  meter.Ended(2);
  const SweepResult result = meter.Result();
  EXPECT_EQ(result.requests, 2);
  EXPECT_EQ(result.prompt_tokens, 150);
  EXPECT_EQ(result.output_tokens, 4);
  EXPECT_DOUBLE_EQ(result.wall_s, 2);
  EXPECT_DOUBLE_EQ(result.prompt_tokens_per_s, 75);
  EXPECT_DOUBLE_EQ(result.output_tokens_per_s, 2);
  EXPECT_EQ(result.ttft_s.count, 2);
  EXPECT_DOUBLE_EQ(result.ttft_s.p50, 0.25);
  EXPECT_DOUBLE_EQ(result.ttft_s.max, 1);
  EXPECT_EQ(result.itl_s.count, 2);
  EXPECT_DOUBLE_EQ(result.itl_s.p50, 0.1);
  EXPECT_DOUBLE_EQ(result.itl_s.max, 1.65);
  EXPECT_DOUBLE_EQ(result.latency_s.max, 2);
  EXPECT_EQ(result.slo_requests, 2);
  EXPECT_DOUBLE_EQ(result.slo_share, 1);
}

TEST(RequestMeter, GivesGoodputOfTheRequestsThatMeetBothBounds) {
  RequestMeter meter(/*slo_ttft_s=*/1, /*slo_itl_s=*/0.5);
  const auto request = [&meter](RequestId id, int64_t first_us, int64_t gap_us) {
    meter.Arrived(id, 0, 1);
    meter.Tokens(id, first_us, 1);
    meter.Tokens(id, first_us + gap_us, 1);
    meter.Tokens(id, first_us + 2 * gap_us, 1);
    meter.Ended(id);
  };
  request(1, 1'000'000, 500'000);  // both just met
  request(2, 1'000'001, 100'000);  // too late
  request(3, 100'000, 500'001);    // too slow
  request(4, 2'000'000, 0);        // too late, and ends the run at 2 s
  const SweepResult result = meter.Result();
  EXPECT_EQ(result.slo_requests, 1);
  EXPECT_DOUBLE_EQ(result.slo_share, 0.25);
  EXPECT_DOUBLE_EQ(result.goodput_requests_per_s, 0.5);
  EXPECT_DOUBLE_EQ(result.goodput_tokens_per_s, 1.5);
}

TEST(RequestMeter, TellsWhatFailedAndWhatWasLeft) {
  RequestMeter meter(0, 0);
  for (RequestId id : {1, 2, 3}) meter.Arrived(id, 0, 10);
  meter.Tokens(1, 100, 1);
  meter.Ended(1);
  meter.Tokens(2, 200, 1);
  meter.Failed(2);
  meter.Tokens(9, 300, 1);  // nobody's
  const SweepResult result = meter.Result();
  EXPECT_EQ(result.requests, 1);
  EXPECT_EQ(result.failed, 1);
  EXPECT_EQ(result.unfinished, 1);
  EXPECT_EQ(result.output_tokens, 1);
  EXPECT_NEAR(result.slo_share, 1.0 / 3, 1e-12);
}

TEST(RequestMeter, OfNothingGivesNoRates) { EXPECT_EQ(RequestMeter(1, 1).Result(), SweepResult()); }

pb::JobStatistics Statistics(double scale) {
  pb::JobStatistics statistics;
  statistics.set_micro_batches(static_cast<uint64_t>(10 * scale));
  statistics.set_prefill_rows(static_cast<uint64_t>(100 * scale));
  statistics.set_decode_rows(static_cast<uint64_t>(50 * scale));
  statistics.set_busy_s(10 * scale);
  for (int s = 0; s < 2; ++s) {
    pb::StageSummary* stage = statistics.add_stages();
    stage->set_compute_s((s == 0 ? 6 : 4) * scale);
    stage->set_blocks_used_peak(7);
  }
  statistics.set_bubble(0.5);
  statistics.set_bubble_floor(0.375);  // an ideal span of 8 s
  return statistics;
}

TEST(SweepStatistics, AreWhatHappenedBetweenTwoReports) {
  SweepResult result;
  std::vector<SweepStage> stages;
  TakeStatistics(Statistics(1), Statistics(3), 64, &result, &stages);
  EXPECT_EQ(result.micro_batches, 20);
  EXPECT_EQ(result.prefill_rows, 200);
  EXPECT_EQ(result.decode_rows, 100);
  EXPECT_DOUBLE_EQ(result.rows_per_pass, 15);
  EXPECT_DOUBLE_EQ(result.busy_s, 20);
  EXPECT_DOUBLE_EQ(result.bubble, 0.5);
  EXPECT_DOUBLE_EQ(result.bubble_floor, 0.375);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_DOUBLE_EQ(stages[0].compute_s, 12);
  EXPECT_DOUBLE_EQ(stages[0].wait_s, 8);
  EXPECT_DOUBLE_EQ(stages[1].bubble, 0.6);
  EXPECT_EQ(stages[1].blocks, 64);
  EXPECT_EQ(stages[1].blocks_used_peak, 7);
}

TEST(SweepStatistics, OfAFirstReportAreItsOwn) {
  SweepResult result;
  std::vector<SweepStage> stages;
  TakeStatistics(pb::JobStatistics(), Statistics(1), 1, &result, &stages);
  EXPECT_DOUBLE_EQ(result.busy_s, 10);
  EXPECT_DOUBLE_EQ(result.bubble_floor, 0.375);
  EXPECT_EQ(stages.size(), 2u);
}

// A point of an open loop that lasts a twentieth of a second.
SweepConfig ShortOpenLoop() {
  SweepConfig point;
  point.arrivals = "poisson:20";
  point.duration_s = 0.05;
  return point;
}

TEST(SweepRunner, SendsEveryRequestOfAnOpenLoopHoweverLateItIs) {
  uint64_t rows = 0;
  FakeEngine engine;
  const auto run = engine.Join();
  engine.Play([&](const pb::EngineMessage& message) {
    if (message.body_case() == pb::EngineMessage::BODY_NOT_SET) return engine.ReportRest(rows);
    if (message.has_cancel()) return engine.Finish(message.cancel().request(), pb::RequestFinished::REASON_CANCELLED);
    if (!message.has_submit()) return;
    rows += static_cast<uint64_t>(message.submit().prompt_size());
    engine.Token(message.submit().request(), MonotonicUs());
    engine.Finish(message.submit().request(), pb::RequestFinished::REASON_LENGTH);
  });
  SweepRunner runner(run.get(), /*vocab=*/100);
  // Whoever waits until the second one is due wakes up when the duration is over.
  const std::vector<ArrivingRequest> requests = {{0, 4, 1}, {0.05, 4, 1}};
  SweepResult result;
  std::vector<SweepStage> stages;
  const absl::Status status = runner.Run(ShortOpenLoop(), requests, &result, &stages);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(result.requests + result.unfinished, 2);
}

TEST(SweepRunner, WaitsForTheRowsOfRequestsThatItCancelled) {
  int64_t cancelled_us = 0;
  bool told = false;
  FakeEngine engine;
  const auto run = engine.Join();
  engine.Play([&](const pb::EngineMessage& message) {
    if (message.has_cancel()) {
      cancelled_us = MonotonicUs();
      return engine.Finish(message.cancel().request(), pb::RequestFinished::REASON_CANCELLED);
    }
    if (!std::exchange(told, true)) return engine.ReportRest(0);
    // As an engine that reports now and then.
    if (cancelled_us > 0 && MonotonicUs() > cancelled_us + 300'000) engine.ReportRest(100);
  });
  SweepRunner runner(run.get(), /*vocab=*/100);
  SweepResult result;
  std::vector<SweepStage> stages;
  const absl::Status status = runner.Run(ShortOpenLoop(), {{0, 4, 1}}, &result, &stages);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(result.unfinished, 1);
  EXPECT_EQ(result.prefill_rows, 100);
}

}  // namespace
}  // namespace stagecoach
