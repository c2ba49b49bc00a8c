#include "coordinator/cli/batch/batch_files.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "common/base/check.h"
#include "common/json/json_value.h"
#include "coordinator/front/exit_codes.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

// A pipe that a LineReader reads.
class PipedReader {
 public:
  explicit PipedReader(size_t max_line_bytes = 1000) {
    CHECK_EQ(pipe(ends_), 0);
    reader_.emplace(ends_[0], max_line_bytes);
  }
  ~PipedReader() {
    close(ends_[0]);
    Close();
  }

  void Write(const std::string& text) {
    CHECK_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void Close() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  std::optional<LineReader::Line> Next() { return reader_->TryNext(); }
  bool finished() const { return reader_->finished(); }

 private:
  int ends_[2];
  std::optional<LineReader> reader_;
};

TEST(LineReader, GivesLinesAsTheyComeWhileThePipeStaysOpen) {
  PipedReader pipe;
  EXPECT_FALSE(pipe.Next().has_value());
  pipe.Write("one\ntw");
  EXPECT_EQ(pipe.Next()->text, "one");
  EXPECT_FALSE(pipe.Next().has_value());
  pipe.Write("o\n");
  EXPECT_EQ(pipe.Next()->text, "two");
  EXPECT_FALSE(pipe.Next().has_value());
  EXPECT_FALSE(pipe.finished());
  pipe.Close();
  EXPECT_FALSE(pipe.Next().has_value());
  EXPECT_TRUE(pipe.finished());
}

TEST(LineReader, CountsBlankLinesButLeavesThemOut) {
  PipedReader pipe;
  pipe.Write("\n  \r\na\n\nb");
  pipe.Close();
  const std::optional<LineReader::Line> a = pipe.Next(), b = pipe.Next();
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(a->number, 3);
  EXPECT_EQ(b->number, 5);
  EXPECT_EQ(b->text, "b") << "the last line may lack its newline";
  EXPECT_FALSE(pipe.Next().has_value());
}

TEST(LineReader, DropsTheTextOfALineThatIsTooLongAndGoesOn) {
  PipedReader pipe(/*max_line_bytes=*/10);
  pipe.Write(std::string(5000, 'x') + "\nshort\n" + std::string(11, 'y'));
  pipe.Close();
  EXPECT_TRUE(pipe.Next()->too_long);
  EXPECT_EQ(pipe.Next()->text, "short");
  EXPECT_TRUE(pipe.Next()->too_long);
  EXPECT_FALSE(pipe.Next().has_value());
}

TEST(LineReader, SaysWhereInTheInputALineEnds) {
  PipedReader pipe;
  pipe.Write("a\n\nlonger line\nlast");
  pipe.Close();
  for (const int64_t end : {2, 15, 19}) EXPECT_EQ(pipe.Next()->end, end);
  EXPECT_TRUE(pipe.finished());
}

TEST(LineReader, SaysWhyItCannotRead) {
  LineReader reader(/*descriptor=*/open("/", O_RDONLY | O_CLOEXEC), 10);
  EXPECT_FALSE(reader.TryNext().has_value());
  EXPECT_TRUE(reader.finished());
  EXPECT_EQ(reader.status().message(), "cannot read the input: Is a directory");
}

TEST(LineReader, GivesNoLineThatAnErrorCutOff) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  ASSERT_EQ(write(ends[1], "whole\nhal", 9), 9);
  ASSERT_EQ(write(ends[0], "x", 1), 1);
  close(ends[1]);  // with bytes unread: the next read past what came fails
  LineReader reader(ends[0], 10);
  EXPECT_EQ(reader.TryNext()->text, "whole");
  while (!reader.finished()) EXPECT_FALSE(reader.TryNext().has_value());
  EXPECT_THAT(reader.status().message(), HasSubstr("cannot read the input: "));
  close(ends[0]);
}

BatchLine Line(int64_t number, const std::string& custom_id) {
  BatchLine line = {.number = number, .custom_id = custom_id};
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

struct AnsweredLinesTest : ::testing::Test {
  AnsweredLines lines;
};

TEST_F(AnsweredLinesTest, KnowsAnswersByTheirCustomId) {
  ASSERT_TRUE(lines.AddOutputLine(Answer("a")).ok());
  EXPECT_TRUE(Answered(&lines, 1, "a"));
  EXPECT_FALSE(Answered(&lines, 2, "b"));
}

TEST_F(AnsweredLinesTest, DoesNotRetryAFailedLine) {
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

TEST_F(AnsweredLinesTest, CountWhatAnEarlierRunMadeOfThem) {
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

TEST_F(AnsweredLinesTest, KnowsLinesWithoutACustomIdByTheirNumber) {
  ASSERT_TRUE(lines.AddOutputLine(CompactJson(BatchErrorJson("1", Line(4, "")))).ok());
  EXPECT_TRUE(Answered(&lines, 4, ""));
  EXPECT_FALSE(Answered(&lines, 5, ""));
}

TEST_F(AnsweredLinesTest, TurnsARepeatedCustomIdToAnErrorOfItsOwn) {
  BatchLine first = Line(1, "a"), second = Line(2, "a");
  EXPECT_FALSE(lines.CheckInputLine(&first));
  EXPECT_FALSE(lines.CheckInputLine(&second));
  EXPECT_FALSE(first.error.has_value());
  EXPECT_EQ(second.error.value().code, "duplicate_custom_id");
  EXPECT_THAT(BatchErrorJson("1", second)["error"]["message"].get<std::string>(), HasSubstr("line 2: "));
}

// Killed after the duplicate's error was written and before the first one's answer: the first one still needs its
// answer.
TEST_F(AnsweredLinesTest, DoesNotTakeADuplicatesErrorForTheAnswer) {
  BatchLine second = Line(2, "a");
  second.error = BatchError{"duplicate_custom_id", "again"};
  ASSERT_TRUE(lines.AddOutputLine(CompactJson(BatchErrorJson("1", second))).ok());
  EXPECT_FALSE(Answered(&lines, 1, "a"));
  EXPECT_TRUE(Answered(&lines, 2, "a"));
}

TEST_F(AnsweredLinesTest, RefusesLinesThatAreNotOurs) {
  for (const char* bad : {"", "x", "[]", "{}", R"({"custom_id":null,"response":null,"error":null})",
                          R"({"custom_id":7,"response":null,"error":null})"}) {
    EXPECT_FALSE(lines.AddOutputLine(bad).ok()) << bad;
  }
}

struct BatchOutputTest : ::testing::Test {
  std::unique_ptr<BatchOutput> Open() {
    lines_ = AnsweredLines();
    return BatchOutput::Open(path_, &lines_).value();
  }
  absl::Status Refusal() {
    AnsweredLines lines;
    return BatchOutput::Open(path_, &lines).status();
  }
  std::string Text() const { return testing::ReadFileOrDie(path_); }

  const testing::TempDir directory_;
  const std::string path_ = directory_.File("out.jsonl");
  const std::string a_ = Answer("a") + "\n", b_ = Answer("b") + "\n", c_ = Answer("c") + "\n";
  AnsweredLines lines_;  // of the file that was opened last
};

TEST_F(BatchOutputTest, AppendsWholeLinesAndFindsThemAgain) {
  for (const char* id : {"a", "b"}) ASSERT_TRUE(Open()->Append(Json::parse(Answer(id))).ok());
  EXPECT_EQ(Text(), a_ + b_);
  Open();
  EXPECT_TRUE(Answered(&lines_, 1, "a"));
  EXPECT_TRUE(Answered(&lines_, 2, "b"));
}

TEST_F(BatchOutputTest, CutsATornLastLineAtAnyByte) {
  for (size_t bytes = 1; bytes < b_.size(); ++bytes) {
    testing::WriteFileOrDie(path_, a_ + b_.substr(0, bytes));
    Open();
    EXPECT_EQ(Text(), a_);
    EXPECT_TRUE(Answered(&lines_, 1, "a"));
    EXPECT_FALSE(Answered(&lines_, 2, "b"));
  }
}

TEST_F(BatchOutputTest, LeavesAFileThatIsNotOursAsItIs) {
  for (const std::string& text : {std::string("my notes"), std::string("my notes\n"), std::string("{\"a\":1}\n"),
                                  std::string("{}"), std::string("\0\0\1", 3) + "\nELF and so on\n"}) {
    testing::WriteFileOrDie(path_, text);
    EXPECT_EQ(ExitCodeOf(Refusal()), ExitCode::kInputFile) << text;
    EXPECT_THAT(Refusal().message(), HasSubstr(path_));
    EXPECT_EQ(Text(), text);
  }
}

TEST_F(BatchOutputTest, IsOpenInOneProcessAtATime) {
  {
    const std::unique_ptr<BatchOutput> first = Open();
    EXPECT_THAT(Refusal().message(), HasSubstr("in use by another run"));
  }
  EXPECT_TRUE(Refusal().ok());
}

TEST_F(BatchOutputTest, TakesOutTheLinesThatAPowerCutFilledWithZerosAndKeepsTheOthers) {
  const std::string zeros(9000, '\0');
  const struct {
    std::string text, kept;
  } cases[] = {
      {a_ + zeros + "\n" + c_, a_ + c_},
      {a_ + b_.substr(0, 20) + zeros + c_.substr(30) + c_, a_ + c_},  // newlines within the hole went with it
      {zeros + b_ + c_, c_},
      {a_ + zeros, a_},
      {a_ + b_.substr(0, 5) + zeros + b_.substr(0, 9), a_},
      {zeros, ""},
  };
  for (const auto& [text, kept] : cases) {
    testing::WriteFileOrDie(path_, text);
    const std::unique_ptr<BatchOutput> output = Open();
    EXPECT_EQ(Text(), kept);
    EXPECT_EQ(Answered(&lines_, 1, "a"), kept.find(a_) != std::string::npos);
    EXPECT_FALSE(Answered(&lines_, 2, "b"));
    ASSERT_TRUE(output->Append(Json::parse(Answer("d"))).ok());
    ASSERT_TRUE(output->Sync().ok());
    EXPECT_EQ(Text(), kept + Answer("d") + "\n");
    EXPECT_THAT(Refusal().message(), HasSubstr("in use by another run"));
    const auto left = std::filesystem::directory_iterator(directory_.path());
    EXPECT_EQ(std::distance(begin(left), end(left)), 1) << "a file beside it is left over";
  }
}

TEST_F(BatchOutputTest, ARepairedFileKeepsItsModeAndItsPlaceBehindALink) {
  constexpr auto kMode = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  const std::string target = directory_.File("elsewhere.jsonl");
  testing::WriteFileOrDie(target, a_ + std::string(5000, '\0'));
  std::filesystem::permissions(target, kMode);
  std::filesystem::create_symlink("elsewhere.jsonl", path_);
  Open();
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(testing::ReadFileOrDie(target), a_);
  EXPECT_EQ(std::filesystem::status(target).permissions(), kMode);
}

TEST_F(AnsweredLinesTest, TellsIdsApartThatDifferInOneByteOrInLength) {
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
