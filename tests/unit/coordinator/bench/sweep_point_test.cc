#include "coordinator/bench/sweep_point.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  const absl::StatusOr<SweepPoint> read = ParseSweepPoint(line);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, point);
  EXPECT_TRUE(read->ok());
  EXPECT_TRUE(read->link_emulated());
}

TEST(SweepPoint, OfAFailureKeepsItsError) {
  SweepPoint point = Sample();
  point.error = "stage 1 on n2 is lost";
  point.prediction.reset();
  const absl::StatusOr<SweepPoint> read = ParseSweepPoint(SweepPointLine(point));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->ok());
  EXPECT_EQ(*read, point);
}

TEST(SweepPoint, WritesNoNumberThatJsonCannotHold) {
  SweepPoint point = Sample();
  point.result.bubble = std::numeric_limits<double>::quiet_NaN();
  const absl::StatusOr<SweepPoint> read = ParseSweepPoint(SweepPointLine(point));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->result.bubble, 0);
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
  const absl::StatusOr<SweepPoint> read = ParseSweepPoint(line);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Sample());
}

TEST(SweepPoint, RefusesHostileLinesByField) {
  const std::string good = SweepPointLine(Sample());
  struct Case {
    std::string from, to, message;
  };
  const Case cases[] = {
      {"\"version\":1", "\"version\":2", "version: expected 1, found 2"},
      {"\"version\":1,", "", "version: expected 1, found none"},
      {"\"stages\":2", "\"stages\":4000000000", "config.stages: expected an integer from 0 to 1024"},
      {"\"stages\":2", "\"stages\":-1", "config.stages"},
      {"\"stages\":2", "\"stages\":2.5", "config.stages"},
      {"\"wall_s\":1.25", "\"wall_s\":-1", "result.wall_s: expected a number from 0"},
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
    ASSERT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << c.to;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(c.message));
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
  EXPECT_THAT(std::string(ParseSweepPoint(SweepPointLine(point)).status().message()),
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

class SweepFileTest : public ::testing::Test {
 protected:
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
    auto file = SweepFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append(Point(stages, 1)).ok());
  }
  const auto records = ReadSweepFile(path_);
  ASSERT_TRUE(records.ok());
  EXPECT_THAT(records->points, ElementsAre(Point(1, 1), Point(2, 1)));
  EXPECT_FALSE(records->cut);
}

TEST_F(SweepFileTest, TakesHalfALineAtTheEndAwayBeforeItWritesOn) {
  const std::string whole = SweepPointLine(Point(1, 1));
  AppendRaw(whole + SweepPointLine(Point(2, 1)).substr(0, 100));
  auto records = ReadSweepFile(path_);
  ASSERT_TRUE(records.ok());
  EXPECT_TRUE(records->cut);
  EXPECT_EQ(records->points.size(), 1u);
  {
    auto file = SweepFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(Text(), whole);
    ASSERT_TRUE((*file)->Append(Point(3, 1)).ok());
  }
  EXPECT_THAT(ReadSweepFile(path_)->points, ElementsAre(Point(1, 1), Point(3, 1)));
}

TEST_F(SweepFileTest, KeepsAWholeLineThatLacksItsEnd) {
  std::string line = SweepPointLine(Point(1, 1));
  line.pop_back();
  AppendRaw(line);
  EXPECT_FALSE(ReadSweepFile(path_)->cut);
  {
    auto file = SweepFile::Open(path_);
    ASSERT_TRUE((*file)->Append(Point(2, 1)).ok());
  }
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
  const auto records = ReadSweepFile(path_);
  ASSERT_TRUE(records.ok());
  EXPECT_THAT(records->points, ElementsAre(Point(1, 1), Point(2, 1)));
  EXPECT_THAT(records->refused, ElementsAre(HasSubstr("line 3: config: expected"), HasSubstr("line 4: the line:")));
}

TEST_F(SweepFileTest, IsWrittenByOneSweepAtATime) {
  auto first = SweepFile::Open(path_);
  ASSERT_TRUE(first.ok());
  const absl::Status second = SweepFile::Open(path_).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("is being written by another sweep"));
}

TEST_F(SweepFileTest, SaysThatThereIsNone) {
  EXPECT_EQ(ReadSweepFile(path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SweepFile::Open("/nowhere/points.jsonl").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stagecoach
