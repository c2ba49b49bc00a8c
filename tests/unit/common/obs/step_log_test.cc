#include "common/obs/step_log.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

TEST(StepLog, WritesOneLinePerMicroBatchWithItsSlicesAndStageTimes) {
  MicroBatch batch;
  batch.number = 7;
  batch.slices = {{.sequence = 3, .start = 64, .count = 2, .tokens = {1, 2}, .sample = true}};
  StepResult result;
  result.number = 7;
  result.times = {{.stage = 0, .received_us = 10, .start_us = 11, .end_us = 12},
                  {.stage = 1, .received_us = 13, .start_us = 14, .end_us = 15}};
  StepRecord record(batch, result);
  record.submit_us = 9;
  record.confirm_us = 16;
  EXPECT_EQ(
      StepLogLine(record),
      R"({"number":7,"slices":[{"sequence":3,"start":64,"count":2,"sample":true}],"submit_us":9,"confirm_us":16,)"
      R"("stages":[{"stage":0,"received_us":10,"start_us":11,"end_us":12},{"stage":1,"received_us":13,"start_us":14,"end_us":15}]})");
}

TEST(StepLog, NamesTheSlotsOfStatesWhereThereAreAny) {
  MicroBatch batch;
  batch.slices = {{.sequence = 1, .start = 0, .count = 8, .state_write = 0},
                  {.sequence = 2, .start = 9, .count = 1, .sample = true, .state_read = 4, .state_write = 5}};
  StepRecord record(batch, StepResult{});
  record.inputs.job = RecordedJob{{}, {.group_blocks = {5}, .state_slots = 12, .state_blocks = 3}};
  record.inputs.commands = {{.sequence = 1, .prompt_tokens = 8, .max_new_tokens = 1, .conversation_tokens = 5}};
  const std::string line = StepLogLine(record);
  EXPECT_NE(line.find(R"("count":8,"sample":false,"state_write":0})"), std::string::npos) << line;
  EXPECT_NE(line.find(R"("sample":true,"state_read":4,"state_write":5})"), std::string::npos) << line;
  const StepRecord read = ParseStepLogLine(line).value();
  EXPECT_EQ(read.slices[0].state_read, kNoSlot);
  EXPECT_EQ(read.slices[0].state_write, 0);
  EXPECT_EQ(read.slices[1].state_read, 4);
  EXPECT_EQ(read.slices[1].state_write, 5);
  EXPECT_EQ(read.inputs, record.inputs);
  // A log of before: nothing of them.
  record.inputs.job->state_slots = record.inputs.job->state_blocks = 0;
  record.inputs.commands[0].conversation_tokens = -1;
  for (StepRecord::Slice& slice : record.slices) slice.state_read = slice.state_write = kNoSlot;
  const std::string older = StepLogLine(record);
  EXPECT_EQ(older.find("state"), std::string::npos) << older;
  EXPECT_EQ(ParseStepLogLine(older).value().inputs, record.inputs);
}

TEST(StepLog, NamesGrammarsWhereThereAreAny) {
  MicroBatch batch{.number = 4};
  batch.drop_grammars = {2, 5};
  batch.define_grammars = {{7, "a program"}};
  StepRecord record(batch, StepResult{});
  record.inputs.commands.push_back({.sequence = 3, .prompt_tokens = 2, .max_new_tokens = 1});
  record.inputs.commands.push_back({.sequence = 4, .prompt_tokens = 2, .grammar = 77, .grammar_bytes = 9});
  const std::string line = StepLogLine(record);
  EXPECT_THAT(line, HasSubstr(R"("drop_grammars":[2,5],"define_grammars":[7])"));
  const StepRecord read = ParseStepLogLine(line).value();
  EXPECT_EQ(read.drop_grammars, record.drop_grammars);
  EXPECT_EQ(read.define_grammars, record.define_grammars);
  EXPECT_EQ(read.inputs.commands, record.inputs.commands);
  EXPECT_THAT(StepLogLine(StepRecord(MicroBatch{}, StepResult{})), Not(HasSubstr("gramm")));
}

TEST(StepLog, SaysWhichSlicesWereGuessesAndWhatBecameOfThem) {
  MicroBatch batch{.number = 4};
  StepResult result;
  for (const SequenceId sequence : {1, 2, 3}) {
    batch.slices.push_back({.sequence = sequence, .start = 9, .count = 1, .sample = true, .guess = sequence > 1});
    result.sampled.push_back({.sequence = sequence, .position = 10, .is_void = sequence == 3});
  }
  StepRecord record(batch, result);
  EXPECT_EQ(record.decode_rows(), 1);
  EXPECT_EQ(record.guess_rows(), 2);
  EXPECT_EQ(record.void_rows(), 1);
  record.inputs.job = RecordedJob{{}, {.group_blocks = {5}, .most_guesses = 3}};
  record.inputs.job->guess_places = 2;
  record.inputs.guess_places = 4;
  record.inputs.confirmed = 2;
  const std::string line = StepLogLine(record);
  EXPECT_THAT(line, HasSubstr(R"("sequence":1,"start":9,"count":1,"sample":true},{)"));
  EXPECT_THAT(line, HasSubstr(R"("sequence":2,"start":9,"count":1,"sample":true,"guess":"right"})"));
  EXPECT_THAT(line, HasSubstr(R"("sequence":3,"start":9,"count":1,"sample":true,"guess":"void"})"));
  const StepRecord read = ParseStepLogLine(line).value();
  EXPECT_EQ(read.inputs, record.inputs);
  EXPECT_EQ(read.slices[0].guess, GuessRecord::kNone);
  EXPECT_EQ(read.slices[1].guess, GuessRecord::kRight);
  EXPECT_EQ(read.slices[2].guess, GuessRecord::kVoid);
  EXPECT_THAT(ParseStepLogLine(absl::StrReplaceAll(line, {{"\"void\"", "\"lost\""}})).status().message(),
              HasSubstr("slices[2].guess"));
  // A log of before: nothing of them.
  EXPECT_THAT(StepLogLine(StepRecord(MicroBatch{}, StepResult{})),
              AllOf(Not(HasSubstr("guess")), Not(HasSubstr("confirmed"))));
}

TEST(StepLog, HasThePartsOfAStepThatTookTimeWhereTheJobAsksForAnAccount) {
  StepResult result;
  result.times = {{.stage = 0, .received_us = 10, .start_us = 11, .end_us = 12},
                  {.stage = 1, .received_us = 13, .start_us = 14, .end_us = 15}};
  result.times[0].account.resize(kStepParts);
  result.times[0].account[static_cast<size_t>(StepPart::kExpertsDown)] = {700, 200, 4096};
  result.times[0].account[static_cast<size_t>(StepPart::kSampling)].wait_ns = 5;
  result.times[1].account.resize(kStepParts);
  const StepRecord record(MicroBatch{}, result);
  const std::string line = StepLogLine(record);
  EXPECT_NE(line.find(R"("end_us":12,"parts":[{"part":"experts down","busy_ns":700,"wait_ns":200,"bytes":4096},)"
                      R"({"part":"sampling","wait_ns":5}]},)"),
            std::string::npos)
      << line;
  EXPECT_NE(line.find(R"("end_us":15,"parts":[]})"), std::string::npos) << line;
  EXPECT_EQ(ParseStepLogLine(line).value().times, record.times);
  const std::string wrong = absl::StrReplaceAll(line, {{"sampling", "guessing"}});
  EXPECT_NE(ParseStepLogLine(wrong).status().message().find("parts[1].part"), std::string::npos)
      << ParseStepLogLine(wrong).status();
}

TEST(StepLog, HasEverySettingThatTheJobBatchesBy) {
  StepRecord record;
  record.inputs.job = RecordedJob{{.slo_itl_s = 0.25}, {.group_blocks = {5}}};
  const std::string line = StepLogLine(record);
  int seen = 0;
  VisitBatchingSettings(*record.inputs.job, [&](const JobSetting& setting, auto&...) {
    ++seen;
    EXPECT_NE(line.find(absl::StrCat("\"", setting.name, "\":")), std::string::npos) << setting.name << ": " << line;
  });
  EXPECT_GT(seen, 5);
}

TEST(StepLog, AppendsAfterTheLinesOfAnEarlierJob) {
  const testing::TempDir dir;
  const std::string path = dir.File("steps.jsonl");
  for (const bool append : {false, true}) {
    auto log = StepLog::Open(path, append).value();
    log->Write(StepRecord());
    log.reset();
    if (!append) std::ofstream(path, std::ios::app) << "{\"number\":1,\"sl";  // a job that was killed in mid-write
  }
  const std::string text = testing::ReadFileOrDie(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.find("\"sl{"), std::string::npos) << text;
  EXPECT_EQ(text.back(), '\n');
}

TEST(StepLog, IsReadUpToTheHalfLineOfAKilledJob) {
  const testing::TempDir dir;
  const std::string path = dir.File("steps.jsonl");
  std::ofstream(path) << StepLogLine(StepRecord()) << "\n{\"number\":1,\"sl";
  EXPECT_EQ(ReadStepLog(path).value().size(), 1u);
  std::ofstream(path, std::ios::app) << "\n";  // now it is a line, and no good one
  EXPECT_NE(ReadStepLog(path).status().message().find("line 2"), absl::string_view::npos);
}

TEST(StepLog, SaysWhichFileItCannotWrite) {
  const auto log = StepLog::Open("/no/such/directory/steps.jsonl", false);
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.status().message().find("/no/such/directory/steps.jsonl"), absl::string_view::npos);
}

TEST(StepLog, KeepsTheOrderOfManyLinesAndWritesThemAllBeforeItCloses) {
  const testing::TempDir dir;
  const std::string path = dir.File("steps.jsonl");
  auto log = StepLog::Open(path, false).value();
  constexpr int kLines = 20000;  // several writes
  MicroBatch batch;
  batch.slices = {{.sequence = 3, .start = 64, .count = 1}};
  for (int i = 0; i < kLines; ++i) {
    batch.number = i;
    log->Write(StepRecord(batch, StepResult{}));
  }
  ASSERT_TRUE(log->Close().ok());
  std::ifstream in(path);
  int count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    ASSERT_EQ(line.rfind("{\"number\":" + std::to_string(count) + ",", 0), 0u) << line;
  }
  EXPECT_EQ(count, kLines);
}

TEST(StepLog, SaysOnceThatTheDiskIsFullAndWhichFileEndsThere) {
  auto log = StepLog::Open("/dev/full", true);
  ASSERT_TRUE(log.ok()) << log.status();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 1000; ++i) (*log)->Write(StepRecord());
  const absl::Status closed = (*log)->Close();
  log->reset();
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(closed.code(), absl::StatusCode::kDataLoss);
  const std::string expected = "cannot write the step log '/dev/full': No space left on device";
  EXPECT_NE(closed.message().find(expected), absl::string_view::npos) << closed;
  EXPECT_NE(printed.find(expected), std::string::npos) << printed;
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 1) << printed;
}

TEST(StepLog, KeepsWholeLinesWhenTheFileCannotGrow) {
  const testing::TempDir dir;
  const std::string path = dir.File("steps.jsonl");
  const std::string line = StepLogLine(StepRecord()) + "\n";
  const pid_t child = fork();  // the limit is for a process
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = 10 * line.size() + 5, .rlim_max = 10 * line.size() + 5};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto log = StepLog::Open(path, false);
    for (int i = 0; log.ok() && i < 20; ++i) (*log)->Write(StepRecord());
    _exit(log.ok() && !(*log)->Close().ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::string expected;
  for (int i = 0; i < 10; ++i) expected += line;
  EXPECT_EQ(testing::ReadFileOrDie(path), expected);
}

TEST(StepLog, EndsAtItsBoundWithWholeLinesAndCountsWhatComesAfter) {
  const testing::TempDir dir;
  const std::string path = dir.File("steps.jsonl");
  const std::string line = StepLogLine(StepRecord()) + "\n";
  StepLogFormat format = PlainStepLog();
  format.most_bytes = 10 * line.size() + 5;
  for (const auto& [lines, left_out] : {std::pair(4, 0), std::pair(8, 2), std::pair(1, 1)}) {
    auto log = StepLog::Open(path, /*append=*/true, format).value();
    for (int i = 0; i < lines; ++i) log->Write(StepRecord());
    StepRecord last;
    last.shutdown = true;  // which is no micro-batch
    log->Write(last);
    const absl::Status closed = log->Close();
    EXPECT_EQ(closed.ok(), left_out == 0) << closed;
    const std::string expected = absl::StrCat("' lacks ", left_out, left_out == 1 ? " micro-batch" : " micro-batches",
                                              " at its end, because it has at most 0 MiB");
    if (left_out > 0) {
      EXPECT_NE(closed.message().find(expected), absl::string_view::npos) << closed;
    }
  }
  EXPECT_EQ(testing::ReadFileOrDie(path).size(), 10 * line.size());
}

// A pipe that nobody reads stands for a disk that hangs.
TEST(StepLog, NeverWaitsForTheFile) {
  const testing::TempDir dir;
  const std::string path = dir.File("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  signal(SIGPIPE, SIG_IGN);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  auto log = StepLog::Open(path, true).value();
  MicroBatch batch;
  batch.slices.resize(4096);
  const size_t bytes = StepRecord(batch, StepResult{}).bytes();
  const size_t fit = StepLog::kMaxWaitingBytes / bytes;
  for (size_t i = 0; i < fit + 100; ++i) log->Write(StepRecord(batch, StepResult{}));  // ends, though nothing is read
  close(reader);
  const absl::Status closed = log->Close();
  EXPECT_NE(closed.message().find("Broken pipe"), absl::string_view::npos) << closed;
}

}  // namespace
}  // namespace stagecoach
