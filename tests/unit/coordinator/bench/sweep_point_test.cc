#include "coordinator/bench/sweep_point.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/matchers.h"
#include "tests/testing/paths.h"

namespace stagecoach {
namespace {

SweepPoint Sample() {
  SweepPoint point;
  point.config.model = "dummy:qwen3-0.6b:q8_0";
  point.config.stages = 2;
  point.config.policy = Policy::kInterleaved;
  point.config.concurrency = 8;
  point.config.prompt = "128";
  point.config.layer_split = {2, 1};
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

TEST(SweepPoint, WritesNothingThatItWouldNotReadAgain) {
  SweepPoint point = Sample();
  point.result.bubble = -7e-17;
  point.result.wall_s = 1e300;
  point.result.failed = -1;
  point.result.micro_batches = std::numeric_limits<int64_t>::max();
  point.prediction->bubble_imbalance = -7e-17;
  point.error = std::string(70'000, 'x') + "\xc3\xa9";
  point.config.prompt = std::string((64 << 10) - 1, 'p') + "\xc3\xa9";
  std::vector<std::string> left_out;
  const SweepPoint read = ParseSweepPoint(SweepPointLine(point), &left_out).value();
  EXPECT_THAT(left_out, IsEmpty());
  EXPECT_EQ(read.result.bubble, 0);
  EXPECT_EQ(read.result.wall_s, 1e18);
  EXPECT_EQ(read.result.failed, 0);
  EXPECT_EQ(read.prediction->bubble_imbalance, 0);
  EXPECT_EQ(read.error.size(), 64u << 10);
  EXPECT_EQ(read.config.prompt.size(), (64u << 10) - 1) << "without a half of the last letter";
  EXPECT_EQ(SweepPointLine(read), SweepPointLine(point));
}

TEST(SweepPoint, KeepsAMeasurementWhosePredictionCannotBeRead) {
  const std::string good = SweepPointLine(Sample());
  SweepPoint expected = Sample();
  expected.prediction.reset();
  for (const auto& [from, to, why] : std::initializer_list<std::tuple<std::string, std::string, std::string>>{
           {"\"bubble_imbalance\":0.0", "\"bubble_imbalance\":-7e-17",
            "prediction.bubble_imbalance: expected a number"},
           {"\"prediction\":{", "\"prediction\":7,\"old\":{", "prediction: expected an object"}}) {
    ASSERT_TRUE(absl::StrContains(good, from)) << from;
    std::vector<std::string> left_out;
    EXPECT_EQ(ParseSweepPoint(absl::StrReplaceAll(good, {{from, to}}), &left_out).value(), expected);
    EXPECT_THAT(left_out, ElementsAre(AllOf(HasSubstr(why), HasSubstr("; this point has no prediction here"))));
  }
}

TEST(SweepPoint, KeepsAMeasurementWithoutATimelineThatLeadsElsewhere) {
  SweepPoint kept = Sample();
  kept.trace = SweepTraceName(kept.config);
  std::vector<std::string> left_out;
  EXPECT_EQ(ParseSweepPoint(SweepPointLine(kept), &left_out).value(), kept);
  EXPECT_THAT(left_out, IsEmpty());
  SweepPoint expected = Sample();
  expected.trace.clear();
  for (const char* trace : {"../../../../etc/passwd", "traces/../../x.json", "traces/0123456789abcdef", "x.json",
                            "0123456789abcdef.json", "traces/0123456789ABCDEF.json", "traces/0123456789abcdef.json\n",
                            "traces/0123456789abcde.json", "javascript:alert(1)"}) {
    kept.trace = trace;
    left_out.clear();
    EXPECT_EQ(ParseSweepPoint(SweepPointLine(kept), &left_out).value(), expected) << trace;
    EXPECT_THAT(left_out, ElementsAre(AllOf(HasSubstr("trace: expected traces/ and 16 hexadecimal digits"),
                                            HasSubstr("; this point has no timeline here"))));
  }
  const std::string line = absl::StrReplaceAll(SweepPointLine(expected), {{"\"trace\":\"\"", "\"trace\":7"}});
  left_out.clear();
  EXPECT_EQ(ParseSweepPoint(line, &left_out).value(), expected);
  EXPECT_THAT(left_out, SizeIs(1));
}

TEST(SweepPoint, OfAnEarlierVersionOfTheRecordIsKeptApart) {
  std::ifstream file(testing::SourcePath("tests/unit/coordinator/bench/sweep_sample_version_1.jsonl"));
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const SweepPoint read = ParseSweepPoint(line).value();
    EXPECT_EQ(read.config.program_version, "0.1.0 (record 1)");
    EXPECT_EQ(read.config.header_hash, "4a1b6d2f90c37e58");
    EXPECT_GT(read.result.output_tokens_per_s, 0);
    SweepConfig now = read.config;
    now.program_version = "0.1.0";
    EXPECT_NE(RepetitionsKey(read.config), RepetitionsKey(now));
    EXPECT_THAT(ParseSweepPoint(absl::StrReplaceAll(line, {{"\"seed\":1", "\"seed\":2"}})).status().message(),
                HasSubstr("key: expected"));
  }
  EXPECT_EQ(lines, 3);
}

TEST(RepetitionsKey, IsThatOfAllRepetitions) {
  SweepConfig config = Sample().config, again = config;
  again.repetition = 4;
  EXPECT_EQ(RepetitionsKey(config), RepetitionsKey(again));
  again.seed = 1;
  EXPECT_NE(RepetitionsKey(config), RepetitionsKey(again));
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

TEST(SweepKey, OfPointsWithoutGuessesIsWhatItWasBeforeThereWereAny) {
  SweepPoint point = Sample();
  std::string line = SweepPointLine(point);
  EXPECT_THAT(line, HasSubstr("\"speculate\":\"off\",\"acceptance\":0"));
  line = absl::StrReplaceAll(line, {{",\"speculate\":\"off\",\"acceptance\":0.0", ""}});
  EXPECT_THAT(line, Not(HasSubstr("speculate")));
  EXPECT_EQ(ParseSweepPoint(line).value(), point);
  const std::string key = SweepKey(point.config);
  point.config.speculate = Speculate::kAuto;
  const std::string guesses = SweepKey(point.config);
  EXPECT_NE(guesses, key);
  point.config.acceptance = 0.7;
  EXPECT_NE(SweepKey(point.config), guesses);
  point.result.accepted_share = 0.8;
  point.result.guesses_right = 9;
  EXPECT_EQ(ParseSweepPoint(SweepPointLine(point)).value(), point);
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
      {"\"version\":2", "\"version\":3", "version: expected an integer, 1 to 2, found 3"},
      {"\"version\":2,", "", "version: expected a value, found none"},
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
      {"\"layer_split\":\"2,1\"", "\"layer_split\":\"2,-1\"", "config.layer_split: expected numbers such as 2,1"},
      {"\"layer_split\":\"2,1\"", "\"layer_split\":\"2;1\"", "config.layer_split: expected numbers such as 2,1"},
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

TEST_F(SweepFileTest, SaysWhatItLeftOutOfAPointAndWhichPointsAreOfAnotherVersion) {
  SweepPoint point = Sample(), other = Sample();
  point.config.program_version = "0.1.0";
  other.config.program_version = "0.0.9\x1b[31m";
  AppendRaw(absl::StrReplaceAll(SweepPointLine(point), {{"\"bubble_imbalance\":0.0", "\"bubble_imbalance\":-1"}}));
  AppendRaw(SweepPointLine(other));
  const auto records = ReadSweepFile(path_).value();
  EXPECT_EQ(records.points.size(), 2u);
  EXPECT_THAT(records.refused, IsEmpty());
  EXPECT_THAT(records.remarks,
              ElementsAre(HasSubstr("line 1: prediction.bubble_imbalance: expected a number, 0 to"),
                          AllOf(HasSubstr("1 point was measured by version '0.0.9"), Not(HasSubstr("\x1b")),
                                HasSubstr("' and is kept apart; this program is version "))));
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
