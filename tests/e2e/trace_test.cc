// --trace on real jobs, and what `coordinator trace` says of them.

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/process_tree.h"
#include "tests/testing/trace_check.h"

namespace stagecoach::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TraceTest : public ::testing::Test {
 protected:
  Words Traced(const Words& more) const {
    Words arguments = Generate({"--pp", "2", "-p", kPrompt, "--ignore-eos", "--trace", path_});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Json Summary() const {
    const ProgramResult result = Coordinator({"trace", "summary", path_, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result;
    Json summary = Json::parse(result.out, nullptr, false);
    EXPECT_TRUE(summary.is_object()) << result;
    return summary;
  }
  // All that a summary must fulfil, whatever it is of.
  static void ExpectItAddsUp(const Json& job) {
    for (const Json& stage : job["stages"]) {
      int64_t sum = 0;
      for (const char* part : {"compute_us", "send_us", "wait_upstream_us", "wait_downstream_us", "idle_us"}) {
        EXPECT_GE(stage[part], 0);
        sum += stage[part].get<int64_t>();
      }
      EXPECT_EQ(sum, job["wall_us"]) << stage;
      EXPECT_GT(stage["compute_us"], 0);
    }
    double shares = 0;
    for (const auto& [cause, share] : job["bubble_shares"].items()) shares += share.get<double>();
    EXPECT_NEAR(shares, job["bubble"].get<double>(), 1e-6);
  }
  // Runs until so many micro-batches are in the file.
  void AwaitMicroBatches(Subprocess* front, int count) const {
    for (int i = 0; i < 1200; ++i) {
      const std::string text = std::filesystem::exists(path_) ? ReadFileOrDie(path_) : "";
      int found = 0;
      for (size_t at = 0; (at = text.find("\"ph\":\"b\"", at)) != std::string::npos; ++at) ++found;
      if (found >= count) return;
      front->WaitForOutput("\x01", 0.05);
    }
    ADD_FAILURE() << "no " << count << " micro-batches; " << front->err();
  }

  const TempDir dir_;
  const std::string path_ = dir_.File("out.json");
};

TEST_F(TraceTest, AJobOfTwoStagesIsDrawnAndAccountedFor) {
  const ProgramResult result = Coordinator(Traced({"-n", "30", "--stage-delay-us", "2000"}));
  ASSERT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.err, IsEmpty());
  const nlohmann::json events = nlohmann::json::parse(ReadFileOrDie(path_), nullptr, false);
  ExpectWellFormedTrace(events);
  int prefill = 0, decode = 0, sends = 0, waits = 0, counters = 0, flows = 0;
  for (const nlohmann::json& event : events) {
    const std::string name = event["name"], phase = event["ph"];
    if (phase == "X" && name == "prefill 5") prefill += event["cname"] == "thread_state_running" ? 1 : 0;
    if (phase == "X" && name == "decode 1") decode += event["cname"] == "thread_state_iowait" ? 1 : 0;
    if (phase == "X" && name == "send") ++sends;
    if (phase == "X" && name.rfind("wait for ", 0) == 0) ++waits;
    if (phase == "C") ++counters;
    if (phase == "s") ++flows;
  }
  EXPECT_EQ(prefill, 2);  // one on each stage
  EXPECT_EQ(decode, 2 * 29);
  EXPECT_GE(sends, 40);  // few are complete only when nobody asks any more
  EXPECT_GE(waits, 2 * 29);
  EXPECT_EQ(counters, 3 * 30);
  EXPECT_EQ(flows, 30);

  const Json summary = Summary();
  ASSERT_EQ(summary["jobs"].size(), 1u);
  const Json& job = summary["jobs"][0];
  EXPECT_EQ(job["micro_batches"], 30);
  EXPECT_EQ(job["prefill_rows"], 5);
  EXPECT_EQ(job["decode_rows"], 29);
  // One sequence over two stages: there are too few. What is most of it on a busy host, it decides: one step may take
  // longer than all others.
  const std::string cause = job["bubble_cause"];
  EXPECT_GT(job["bubble_shares"]["too_few_sequences"], 0);
  EXPECT_EQ(job["stages"][1]["clock_error_us"], 0);  // of this host
  EXPECT_EQ(job["options"]["stage_delay_us"], "2000");
  ExpectItAddsUp(job);

  const ProgramResult text = Coordinator({"trace", "summary", path_});
  EXPECT_EQ(text.exit_code, 0) << text;
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("30 micro-batches, 5 prefill rows and 29 decode rows"),
                    ContainsRegex("stage +host +layers +compute +send +wait upstream"), HasSubstr("mostly " + cause)));
}

TEST_F(TraceTest, ARelaunchedJobGoesOnInTheSameFile) {
  Subprocess front(CoordinatorProgram(), Traced({"-n", "60", "--stage-delay-us", "10000"}));
  AwaitMicroBatches(&front, 15);
  const std::vector<ProcessInfo> processes = Descendants(front.pid());
  const auto stage = std::find_if(processes.begin(), processes.end(), [](const ProcessInfo& process) {
    return process.command.find("stage_worker") != std::string::npos &&
           process.command.find("mpirun") == std::string::npos;
  });
  ASSERT_NE(stage, processes.end());
  kill(stage->pid, SIGKILL);
  const ProgramResult result = front.Wait(90);
  ASSERT_EQ(result.exit_code, 0) << result;
  ExpectWellFormedTrace(nlohmann::json::parse(ReadFileOrDie(path_), nullptr, false));
  const Json summary = Summary();
  ASSERT_EQ(summary["jobs"].size(), 2u);
  EXPECT_GE(summary["jobs"][0]["micro_batches"], 15);
  EXPECT_EQ(summary["jobs"][1]["options"]["trace_append"], "true");
  for (const Json& job : summary["jobs"]) ExpectItAddsUp(job);
}

TEST_F(TraceTest, WhatAKilledRunLeavesIsReadAndCanBeFinished) {
  Subprocess front(CoordinatorProgram(), Traced({"-n", "200", "--stage-delay-us", "10000"}));
  AwaitMicroBatches(&front, 15);
  front.Kill(SIGKILL);
  front.Wait(30);
  const Json before = Summary();
  EXPECT_GE(before["jobs"][0]["micro_batches"], 15);
  ExpectItAddsUp(before["jobs"][0]);
  const ProgramResult finished = Coordinator({"trace", "finish", path_});
  EXPECT_EQ(finished.exit_code, 0) << finished;
  ExpectWellFormedTrace(nlohmann::json::parse(ReadFileOrDie(path_), nullptr, false));
  EXPECT_EQ(Summary()["jobs"][0]["micro_batches"], before["jobs"][0]["micro_batches"]);
}

TEST_F(TraceTest, TheJobsOfABenchFollowEachOther) {
  const ProgramResult result =
      Coordinator({"bench", "-m", DemoModelPath(), "--pp", "1,2", "-p", "8", "-n", "4", "-r", "1", "--trace", path_});
  ASSERT_EQ(result.exit_code, 0) << result;
  ExpectWellFormedTrace(nlohmann::json::parse(ReadFileOrDie(path_), nullptr, false));
  const Json summary = Summary();
  ASSERT_EQ(summary["jobs"].size(), 2u);
  EXPECT_EQ(summary["jobs"][0]["stages"].size(), 1u);
  EXPECT_EQ(summary["jobs"][1]["stages"].size(), 2u);
}

TEST_F(TraceTest, SaysInOneSentenceWhatIsNotATrace) {
  WriteFileOrDie(path_, "{\"traceEvents\": []}\n");
  ProgramResult result = Coordinator({"trace", "summary", path_});
  EXPECT_EQ(result.exit_code, 3) << result;
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("'", path_, "' is no trace of this program: line 1")));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result;
  result = Coordinator({"trace", "summary", dir_.File("none.json")});
  EXPECT_EQ(result.exit_code, 3) << result;
  const std::pair<Words, std::string> wrong[] = {{Words{"trace"}, "trace summary FILE"},
                                                 {Words{"trace", "summary"}, "file is required"},
                                                 {Words{"trace", "draw", path_}, "draw"},
                                                 {Words{"trace", "finish", path_, "--json"}, "--json"}};
  for (const auto& [words, message] : wrong) {
    result = Coordinator(words);
    EXPECT_EQ(result.exit_code, 2) << result;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

TEST_F(TraceTest, AFileThatCannotHoldOneIsRefusedBeforeTheRun) {
  for (const char* path : {"/nowhere/trace.json", "/dev/null"}) {
    const ProgramResult result = Coordinator(Generate({"-p", kPrompt, "--trace", path}));
    EXPECT_EQ(result.exit_code, 3) << result;
    EXPECT_THAT(result.err, HasSubstr("--trace: "));
  }
}

}  // namespace
}  // namespace stagecoach::testing
