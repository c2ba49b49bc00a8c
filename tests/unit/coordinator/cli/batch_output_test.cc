#include "coordinator/cli/batch_output.h"

#include <filesystem>
#include <set>

#include "common/json/json_value.h"
#include "coordinator/front/api/batch_line.h"
#include "coordinator/front/exit_codes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

BatchLine Line(int64_t number, const std::string& custom_id) {
  BatchLine line;
  line.number = number;
  line.custom_id = custom_id;
  if (custom_id.empty()) line.error = BatchError{"missing_custom_id", "no id"};
  return line;
}

std::string Answer(const std::string& custom_id) {
  return CompactJson(
      {{"id", "batch_req_1"}, {"custom_id", custom_id}, {"response", {{"status_code", 200}}}, {"error", nullptr}});
}

bool Answered(AnsweredLines* lines, int64_t number, const std::string& custom_id) {
  BatchLine line = Line(number, custom_id);
  return lines->CheckInputLine(&line);
}

TEST(AnsweredLines, KnowsAnswersByTheirCustomId) {
  AnsweredLines lines;
  ASSERT_TRUE(lines.AddOutputLine(Answer("a")).ok());
  EXPECT_TRUE(Answered(&lines, 1, "a"));
  EXPECT_FALSE(Answered(&lines, 2, "b"));
}

TEST(AnsweredLines, DoesNotRetryAFailedLine) {
  AnsweredLines lines;
  BatchLine failed = Line(4, "bad");
  failed.error = BatchError{"invalid_request", "why"};
  ASSERT_TRUE(lines.AddOutputLine(CompactJson(BatchErrorJson("1", failed))).ok());
  EXPECT_TRUE(Answered(&lines, 4, "bad"));
}

TEST(BatchEnding, IsGoodWhereALineHasItsAnswerAndElseSaysWhyNoneHas) {
  const auto code_of = [](const BatchTally& tally) { return ExitCodeOf(BatchEnding(tally, "out")); };
  EXPECT_EQ(code_of({}), ExitCode::kOk) << "no lines";
  EXPECT_EQ(code_of({.answers = 3}), ExitCode::kOk);
  EXPECT_EQ(code_of({.answers = 1, .wrong = 5, .uncomputed = 2}), ExitCode::kOk);
  EXPECT_EQ(code_of({.wrong = 1}), ExitCode::kInputFile);
  EXPECT_EQ(code_of({.uncomputed = 1}), ExitCode::kLostStages);
  EXPECT_EQ(code_of({.wrong = 5, .uncomputed = 2}), ExitCode::kLostStages);
  EXPECT_EQ(BatchEnding({.wrong = 2}, "out").message(), "no line has an answer: 2 have their errors in 'out'");
}

TEST(AnsweredLines, CountWhatAnEarlierRunMadeOfThem) {
  AnsweredLines lines;
  ASSERT_TRUE(lines.AddOutputLine(Answer("a")).ok());
  BatchLine failed = Line(2, "b");
  for (const char* code : {"failed", "invalid_request", "rejected"}) {
    failed.error = BatchError{code, "why"};
    ASSERT_TRUE(lines.AddOutputLine(CompactJson(BatchErrorJson("1", failed))).ok());
  }
  ASSERT_TRUE(lines.AddOutputLine(CompactJson(BatchErrorJson("1", Line(4, "")))).ok());
  EXPECT_FALSE(lines.AddOutputLine("{}").ok());
  EXPECT_EQ(lines.tally().answers, 1);
  EXPECT_EQ(lines.tally().uncomputed, 1);
  EXPECT_EQ(lines.tally().wrong, 3);
}

TEST(AnsweredLines, KnowsLinesWithoutACustomIdByTheirNumber) {
  AnsweredLines lines;
  ASSERT_TRUE(lines.AddOutputLine(CompactJson(BatchErrorJson("1", Line(4, "")))).ok());
  EXPECT_TRUE(Answered(&lines, 4, ""));
  EXPECT_FALSE(Answered(&lines, 5, ""));
}

TEST(AnsweredLines, TurnsARepeatedCustomIdToAnErrorOfItsOwn) {
  AnsweredLines lines;
  BatchLine first = Line(1, "a"), second = Line(2, "a");
  EXPECT_FALSE(lines.CheckInputLine(&first));
  EXPECT_FALSE(lines.CheckInputLine(&second));
  EXPECT_FALSE(first.error.has_value());
  ASSERT_TRUE(second.error.has_value());
  EXPECT_EQ(second.error->code, "duplicate_custom_id");
  EXPECT_THAT(BatchErrorJson("1", second)["error"]["message"].get<std::string>(), HasSubstr("line 2: "));
}

// Killed after the duplicate's error was written and before the first one's answer: the first one still needs its
// answer.
TEST(AnsweredLines, DoesNotTakeADuplicatesErrorForTheAnswer) {
  BatchLine second = Line(2, "a");
  second.error = BatchError{"duplicate_custom_id", "again"};
  AnsweredLines lines;
  ASSERT_TRUE(lines.AddOutputLine(CompactJson(BatchErrorJson("1", second))).ok());
  EXPECT_FALSE(Answered(&lines, 1, "a"));
  EXPECT_TRUE(Answered(&lines, 2, "a"));
}

TEST(AnsweredLines, RefusesLinesThatAreNotOurs) {
  AnsweredLines lines;
  for (const char* bad : {"", "x", "[]", "{}", R"({"custom_id":null,"response":null,"error":null})",
                          R"({"custom_id":7,"response":null,"error":null})"}) {
    EXPECT_FALSE(lines.AddOutputLine(bad).ok()) << bad;
  }
}

TEST(BatchOutput, AppendsWholeLinesAndFindsThemAgain) {
  const testing::TempDir directory;
  const std::string path = directory.File("out.jsonl");
  {
    AnsweredLines none;
    absl::StatusOr<std::unique_ptr<BatchOutput>> output = BatchOutput::Open(path, &none);
    ASSERT_TRUE(output.ok()) << output.status();
    ASSERT_TRUE((*output)->Append(Json::parse(Answer("a"))).ok());
    ASSERT_TRUE((*output)->Append(Json::parse(Answer("b"))).ok());
  }
  EXPECT_EQ(testing::ReadFileOrDie(path), Answer("a") + "\n" + Answer("b") + "\n");
  AnsweredLines lines;
  ASSERT_TRUE(BatchOutput::Open(path, &lines).ok());
  EXPECT_TRUE(Answered(&lines, 1, "a"));
  EXPECT_TRUE(Answered(&lines, 2, "b"));
}

TEST(BatchOutput, CutsATornLastLineAtAnyByte) {
  const testing::TempDir directory;
  const std::string path = directory.File("out.jsonl");
  const std::string whole = Answer("a") + "\n";
  const std::string torn = Answer("b");
  for (size_t bytes = 1; bytes <= torn.size(); ++bytes) {
    testing::WriteFileOrDie(path, whole + torn.substr(0, bytes));
    AnsweredLines lines;
    absl::StatusOr<std::unique_ptr<BatchOutput>> output = BatchOutput::Open(path, &lines);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(testing::ReadFileOrDie(path), whole);
    EXPECT_TRUE(Answered(&lines, 1, "a"));
    EXPECT_FALSE(Answered(&lines, 2, "b"));
  }
}

TEST(BatchOutput, LeavesAFileThatIsNotOursAsItIs) {
  const testing::TempDir directory;
  const std::string path = directory.File("notes.txt");
  for (const char* text : {"my notes", "my notes\n", "{\"a\":1}\n", "{}"}) {
    testing::WriteFileOrDie(path, text);
    AnsweredLines lines;
    const absl::Status status = BatchOutput::Open(path, &lines).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kInputFile) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_EQ(testing::ReadFileOrDie(path), text);
  }
}

TEST(BatchOutput, IsOpenInOneProcessAtATime) {
  const testing::TempDir directory;
  const std::string path = directory.File("out.jsonl");
  AnsweredLines lines;
  absl::StatusOr<std::unique_ptr<BatchOutput>> first = BatchOutput::Open(path, &lines);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(std::string(BatchOutput::Open(path, &lines).status().message()), HasSubstr("in use by another run"));
  first->reset();
  EXPECT_TRUE(BatchOutput::Open(path, &lines).ok());
}

TEST(BatchOutput, TakesOutTheLinesThatAPowerCutFilledWithZerosAndKeepsTheOthers) {
  const testing::TempDir directory;
  const std::string path = directory.File("out.jsonl");
  const std::string zeros(9000, '\0');
  const std::string a = Answer("a") + "\n", b = Answer("b") + "\n", c = Answer("c") + "\n";
  const struct {
    std::string text, kept;
  } cases[] = {
      {a + zeros + "\n" + c, a + c},
      {a + b.substr(0, 20) + zeros + c.substr(30) + c, a + c},  // newlines within the hole went with it
      {zeros + b + c, c},
      {a + zeros, a},
      {a + b.substr(0, 5) + zeros + b.substr(0, 9), a},
      {zeros, ""},
  };
  for (const auto& [text, kept] : cases) {
    testing::WriteFileOrDie(path, text);
    AnsweredLines lines;
    absl::StatusOr<std::unique_ptr<BatchOutput>> output = BatchOutput::Open(path, &lines);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(testing::ReadFileOrDie(path), kept);
    EXPECT_EQ(Answered(&lines, 1, "a"), kept.find(a) != std::string::npos);
    EXPECT_FALSE(Answered(&lines, 2, "b"));
    ASSERT_TRUE((*output)->Append(Json::parse(Answer("d"))).ok());
    ASSERT_TRUE((*output)->Sync().ok());
    EXPECT_EQ(testing::ReadFileOrDie(path), kept + Answer("d") + "\n");
    AnsweredLines second;
    EXPECT_THAT(std::string(BatchOutput::Open(path, &second).status().message()), HasSubstr("in use by another run"));
    const auto left = std::filesystem::directory_iterator(std::filesystem::path(path).parent_path());
    EXPECT_EQ(std::distance(begin(left), end(left)), 1) << "a file beside it is left over";
  }
}

TEST(BatchOutput, ARepairedFileKeepsItsModeAndItsPlaceBehindALink) {
  const testing::TempDir directory;
  const std::string path = directory.File("out.jsonl"), target = directory.File("elsewhere.jsonl");
  const std::string a = Answer("a") + "\n";
  testing::WriteFileOrDie(target, a + std::string(5000, '\0'));
  std::filesystem::permissions(target, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_symlink("elsewhere.jsonl", path);
  AnsweredLines lines;
  ASSERT_TRUE(BatchOutput::Open(path, &lines).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path));
  EXPECT_EQ(testing::ReadFileOrDie(target), a);
  EXPECT_EQ(std::filesystem::status(target).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(BatchOutput, AForeignFileWithZerosIsLeftAsItIs) {
  const testing::TempDir directory;
  const std::string path = directory.File("data.bin");
  const std::string text = std::string("\0\0\1", 3) + "\nELF and so on\n";
  testing::WriteFileOrDie(path, text);
  AnsweredLines lines;
  EXPECT_EQ(ExitCodeOf(BatchOutput::Open(path, &lines).status()), ExitCode::kInputFile);
  EXPECT_EQ(testing::ReadFileOrDie(path), text);
}

TEST(AnsweredLines, TellsIdsApartThatDifferInOneByteOrInLength) {
  AnsweredLines lines;
  std::set<std::string> ids;
  for (size_t length = 1; length < 40; ++length) {
    ids.insert(std::string(length, 'a'));
    ids.insert(std::string(length, '\0'));
    for (size_t i = 0; i < length; ++i) {
      std::string id(length, 'a');
      id[i] = 'b';
      ids.insert(id);
    }
  }
  for (const std::string& id : ids) {
    BatchLine line = Line(1, id);
    EXPECT_FALSE(lines.CheckInputLine(&line));
    EXPECT_FALSE(line.error.has_value()) << id;
  }
}

}  // namespace
}  // namespace stagecoach
