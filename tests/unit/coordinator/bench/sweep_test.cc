#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "common/base/clock.h"
#include "coordinator/bench/sweep_measure.h"
#include "coordinator/bench/sweep_plan.h"
#include "coordinator/bench/sweep_point.h"
#include "tests/testing/matchers.h"
#include "tests/testing/paths.h"
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

SweepPoint Sample() {
  SweepPoint point;
  point.config.model = "dummy:qwen3-0.6b:q8_0";
  point.config.stages = 2;
  point.config.policy = Policy::kInterleaved;
  point.config.concurrency = 8;
  point.config.prompt = "128";
  point.config.emulated_link.latency_s = 0.002;
  point.config.seed = std::numeric_limits<uint64_t>::max();
  point.origin.command = "coordinator sweep -m \"a b\"\n";
  point.origin.bf16_dot = true;
  point.result.wall_s = 1.25;
  point.result.output_tokens = 512;
  point.result.ttft_s = PercentilesOf({0.1, 0.3, 0.2});
  point.stages = {{.host = "n1", .last_layer = 14, .isa = "avx2"}, {.host = "n2", .first_layer = 14, .last_layer = 28}};
  point.prediction.emplace().output_tokens_per_s = 400;
  return point;
}

TEST(Percentiles, AreByNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Percentiles p = PercentilesOf(values);
  EXPECT_EQ(p.count, 100);
  EXPECT_EQ(p.mean, 50.5);
  EXPECT_EQ(p.p50, 50);
  EXPECT_EQ(p.p90, 90);
  EXPECT_EQ(p.p95, 95);
  EXPECT_EQ(p.p99, 99);
  EXPECT_EQ(p.max, 100);
  const Percentiles one = PercentilesOf({7});
  EXPECT_EQ(one.p50, 7);
  EXPECT_EQ(one.p99, 7);
  EXPECT_EQ(PercentilesOf({}), Percentiles());
}

TEST(SweepPoint, IsOneLineThatReadsBackAsItWas) {
  const SweepPoint point = Sample();
  const std::string line = SweepPointLine(point);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const SweepPoint read = ParseSweepPoint(line).value();
  EXPECT_EQ(read, point);
  EXPECT_TRUE(read.ok());
  EXPECT_TRUE(read.link_emulated());
}

TEST(SweepPoint, OfAFailureKeepsItsError) {
  SweepPoint point = Sample();
  point.error = "stage 1 on n2 is lost";
  point.prediction.reset();
  const SweepPoint read = ParseSweepPoint(SweepPointLine(point)).value();
  EXPECT_FALSE(read.ok());
  EXPECT_EQ(read, point);
}

TEST(SweepPoint, WritesNoNumberThatJsonCannotHold) {
  SweepPoint point = Sample();
  point.result.bubble = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(ParseSweepPoint(SweepPointLine(point)).value().result.bubble, 0);
}

TEST(SweepKey, IsThatOfTheConfigurationAlone) {
  SweepPoint point = Sample();
  const std::string key = SweepKey(point.config);
  EXPECT_EQ(key.size(), 16u);
  point.result.wall_s = 99;
  EXPECT_EQ(SweepKey(point.config), key);
  point.config.repetition = 1;
  EXPECT_NE(SweepKey(point.config), key);
}

TEST(SweepPoint, PassesOverFieldsThatItDoesNotKnow) {
  std::string line = SweepPointLine(Sample());
  line = absl::StrReplaceAll(line, {{"{\"version\"", "{\"later\":[{}],\"version\""}});
  EXPECT_EQ(ParseSweepPoint(line).value(), Sample());
}

TEST(SweepPoint, RefusesHostileLinesByField) {
  const std::string good = SweepPointLine(Sample());
  struct Case {
    std::string from, to, message;
  };
  const Case cases[] = {
      {"\"version\":1", "\"version\":2", "version: expected an integer, 1 to 1, found 2"},
      {"\"version\":1,", "", "version: expected a value, found none"},
      {"\"stages\":2", "\"stages\":4000000000", "config.stages: expected an integer, 0 to 1024"},
      {"\"stages\":2", "\"stages\":-1", "config.stages"},
      {"\"stages\":2", "\"stages\":2.5", "config.stages"},
      {"\"wall_s\":1.25", "\"wall_s\":-1", "result.wall_s: expected a number, 0 to "},
      {"\"wall_s\":1.25", "\"wall_s\":1e300", "result.wall_s"},
      {"\"wall_s\":1.25", "\"wall_s\":\"x\"", "result.wall_s"},
      {"\"count\":3", "\"count\":[]", "result.ttft_s.count"},
      {"\"host\":\"n2\"", "\"host\":7", "stages[1].host: expected a text"},
      {"\"config\":{", "\"config\":7,\"old\":{", "config: expected an object"},
      {"\"policy\":\"interleaved\"", "\"policy\":\"throttled\"", "key: expected"},
      {"\"policy\":\"interleaved\"", "\"policy\":\"other\"", "config.policy: expected one of prefill-first, "},
      {"\"stages\":[{", "\"stages\":[7,{", "stages[0]: expected an object"},
  };
  for (const Case& c : cases) {
    ASSERT_TRUE(absl::StrContains(good, c.from)) << c.from;
    const absl::StatusOr<SweepPoint> read = ParseSweepPoint(absl::StrReplaceAll(good, {{c.from, c.to}}));
    EXPECT_THAT(read.status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message))) << c.to;
  }
  for (const std::string& line :
       {std::string(), std::string("null"), std::string("[]"), std::string("{"), good.substr(0, good.size() / 2),
        std::string(1 << 17, '['), std::string(5 << 20, ' '), std::string("\xff\xfe", 2)}) {
    EXPECT_EQ(ParseSweepPoint(line).status().code(), absl::StatusCode::kInvalidArgument) << line.substr(0, 80);
  }
}

TEST(SweepPoint, RefusesMoreStagesThanAJobCanHave) {
  SweepPoint point = Sample();
  point.stages.resize(1025);
  EXPECT_THAT(ParseSweepPoint(SweepPointLine(point)).status().message(),
              HasSubstr("stages: expected a list of at most 1024 objects, found 1025"));
}

TEST(SweepPoint, ReadsTheSampleFile) {
  std::ifstream file(testing::SourcePath("tests/unit/coordinator/bench/sweep_sample.jsonl"));
  int lines = 0, failed = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const absl::StatusOr<SweepPoint> read = ParseSweepPoint(line);
    ASSERT_TRUE(read.ok()) << "line " << lines + 1 << ": " << read.status();
    EXPECT_EQ(SweepPointLine(*read), line + "\n");
    failed += read->ok() ? 0 : 1;
  }
  EXPECT_GT(lines, 20);
  EXPECT_EQ(failed, 1);
}

struct SweepFileTest : ::testing::Test {
  SweepFileTest() { std::filesystem::remove(path_); }
  ~SweepFileTest() override { std::filesystem::remove(path_); }

  static SweepPoint Point(int64_t stages, double wall_s) {
    SweepPoint point;
    point.config.stages = stages;
    point.result.wall_s = wall_s;
    return point;
  }
  void AppendRaw(const std::string& text) { std::ofstream(path_, std::ios::app | std::ios::binary) << text; }
  std::string Text() {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  const std::string path_ = ::testing::TempDir() + "/sweep_file_test." + std::to_string(getpid()) + ".jsonl";
};

TEST_F(SweepFileTest, KeepsPointsOverProcessesThatWriteToIt) {
  for (int64_t stages : {1, 2}) {
    ASSERT_TRUE(SweepFile::Open(path_).value()->Append(Point(stages, 1)).ok());
  }
  const auto records = ReadSweepFile(path_).value();
  EXPECT_THAT(records.points, ElementsAre(Point(1, 1), Point(2, 1)));
  EXPECT_FALSE(records.cut);
}

TEST_F(SweepFileTest, TakesHalfALineAtTheEndAwayBeforeItWritesOn) {
  const std::string whole = SweepPointLine(Point(1, 1));
  AppendRaw(whole + SweepPointLine(Point(2, 1)).substr(0, 100));
  auto records = ReadSweepFile(path_).value();
  EXPECT_TRUE(records.cut);
  EXPECT_EQ(records.points.size(), 1u);
  {
    auto file = SweepFile::Open(path_).value();
    EXPECT_EQ(Text(), whole);
    ASSERT_TRUE(file->Append(Point(3, 1)).ok());
  }
  EXPECT_THAT(ReadSweepFile(path_)->points, ElementsAre(Point(1, 1), Point(3, 1)));
}

TEST_F(SweepFileTest, KeepsAWholeLineThatLacksItsEnd) {
  std::string line = SweepPointLine(Point(1, 1));
  line.pop_back();
  AppendRaw(line);
  EXPECT_FALSE(ReadSweepFile(path_)->cut);
  ASSERT_TRUE((*SweepFile::Open(path_))->Append(Point(2, 1)).ok());
  EXPECT_THAT(ReadSweepFile(path_)->points, ElementsAre(Point(1, 1), Point(2, 1)));
}

TEST_F(SweepFileTest, TakesTheLastPointOfAKeyAtThePlaceOfTheFirst) {
  SweepPoint failed = Point(1, 0);
  failed.error = "lost";
  AppendRaw(SweepPointLine(failed) + SweepPointLine(Point(2, 1)) + SweepPointLine(Point(1, 5)));
  EXPECT_THAT(ReadSweepFile(path_)->points, ElementsAre(Point(1, 5), Point(2, 1)));
}

TEST_F(SweepFileTest, KeepsWhatWasMeasuredBesideTheSamePointSimulated) {
  SweepPoint simulated = Point(1, 3), again = Point(1, 4);
  simulated.simulated = again.simulated = true;
  AppendRaw(SweepPointLine(Point(1, 5)) + SweepPointLine(simulated) + SweepPointLine(again));
  EXPECT_THAT(ReadSweepFile(path_)->points, ElementsAre(Point(1, 5), again));
}

TEST_F(SweepFileTest, NamesTheLinesThatAreNoPoints) {
  AppendRaw("\n" + SweepPointLine(Point(1, 1)) + "{\"version\":1}\nrubbish\n" + SweepPointLine(Point(2, 1)));
  const auto records = ReadSweepFile(path_).value();
  EXPECT_THAT(records.points, ElementsAre(Point(1, 1), Point(2, 1)));
  EXPECT_THAT(records.refused, ElementsAre(HasSubstr("line 3: config: expected"), HasSubstr("line 4: the line:")));
}

TEST_F(SweepFileTest, IsWrittenByOneSweepAtATime) {
  auto first = SweepFile::Open(path_).value();
  EXPECT_THAT(SweepFile::Open(path_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is being written by another sweep")));
}

TEST_F(SweepFileTest, SaysThatThereIsNone) {
  EXPECT_EQ(ReadSweepFile(path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SweepFile::Open("/nowhere/points.jsonl").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stagecoach
