#include <fstream>
#include <string>

#include "common/base/clock.h"
#include "coordinator/bench/bench_measure.h"
#include "coordinator/bench/sweep_measure.h"
#include "coordinator/bench/sweep_plan.h"
#include "coordinator/bench/sweep_point.h"
#include "coordinator/guess/prediction_guesser.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/bench/fake_engine.h"

namespace stagecoach {
namespace {

struct SweepPlanTest : ::testing::Test {
  SweepPlanTest() { lists.policies = {Policy::kInterleaved}; }
  SweepLists lists;
};

TEST_F(SweepPlanTest, IsTheProductOfItsLists) {
  lists.stages = {1, 2, 4};
  lists.concurrency = {1, 32};
  lists.prompts = {"128", "1024"};
  lists.repetitions = 3;
  const std::vector<SweepConfig> points = PointsOf(lists);
  ASSERT_EQ(points.size(), 3u * 2 * 2 * 3);
  EXPECT_EQ(points[0].stages, 1);
  EXPECT_EQ(points[0].concurrency, 1);
  EXPECT_EQ(points[0].max_num_seqs, 32);
  EXPECT_EQ(points[0].requests, 8);
  EXPECT_EQ(points[3].concurrency, 32);
  EXPECT_EQ(points[3].prompt, "1024");
  EXPECT_EQ(points[3].requests, 128);
}

TEST_F(SweepPlanTest, RefusesMorePointsThanAnybodyWillMeasure) {
  EXPECT_TRUE(CheckPointCount(lists).ok());
  lists.stages.assign(100, 1);
  lists.concurrency.assign(1000, 1);
  EXPECT_TRUE(CheckPointCount(lists).ok());
  lists.repetitions = 1000;
  lists.prompts.assign(1000, "128");
  EXPECT_THAT(CheckPointCount(lists).message(), HasSubstr("the lists make 1e+11 points, expected at most 100000"));
}

TEST_F(SweepPlanTest, MeasuresAllPointsOnceBeforeItRepeatsOne) {
  lists.stages = {1, 2};
  lists.repetitions = 2;
  const std::vector<SweepConfig> points = PointsOf(lists);
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].repetition, 0);
  EXPECT_EQ(points[1].repetition, 0);
  EXPECT_EQ(points[1].stages, 2);
  EXPECT_EQ(points[2].repetition, 1);
}

TEST_F(SweepPlanTest, SharesALaunchBetweenTheLoadsOfAJob) {
  lists.stages = {1, 2};
  lists.concurrency = {1, 8};
  lists.repetitions = 2;
  const std::vector<SweepLaunch> launches = LaunchesOf(PointsOf(lists));
  ASSERT_EQ(launches.size(), 4u);
  for (const SweepLaunch& launch : launches) {
    EXPECT_EQ(launch.size(), 2u);
    EXPECT_EQ(JobOf(launch[0]), JobOf(launch[1]));
    EXPECT_NE(SweepKey(launch[0]), SweepKey(launch[1]));
  }
}

TEST_F(SweepPlanTest, GivesEveryEmulatedLinkALaunchOfItsOwn) {
  const EmulatedLink slow = {.latency_s = 0.002, .bytes_per_s = 125e6};
  lists.links = {EmulatedLink(), slow};
  const std::vector<SweepConfig> points = PointsOf(lists);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].emulated_link, EmulatedLink());
  EXPECT_EQ(points[1].emulated_link, slow);
  EXPECT_THAT(PointName(points[1]), HasSubstr("emulated latency=2ms,bandwidth=1Gbit"));
  EXPECT_EQ(LaunchesOf(points).size(), 2u);
}

TEST_F(SweepPlanTest, LetsAJobSpeculateWhereAPointHasAnAcceptance) {
  lists.speculations = {Speculate::kOff, Speculate::kSuffix};
  lists.acceptances = {0, 0.5, 0.7};
  const std::vector<SweepConfig> points = PointsOf(lists);
  ASSERT_EQ(points.size(), 6u);
  EXPECT_EQ(points[0].speculate, Speculate::kOff);
  EXPECT_EQ(points[2].speculate, Speculate::kAuto);
  EXPECT_EQ(points[2].acceptance, 0.7);
  EXPECT_EQ(points[3].speculate, Speculate::kSuffix);
  EXPECT_EQ(points[3].acceptance, 0);
  EXPECT_THAT(PointName(points[0]), Not(HasSubstr("speculate")));
  EXPECT_THAT(PointName(points[2]), HasSubstr(", speculate auto, acceptance 0.7,"));
  EXPECT_EQ(LaunchesOf(points).size(), 3u) << "the requests alone say how much of them is foretold";
}

TEST_F(SweepPlanTest, TakesAValueThatIsGivenTwiceOnce) {
  lists.stages = {2, 2};
  EXPECT_EQ(PointsOf(lists).size(), 1u);
}

TEST_F(SweepPlanTest, MeasuresAnOpenLoopOnceWhateverTheConcurrency) {
  lists.arrivals = {"closed", "poisson:2", "trace:t.jsonl"};
  lists.concurrency = {1, 4};
  lists.prompts = {"16", "32"};
  const std::vector<SweepConfig> points = PointsOf(lists);
  ASSERT_EQ(points.size(), 4u + 2 + 1);
  EXPECT_EQ(points[4].arrivals, "poisson:2");
  EXPECT_EQ(points[4].concurrency, 0);
  EXPECT_EQ(points[4].requests, kRequestsOfPoisson);
  EXPECT_EQ(points[6].prompt, "trace");
  EXPECT_EQ(points[6].requests, 0);
}

TEST_F(SweepPlanTest, DrawsTheSameRequestsForEveryRepetition) {
  SweepConfig point;
  point.arrivals = "poisson:10";
  point.prompt = "uniform:10:100";
  point.output = "4";
  point.requests = 20;
  point.seed = 3;
  const auto first = RequestsOf(point);
  point.repetition = 1;
  const auto second = RequestsOf(point);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->size(), 20u);
  EXPECT_EQ(*first, *second);
  EXPECT_LE(ContextOf(*first), 104);
  point.seed = 4;
  EXPECT_NE(*RequestsOf(point), *first);
}

TEST_F(SweepPlanTest, LetsRequestsArriveUntilTheDurationIsOver) {
  SweepConfig point;
  point.arrivals = "poisson:100";
  point.prompt = point.output = "1";
  point.duration_s = 2;
  const auto requests = RequestsOf(point).value();
  EXPECT_GT(requests.size(), 100u);
  EXPECT_LT(requests.size(), 300u);
  EXPECT_LE(requests.back().arrival_s, 2);
  point.duration_s = 1e-9;
  EXPECT_THAT(RequestsOf(point).status().message(), HasSubstr("no request of 'poisson:100' arrives"));
}

TEST_F(SweepPlanTest, GivesPointsOfATraceTheContentOfItsFile) {
  lists.arrivals = {"closed", "trace:t.jsonl"};
  lists.arrivals_hashes["trace:t.jsonl"] = "0123";
  const std::vector<SweepConfig> points = PointsOf(lists);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].arrivals_hash, "");
  EXPECT_EQ(points[1].arrivals_hash, "0123");
}

TEST_F(SweepPlanTest, TakesATracesRequestsFromItsFile) {
  const std::string path = ::testing::TempDir() + "/sweep_plan_trace.jsonl";
  std::ofstream(path) << R"({"arrival_s":0,"prompt_tokens":5,"output_tokens":6})"
                      << "\n"
                      << R"({"arrival_s":1,"prompt_tokens":50,"output_tokens":7})"
                      << "\n"
                      << R"({"arrival_s":9,"prompt_tokens":500,"output_tokens":8})"
                      << "\n";
  SweepConfig point;
  point.arrivals = "trace:" + path;
  point.duration_s = 2;
  const auto requests = RequestsOf(point).value();
  EXPECT_EQ(requests.size(), 2u);
  EXPECT_EQ(ContextOf(requests), 57);
}

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
  statistics.mutable_stages(0)->set_host("n1");
  statistics.mutable_stages(1)->set_host("n2");
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

TEST(SweepStatistics, CountVoidRowsAsBusyButAsNoWork) {
  pb::JobStatistics before = Statistics(1), after = Statistics(3);
  before.add_guessers()->set_tried(10);
  after.set_guesses(60);
  after.set_guesses_right(40);
  after.set_guesses_void(15);
  after.set_void_s(4);
  after.add_guessers()->set_tried(60);
  after.mutable_guessers(0)->set_right(40);
  SweepResult result;
  std::vector<SweepStage> stages;
  TakeStatistics(before, after, 64, &result, &stages);
  EXPECT_EQ(result.guesses, 60);
  EXPECT_EQ(result.guesses_right, 40);
  EXPECT_EQ(result.guesses_void, 15);
  EXPECT_DOUBLE_EQ(result.accepted_share, 0.8);
  EXPECT_DOUBLE_EQ(result.void_s, 4);
  EXPECT_DOUBLE_EQ(result.rows_per_pass, 17);
  EXPECT_DOUBLE_EQ(result.bubble, 0.6) << "of 40 s they computed 20, and 4 of these in vain";
  EXPECT_DOUBLE_EQ(result.bubble_floor, 0.375);
  EXPECT_DOUBLE_EQ(stages[0].bubble, 0.4) << "a stage was busy all the same";
}

TEST(SweepStatistics, GiveTokensPerCoreHourOverAllHostsWithStages) {
  pb::JobStatistics statistics = Statistics(1);
  SweepResult result;
  result.output_tokens_per_s = 10;
  std::vector<SweepStage> stages;
  statistics.mutable_stages(0)->set_cores(4);
  TakeStatistics({}, statistics, 1, &result, &stages);
  EXPECT_EQ(result.tokens_per_core_hour, 0) << "of a host whose cores are not known";
  statistics.mutable_stages(1)->set_cores(16);
  *statistics.add_stages() = statistics.stages(1);
  statistics.mutable_stages(1)->set_processor("Some processor");
  TakeStatistics({}, statistics, 1, &result, &stages);
  EXPECT_DOUBLE_EQ(result.tokens_per_core_hour, 10.0 * 3600 / 20);
  EXPECT_EQ(stages[1].processor, "Some processor");
}

TEST(SweepStatistics, OfAFirstReportAreItsOwn) {
  SweepResult result;
  std::vector<SweepStage> stages;
  TakeStatistics(pb::JobStatistics(), Statistics(1), 1, &result, &stages);
  EXPECT_DOUBLE_EQ(result.busy_s, 10);
  EXPECT_DOUBLE_EQ(result.bubble_floor, 0.375);
  EXPECT_EQ(stages.size(), 2u);
}

// By the guesser that reads it, once it has aligned the output.
TEST(PredictionOf, LetsTheShareOfTokensBeGuessedThatIsAskedFor) {
  constexpr int64_t kVocab = 10'000, kTokens = 5000;
  std::vector<TokenId> answer;
  for (uint64_t i = 0; i < kTokens; ++i) answer.push_back(RandomToken(3, i, kVocab));
  for (const double acceptance : {0.3, 0.5, 0.7, 0.9, 1.0}) {
    const std::vector<TokenId> prediction = PredictionOf(answer, acceptance, 7, kVocab);
    ASSERT_EQ(prediction.size(), answer.size());
    PredictionGuesser guesser(prediction);
    guesser.CatchUp(2 * kTokens);
    guesser.Append(answer[0]);
    int64_t right = 0;
    for (size_t i = 1; i < answer.size(); ++i) {
      const std::optional<Guess> guess = guesser.Next({});
      right += guess.has_value() && guess->token == answer[i] ? 1 : 0;
      guesser.Append(answer[i]);
    }
    EXPECT_NEAR(static_cast<double>(right) / (kTokens - 1), acceptance, acceptance < 1 ? 0.04 : 0) << acceptance;
  }
  EXPECT_EQ(PredictionOf({}, 0.5, 7, kVocab), std::vector<TokenId>());
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

TEST(SweepRunner, SendsRequestsAgainWithTheirAnswersForetold) {
  constexpr int64_t kPrompt = 4, kOutput = 60, kRequests = 3;
  const auto answer = [](const pb::SubmitRequest& request, int64_t i) {
    return static_cast<TokenId>((31 * i * i + request.prompt(0)) % 1000);
  };
  std::vector<pb::SubmitRequest> sent;
  SweepResult result;
  {
    uint64_t rows = 0;
    FakeEngine engine;
    const auto run = engine.Join();
    engine.Play([&](const pb::EngineMessage& message) {
      if (message.body_case() == pb::EngineMessage::BODY_NOT_SET) return engine.ReportRest(rows);
      if (!message.has_submit()) return;
      const pb::SubmitRequest& request = sent.emplace_back(message.submit());
      rows += static_cast<uint64_t>(kPrompt + kOutput - 1);
      for (int64_t i = 0; i < kOutput; ++i) engine.Token(request.request(), MonotonicUs(), answer(request, i));
      engine.Finish(request.request(), pb::RequestFinished::REASON_LENGTH);
    });
    SweepConfig point;
    point.concurrency = 1;
    point.acceptance = 0.5;
    SweepRunner runner(run.get(), /*vocab=*/1000);
    std::vector<SweepStage> stages;
    const absl::Status status =
        runner.Run(point, {{0, kPrompt, kOutput}, {0, kPrompt, kOutput}, {0, kPrompt, kOutput}}, &result, &stages);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(result.requests, kRequests);
  EXPECT_EQ(result.output_tokens, kRequests * kOutput);
  EXPECT_EQ(result.prefill_rows, kRequests * (kPrompt + kOutput - 1)) << "only what was sent last is measured";
  ASSERT_EQ(sent.size(), 2u * kRequests);
  for (size_t i = 0; i < kRequests; ++i) {
    const pb::SubmitRequest &first = sent[i], &again = sent[i + kRequests];
    EXPECT_EQ(first.prediction_size(), 0);
    ASSERT_EQ(again.prediction_size(), kOutput);
    EXPECT_NE(first.cache_salt(), again.cache_salt()) << "no guesser knows the answer";
    EXPECT_EQ(again.sampling().temperature(), 1);
    EXPECT_EQ(again.sampling().seed(), first.sampling().seed());
    EXPECT_NE(again.sampling().seed(), sent[(i + 1) % kRequests].sampling().seed());
    int64_t wrong = 0;
    for (int k = 0; k < kPrompt; ++k) EXPECT_EQ(again.prompt(k), first.prompt(k));
    for (int k = 0; k < kOutput; ++k) wrong += again.prediction(k) != answer(first, k) ? 1 : 0;
    EXPECT_EQ(again.prediction(0), answer(first, 0));
    EXPECT_GT(wrong, 0);
    EXPECT_LT(wrong, kOutput / 3);
  }
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
