#include "coordinator/trace/trace_file.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/json/json_value.h"
#include "coordinator/trace/trace_lines.h"
#include "coordinator/trace/trace_summary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/trace_check.h"
#include "tests/unit/coordinator/trace/made_up_run.h"

namespace stagecoach {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::MadeUpRun;

class TraceFile : public ::testing::Test {
 protected:
  // What an engine writes of a run.
  void Log(const MadeUpRun& run, bool append) {
    const TraceJob job = run.Recorded();
    auto log = OpenTraceLog(path_, append, job.header);
    ASSERT_TRUE(log.ok()) << log.status();
    for (const TraceStep& step : job.steps) {
      StepRecord record;
      record.number = step.number;
      record.slices = {{.sequence = 1, .start = 9, .count = step.number == 0 ? 30 : 1, .sample = true}};
      record.ready_us = step.ready_us;
      record.submit_us = step.submit_us;
      record.confirm_us = step.confirm_us;
      record.queues = step.queues;
      for (const TraceSpan& span : step.stages) {
        record.times.push_back({.received_us = span.received_us,
                                .start_us = span.start_us,
                                .end_us = span.end_us,
                                .send_us = span.send_end_us - span.send_start_us,
                                .send_start_us = span.send_start_us});
      }
      (*log)->Write(record);
    }
    ASSERT_TRUE((*log)->Close().ok());
  }
  std::string Text() const { return testing::ReadFileOrDie(path_); }
  void Replace(const std::string& text) { testing::WriteFileOrDie(path_, text); }

  const testing::TempDir dir_;
  const std::string path_ = dir_.File("trace.json");
  const MadeUpRun run_{.compute_us = {900, 700},
                       .in_flight = 2,
                       .micro_batches = 20,
                       .turn_us = 5,
                       .hop_us = 60,
                       .send_us = 20,
                       .offset_us = {5000000, -5000000}};
};

TEST_F(TraceFile, WhatARunLeavesIsFinishedAndStaysSo) {
  Log(run_, false);
  const auto raw = ReadTrace(path_);
  ASSERT_TRUE(raw.ok()) << raw.status();
  EXPECT_FALSE(raw->front().aligned);
  EXPECT_EQ(raw->front().steps.size(), 20u);
  ASSERT_TRUE(FinishTrace(path_).ok());
  testing::ExpectWellFormedTrace(json::parse(Text()));
  const auto finished = ReadTrace(path_);
  ASSERT_TRUE(finished.ok()) << finished.status();
  ASSERT_EQ(finished->size(), 1u);
  const TraceJob& job = finished->front();
  EXPECT_TRUE(job.aligned);
  EXPECT_EQ(job.header.coordinator_host, "front");
  EXPECT_EQ(job.steps[0].prefill_rows, 30);
  EXPECT_EQ(job.steps[1].decode_rows, 1);
  EXPECT_EQ(job.steps[1].queues, (QueueCounts{.running = 2, .blocks_used = {3}, .blocks_free = {5}, .in_flight = 1}));
  EXPECT_NEAR(static_cast<double>(job.clocks[0].offset_us), 5000000, 100);
  TraceJob expected = raw->front();
  ASSERT_TRUE(AlignTrace(&expected).ok());
  for (size_t i = 0; i < job.steps.size(); ++i) {
    EXPECT_EQ(job.steps[i].stages[1].start_us, expected.steps[i].stages[1].start_us);
  }
  const std::string text = Text();
  ASSERT_TRUE(FinishTrace(path_).ok());
  EXPECT_EQ(Text(), text);
  EXPECT_FALSE(std::ifstream(path_ + ".part").is_open());
}

TEST_F(TraceFile, AKilledJobLeavesAFileThatCanBeReadFinishedAndGoneOnWith) {
  Log(run_, false);
  const std::string whole = Text();
  Replace(whole.substr(0, whole.size() - 40));  // in the middle of its last line
  auto jobs = ReadTrace(path_);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_EQ(jobs->front().steps.size(), 20u);
  MadeUpRun later = run_;
  later.start_us += 10000000;
  Log(later, true);  // it was launched again
  ASSERT_TRUE(FinishTrace(path_).ok());
  later.start_us += 10000000;
  Log(later, true);  // and another job follows
  jobs = ReadTrace(path_);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->size(), 3u);
  EXPECT_TRUE((*jobs)[1].aligned);
  EXPECT_FALSE((*jobs)[2].aligned);
  ASSERT_TRUE(FinishTrace(path_).ok());
  const json events = json::parse(Text());
  testing::ExpectWellFormedTrace(events);
  std::vector<std::string> begins;
  for (const json& event : events) {
    if (event["ph"] == "i") begins.push_back(event["name"]);
  }
  EXPECT_EQ(begins, (std::vector<std::string>{"the job begins", "job 2 begins", "job 3 begins"}));
}

TEST_F(TraceFile, AJobThatDidNothingIsOne) {
  Log({.compute_us = {1}, .micro_batches = 0}, false);
  ASSERT_TRUE(FinishTrace(path_).ok());
  const auto jobs = ReadTrace(path_);
  ASSERT_TRUE(jobs.ok());
  EXPECT_EQ(SummarizeTrace(jobs->front()).wall_us, 0);
}

TEST_F(TraceFile, FramesWhoseSendsOverlapAreDrawnOneAfterTheOther) {
  Log({.compute_us = {100, 100}, .in_flight = 4, .micro_batches = 20, .send_us = 170}, false);
  ASSERT_TRUE(FinishTrace(path_).ok());
  testing::ExpectWellFormedTrace(json::parse(Text()));
}

TEST_F(TraceFile, NamesComeThroughWhateverIsInThem) {
  TraceJob job = run_.Recorded();
  job.header.coordinator_host = "a\"b\\c\n\xff";
  job.header.options = {{"model_path", "/tmp/\"x\".gguf"}};
  ASSERT_TRUE(AlignTrace(&job).ok());
  ASSERT_TRUE(WriteTrace(path_, {job}).ok());
  testing::ExpectWellFormedTrace(json::parse(Text()));
  const auto jobs = ReadTrace(path_);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_EQ(jobs->front().header.options, job.header.options);
  EXPECT_EQ(jobs->front().header.coordinator_host, "a\"b\\c\n\xEF\xBF\xBD");
}

TEST_F(TraceFile, WhatIsNoTraceIsRefusedInOneSentence) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no job is in it"},
      {"[\n]\n", "line 2: it does not begin with a job"},
      {"{\"traceEvents\":[]}\n", "line 1: it does not begin with a job"},
      {std::string(20 << 20, 'x'), "longer than"},
      {std::string("\0\1\2\n", 4), "line 1"},
  };
  for (const auto& [text, expected] : cases) {
    Replace(text);
    const absl::Status status = ReadTrace(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("'", path_, "' is no trace of this program: ")));
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  }
  EXPECT_EQ(ReadTrace(dir_.File("none.json")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadTrace(dir_.path()).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TraceFile, EveryFactIsChecked) {
  Log(run_, false);
  const std::string good = Text();
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"format\":1", "\"format\":2", "this program reads 1"},
      {"\"number\":3,", "\"number\":1,", "micro-batch 1 comes after 2"},
      {"\"number\":3,", "\"number\":-3,", "`number`"},
      {"\"decode_rows\":1,", "\"decode_rows\":1e99,", "`decode_rows`"},
      {"\"decode_rows\":1,", "\"decode_rows\":18446744073709551615,", "`decode_rows`"},
      {"\"decode_rows\":1,", "", "`decode_rows` is not there"},
      {"\"blocks_used\":[3]", "\"blocks_used\":[3000000000]", "`blocks_used`"},
      {"\"blocks_used\":[3]", "\"blocks_used\":{}", "`blocks_used`"},
      {"\"stages\":[[", "\"stages\":[[1,2,3],[", "`stages` is not 2 long"},
      {"\"stages\":[[", "\"stages\":[\"x\",[", "lists of 3 or 5"},
      {"\"rank\":2", "\"rank\":\"two\"", "`rank`"},
      {"\"aligned\":false", "\"aligned\":true", "`clocks`"},
      {"\"args\":{\"number\":3", "\"args\":[{\"number\":3", "not a JSON object"},
  };
  for (const auto& [from, to, expected] : cases) {
    const size_t at = good.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::string bad = good;
    Replace(bad.replace(at, from.size(), to));
    EXPECT_THAT(std::string(ReadTrace(path_).status().message()), HasSubstr(expected)) << to;
  }
}

// Whatever a byte becomes: a trace, or one error.
TEST_F(TraceFile, DamageIsNeverMoreThanAnError) {
  Log(run_, false);
  const std::string good = Text();
  for (size_t at = 0; at < std::min<size_t>(good.size(), 3000); at += 17) {
    for (const char wrong : {'\0', '9', '"', '-', '[', '\n'}) {
      std::string bad = good;
      bad[at] = wrong;
      Replace(bad);
      auto jobs = ReadTrace(path_);
      if (!jobs.ok()) continue;
      for (TraceJob& job : *jobs) {
        if (AlignTrace(&job).ok()) SummarizeTrace(job);
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach
