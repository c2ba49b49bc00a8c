#include "coordinator/bench/sweep_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
