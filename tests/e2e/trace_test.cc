// --trace on real jobs, and what `coordinator trace` says of them.

#include <signal.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/trace_check.h"

namespace stagecoach::testing {
namespace {

class TraceTest : public ::testing::Test {
 protected:
  Words Traced(const Words& more) const {
    return Joined(Generate({"--pp", "2", "-p", kPrompt, "--ignore-eos", "--trace", path_}), more);
  }
  Json Summary() const { return CoordinatorJson({"trace", "summary", path_, "--json"}); }
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
    const auto written = [&] {
      const std::string text = std::filesystem::exists(path_) ? ReadFileOrDie(path_) : "";
      const std::vector<std::string> parts = absl::StrSplit(text, "\"ph\":\"b\"");
      return static_cast<int>(parts.size()) > count;
    };
    EXPECT_TRUE(front->WaitUntil(written, 60)) << "no " << count << " micro-batches; " << front->err();
  }

  const TempDir dir_;
  const std::string path_ = dir_.File("out.json");
};

TEST_F(TraceTest, AJobOfTwoStagesIsDrawnAndAccountedFor) {
  // Without guesses, of which there are more on one day than on another: a row for each token.
  ASSERT_THAT(Coordinator(Traced({"-n", "30", "--stage-delay-us", "2000", "--speculate", "off"})),
              EndsWithCode(0, IsEmpty()));
  const nlohmann::json events = nlohmann::json::parse(ReadFileOrDie(path_), nullptr, false);
  ExpectWellFormedTrace(events);
  std::string request;  // its life
  int prefill = 0, decode = 0, sends = 0, waits = 0, counters = 0, flows = 0;
  for (const nlohmann::json& event : events) {
    const std::string name = event["name"], phase = event["ph"];
    const nlohmann::json args = event.value("args", nlohmann::json::object());
    if (phase == "X" && name == "prefill" && args.value("prefill_rows", 0) == 5) {
      prefill += event["cname"] == "thread_state_running" ? 1 : 0;
    }
    if (phase == "X" && name == "decode" && args.value("decode_rows", 0) == 1) {
      decode += event["cname"] == "thread_state_iowait" ? 1 : 0;
    }
    if (phase == "X" && args.contains("request")) absl::StrAppend(&request, " ", name);
    if (phase == "X" && name == "send") ++sends;
    if (phase == "X" && name.rfind("wait for ", 0) == 0) ++waits;
    if (phase == "C") ++counters;
    if (phase == "s") ++flows;
  }
  EXPECT_EQ(prefill, 2);  // one on each stage
  EXPECT_EQ(decode, 2 * 29);
  EXPECT_THAT(request, HasSubstr(" prefill decode"));
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

  EXPECT_THAT(CoordinatorOut({"trace", "summary", path_}),
              AllOf(HasSubstr("30 micro-batches, 5 prefill rows and 29 decode rows"),
                    ContainsRegex("stage +host +layers +compute +send +wait upstream"), HasSubstr("mostly " + cause),
                    HasSubstr("\nremedy    "), HasSubstr("floor for this work"), Not(HasSubstr("\ncut "))));
}

TEST_F(TraceTest, ARelaunchedJobGoesOnInTheSameFile) {
  Subprocess front(CoordinatorProgram(), Traced({"-n", "60", "--stage-delay-us", "10000"}));
  AwaitMicroBatches(&front, 15);
  const std::vector<pid_t> stages = StagesOf(front.pid());
  ASSERT_FALSE(stages.empty());
  kill(stages[0], SIGKILL);
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
  EXPECT_EQ(before["jobs"][0]["cut"], true);
  EXPECT_THAT(CoordinatorOut({"trace", "summary", path_}), HasSubstr("\ncut       the job did not end in order"));
  const std::string finished = CoordinatorOut({"trace", "finish", path_});
  ExpectWellFormedTrace(nlohmann::json::parse(ReadFileOrDie(path_), nullptr, false));
  EXPECT_EQ(Summary()["jobs"][0]["micro_batches"], before["jobs"][0]["micro_batches"]);
}

TEST_F(TraceTest, SaysInOneSentenceWhatIsNotATrace) {
  WriteFileOrDie(path_, "{\"traceEvents\": []}\n");
  const ProgramResult result = Coordinator({"trace", "summary", path_});
  EXPECT_THAT(result, EndsWithCode(3, HasSubstr(absl::StrCat("'", path_, "' is no trace of this program: line 1"))));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result;
  ExpectRefused({"trace"},
                {{"summary DIR/none.json", 3, "none.json"},
                 {"", 2, "trace summary FILE"},
                 {"summary", 2, "file is required"},
                 {"draw DIR/out.json", 2, "draw"},
                 {"finish DIR/out.json --json", 2, "--json"}},
                Refusal::kAnyLines, dir_.path());
}

TEST_F(TraceTest, AFileThatCannotHoldOneIsRefusedBeforeTheRun) {
  for (const char* path : {"/nowhere/trace.json", "/dev/null"}) {
    EXPECT_THAT(Coordinator(Generate({"-p", kPrompt, "--trace", path})), EndsWithCode(3, HasSubstr("--trace: ")));
  }
}

}  // namespace
}  // namespace stagecoach::testing
