// `coordinator simulate`: what it says of a described cluster, and the replay of runs that really took place.

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/subprocess.h"
#include "tests/testing/trace_check.h"

namespace stagecoach::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kRacks[] =
    R"({"hosts": [{"name": "a", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000, "slots": 2},
                  {"name": "b", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000, "slots": 2}],
        "link": {"latency_us": 30, "bandwidth_gbit_s": 10, "jitter_us": 20},
        "uplinks": [{"name": "rack", "bandwidth_gbit_s": 10, "hosts": ["a"]}]})";

Words Simulate(const Words& more) {
  return Joined({"simulate", "--load-format", "dummy", "--shape", "qwen3-8b", "--type", "q8_0"}, more);
}

std::string WriteCluster(const TempDir& directory) {
  std::ofstream(directory.File("cluster.json")) << kRacks;
  return directory.File("cluster.json");
}

TEST(Simulate, ReportsASimulatedRunAsARealOneIsReported) {
  const TempDir directory;
  const ProgramResult result =
      Coordinator(Simulate({"--cluster", WriteCluster(directory), "--max-num-seqs", "16", "--requests", "40",
                            "--prompt", "64:512", "--output", "lognormal:60:0.5:200", "--arrivals", "poisson:2",
                            "--slo-ttft", "1s", "--step-log", directory.File("steps.jsonl")}));
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("simulated    40 requests in "), HasSubstr("nothing ran"), HasSubstr("in 40 requests"),
            HasSubstr("bubble       "), HasSubstr("floor for this work"), HasSubstr("stage  host  layers"),
            HasSubstr("TTFT"), HasSubstr("goodput      "), HasSubstr("predicted    "), Not(HasSubstr(" 0.0 of them"))));
  const ProgramResult replay = Coordinator({"simulate", "--replay", directory.File("steps.jsonl")});
  EXPECT_EQ(replay.exit_code, 0) << replay;
  EXPECT_THAT(replay.out, HasSubstr("over 4 stages, each as it was recorded"));
}

TEST(Simulate, GivesTheRecordOfASweepsPointTheSameEveryTime) {
  const TempDir directory;
  const Words words = Simulate({"--cluster", WriteCluster(directory), "--seed", "7", "--fail-at", "3", "--json"});
  const ProgramResult result = Coordinator(words);
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json point = Json::parse(result.out);
  EXPECT_EQ(point["simulated"], true);
  EXPECT_EQ(point["config"]["stages"], 4);
  EXPECT_EQ(point["result"]["requests"], 64);
  EXPECT_EQ(point["result"]["output_tokens"], 64 * 64);
  EXPECT_EQ(point["result"]["relaunches"], 1);
  EXPECT_EQ(point["stages"].size(), 4u);
  EXPECT_EQ(Coordinator(words).out, result.out);
}

TEST(Simulate, StagesTakeAsMuchLongerAsTheyAreTold) {
  const TempDir directory;
  Words words = Simulate({"--cluster", WriteCluster(directory), "--requests", "1", "--max-num-seqs", "1", "--json"});
  const auto gap_s = [&words] {
    const ProgramResult result = Coordinator(words);
    EXPECT_EQ(result.exit_code, 0) << result;
    return Json::parse(result.out)["result"]["itl_s"]["mean"].get<double>();
  };
  const double plain_s = gap_s();
  words.insert(words.end(), {"--stage-delay-us", "5000"});
  EXPECT_NEAR(gap_s(), plain_s + 4 * 0.005, 1e-5);
}

TEST(Simulate, TracesARunAsARealOneIsTraced) {
  const TempDir directory;
  const std::string path = directory.File("out.json");
  const ProgramResult result = Coordinator(
      Simulate({"--cluster", WriteCluster(directory), "--trace", path, "--fail-at", "4", "--relaunch", "2", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json point = Json::parse(result.out);
  ExpectWellFormedTrace(nlohmann::json::parse(ReadFileOrDie(path), nullptr, false));
  const ProgramResult text = Coordinator({"trace", "summary", path});
  ASSERT_EQ(text.exit_code, 0) << text;
  EXPECT_THAT(text.out, AllOf(HasSubstr("job 1: simulated "), HasSubstr("job 2: simulated ")));
  const Json jobs = Json::parse(Coordinator({"trace", "summary", path, "--json"}).out)["jobs"];
  ASSERT_EQ(jobs.size(), 2u);
  int64_t micro_batches = 0, rows = 0;
  for (const Json& job : jobs) {
    EXPECT_EQ(job["simulated"], true);
    EXPECT_EQ(job["options"]["policy"], "POLICY_THROTTLED");
    micro_batches += job["micro_batches"].get<int64_t>();
    rows += job["prefill_rows"].get<int64_t>() + job["decode_rows"].get<int64_t>();
    ASSERT_EQ(job["stages"].size(), 4u);
    for (const Json& stage : job["stages"]) {
      int64_t sum = 0;
      for (const char* part : {"compute_us", "send_us", "wait_upstream_us", "wait_downstream_us", "idle_us"}) {
        sum += stage[part].get<int64_t>();
      }
      EXPECT_EQ(sum, job["wall_us"]) << stage;
    }
  }
  // What was on its way when the stage was lost is in the report, for it was handed out, and in no trace.
  const Json& reported = point["result"];
  EXPECT_LE(micro_batches, reported["micro_batches"]);
  EXPECT_GT(micro_batches, reported["micro_batches"].get<int64_t>() - 10);
  EXPECT_LE(rows, reported["prefill_rows"].get<int64_t>() + reported["decode_rows"].get<int64_t>());
}

TEST(Simulate, LeavesTheGroupsToTheJobWhereARunDoes) {
  const TempDir directory;
  const Words words = Simulate({"--cluster", WriteCluster(directory), "--requests", "40", "--max-num-seqs", "40",
                                "--step-log", directory.File("steps.jsonl")});
  ASSERT_EQ(Coordinator(words).exit_code, 0);
  std::ifstream log(directory.File("steps.jsonl"));
  std::string line;
  std::getline(log, line);
  const Json job = Json::parse(line)["job"];
  EXPECT_EQ(job["micro_batches"], 4);
  EXPECT_EQ(job["most_groups"], 5);  // one more than stages, see PlanJob
  Words more = words;
  more.insert(more.end(), {"--decode-groups", "7"});
  EXPECT_EQ(Coordinator(more).exit_code, 0);
}

// More stages than any published shape has layers.
TEST(Simulate, RunsAPipelineOf512StagesOfADummyModelWithAsManyLayers) {
  const TempDir directory;
  Json cluster;
  for (int host = 0; host < 512; ++host) {
    cluster["hosts"].push_back(
        {{"name", absl::StrCat("n", host)}, {"cores", 16}, {"memory_gib", 64}, {"read_gb_s", 80}, {"int8_gops", 3000}});
  }
  std::ofstream(directory.File("cluster.json")) << cluster.dump();
  const ProgramResult result = Coordinator(
      {"simulate", "--load-format", "dummy", "--shape", "qwen3-0.6b:layers=512", "--type", "q8_0", "--pp", "512",
       "--cluster", directory.File("cluster.json"), "--requests", "4", "--prompt", "32", "--output", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json point = Json::parse(result.out);
  EXPECT_EQ(point["stages"].size(), 512u);
  EXPECT_EQ(point["stages"][511]["last_layer"], 512);
  EXPECT_EQ(point["result"]["output_tokens"], 8);
}

TEST(Simulate, PutsItsPointsBesideMeasuredOnesInTheReportOfASweep) {
  const TempDir directory;
  const std::string cluster = WriteCluster(directory), points = directory.File("points");
  for (const char* sequences : {"4", "16"}) {
    const ProgramResult result =
        Coordinator(Simulate({"--cluster", cluster, "-o", points, "--max-num-seqs", sequences}));
    ASSERT_EQ(result.exit_code, 0) << result;
    EXPECT_THAT(result.out, HasSubstr("nothing ran"));
  }
  const ProgramResult report = Coordinator({"sweep", "report", points});
  ASSERT_EQ(report.exit_code, 0) << report;
  EXPECT_THAT(report.out, HasSubstr(", 2 points"));
  EXPECT_THAT(ReadFileOrDie(points + "/report.html"), HasSubstr("All points are simulated: nothing ran."));
  EXPECT_THAT(ReadFileOrDie(points + "/points.csv"), ContainsRegex("\n1,\"[0-9a-f]+\",true,\"\","));
}

TEST(Simulate, DelaysEveryHopAsOverAnEmulatedLinkAndSaysSo) {
  const TempDir directory;
  const Words near = Simulate({"--cluster", WriteCluster(directory), "--requests", "1", "--json"});
  Words far = near;
  far.insert(far.end(), {"--emulate-link", "latency=10ms"});
  const Json point = Json::parse(Coordinator(near).out), slow = Json::parse(Coordinator(far).out);
  EXPECT_EQ(slow["config"]["link_latency_s"], 0.01);
  // Five hops a token; each has a chance of its own of being late, by 20 us on average.
  const double added_s = slow["result"]["itl_s"]["mean"].get<double>() - point["result"]["itl_s"]["mean"].get<double>();
  EXPECT_NEAR(added_s, 0.050, 1e-3);
  far.pop_back();
  far.insert(far.end(), {"latency=10ms"});
  far.erase(std::find(far.begin(), far.end(), "--json"));
  EXPECT_THAT(Coordinator(far).out, HasSubstr("emulated: latency=10ms"));
}

TEST(Simulate, ComparesPoliciesOnTheSameLoad) {
  const TempDir directory;
  const Words words = Simulate({"--cluster", WriteCluster(directory), "--prompt", "64:512", "--policy"});
  const auto with = [&words](const Words& more) {
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    return Coordinator(all);
  };
  const ProgramResult table = with({"all", "--slo-itl", "200ms"});
  EXPECT_EQ(table.exit_code, 0) << table;
  EXPECT_THAT(table.out, AllOf(HasSubstr("64 requests under each policy; nothing ran\n"), HasSubstr("TTFT p50 ms"),
                               HasSubstr("good %"), HasSubstr("\nthrottled "), HasSubstr("\nprefill-first ")));
  const ProgramResult lines = with({"phases,interleaved", "--json"});
  const ProgramResult alone = with({"interleaved", "--json"});
  const ProgramResult first = with({"phases", "--json"});
  EXPECT_EQ(lines.out, first.out + alone.out) << "each is simulated as if it were alone";
  EXPECT_THAT(with({"fair"}).err, HasSubstr("--policy is 'fair', expected one of prefill-first"));
  EXPECT_EQ(with({"all", "--step-log", directory.File("steps.jsonl")}).exit_code, 2);
}

TEST(Simulate, TakesTheFirstRequestsOfATraceWhereFewerAreAskedFor) {
  const TempDir directory;
  {
    std::ofstream trace(directory.File("trace"));
    for (int i = 0; i < 5; ++i) trace << "{\"arrival_s\":" << i << ",\"prompt_tokens\":8,\"output_tokens\":4}\n";
  }
  const Words words = Simulate({"--arrivals", "trace:" + directory.File("trace"), "--json"});
  EXPECT_EQ(Json::parse(Coordinator(words).out)["config"]["requests"], 5);
  Words fewer = words;
  fewer.insert(fewer.end(), {"--requests", "3"});
  EXPECT_EQ(Json::parse(Coordinator(fewer).out)["config"]["requests"], 3);
}

TEST(Simulate, SaysWhatIsWrongAndWhere) {
  const TempDir directory;
  std::ofstream(directory.File("trace"))
      << "{\"arrival_s\":0,\"prompt_tokens\":1,\"output_tokens\":1}\n{\"arrival_s\":1}\n";
  std::ofstream(directory.File("text")) << "hosts: none\n";
  struct Case {
    Words words;
    int exit_code;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{"simulate"}, 2, "--model is required"},
      {Simulate({"--cluster", directory.File("text")}), 3, "expected JSON, found"},
      {Simulate({"--cluster", directory.File("nowhere")}), 3, "nowhere"},
      {Simulate({"--pp", "0"}), 2, "--pp: 0 is out of range"},
      {Simulate({"--pp", "37"}), 2, "the model has 36 layers"},
      {Simulate({"--arrivals", "trace:" + directory.File("trace")}), 3, "line 2: 'prompt_tokens' is missing"},
      {Simulate({"--arrivals", "often"}), 2, "--arrivals: 'often': expected closed, poisson:RATE or trace:FILE"},
      {Simulate({"--prompt", "lognormal:30000:2"}), 2, "but the context is"},
      {Simulate({"--mtbf", "0.001", "--requests", "1"}), 5, "let stages live longer, or relaunch faster"},
      {Simulate({"--mtbf", "0.001", "--relaunch", "1e9", "--detect", "1e9", "--requests", "1"}), 5,
       "takes longer than 20 years of simulated time"},
      {Simulate({"--trace", directory.File("nowhere/out.json")}), 3, "--trace: cannot write"},
      {Simulate({"-o", directory.File("text") + "/points"}), 3, "-o: cannot make"},
      {{"simulate", "--replay", directory.File("text")}, 3, "line 1: expected a JSON object"},
      {{"simulate", "--replay", directory.File("nowhere")}, 3, "cannot read"},
  };
  for (const Case& wrong : cases) {
    const ProgramResult result = Coordinator(wrong.words);
    EXPECT_EQ(result.exit_code, wrong.exit_code) << result;
    EXPECT_THAT(result.err, HasSubstr(wrong.message));
  }
}

// Runs of the real programs: their micro-batches come out of the replay as they were.
class ReplayOfARealRun : public ::testing::TestWithParam<int> {};

TEST_P(ReplayOfARealRun, GivesItsMicroBatchesOrderAndTotals) {
  const TempDir directory;
  int64_t prompt_tokens = 0;
  {
    std::ofstream in(directory.File("in.jsonl"));
    for (int i = 0; i < 24; ++i) {
      std::vector<int> prompt;
      // Some begin alike, and are found in the prefix cache.
      for (int t = 0; t < 5 + 37 * (i % 9); ++t) prompt.push_back(10 + (i % 5 * 31 + t * 7) % 200);
      prompt_tokens += static_cast<int64_t>(prompt.size());
      in << BatchInputLine("r" + std::to_string(i), {{"prompt", prompt}, {"max_tokens", 4 + 5 * (i % 7)}}) << "\n";
    }
  }
  const ProgramResult run =
      Coordinator(Batch(directory.File("in.jsonl"), directory.File("out.jsonl"),
                        {"--pp", std::to_string(GetParam()), "--max-num-seqs", "6", "--prefill-chunk", "48", "-c",
                         "512", "--step-log", directory.File("steps.jsonl")}));
  ASSERT_EQ(run.exit_code, 0) << run;
  const ProgramResult replay = Coordinator({"simulate", "--replay", directory.File("steps.jsonl"), "--json"});
  ASSERT_EQ(replay.exit_code, 0) << replay;
  const Json json = Json::parse(replay.out);
  ASSERT_EQ(json["replayed"].size(), 1u);
  const Json& job = json["replayed"][0];
  EXPECT_EQ(job["stages"], GetParam());
  EXPECT_EQ(job["requests"], 24);
  int64_t micro_batches = 0, rows = 0, completion_tokens = 0;
  std::ifstream log(directory.File("steps.jsonl"));
  for (std::string line; std::getline(log, line); ++micro_batches) {
    const Json record = Json::parse(line);
    for (const Json& slice : record["slices"]) rows += slice["count"].get<int64_t>();
  }
  for (const auto& [id, answer] : ReadBatchOutput(directory.File("out.jsonl"))) {
    completion_tokens += answer["response"]["body"]["usage"]["completion_tokens"].get<int64_t>();
  }
  EXPECT_EQ(job["micro_batches"], micro_batches);
  EXPECT_EQ(job["prefill_rows"].get<int64_t>() + job["decode_rows"].get<int64_t>(), rows);
  EXPECT_EQ(job["tokens"], completion_tokens);
  EXPECT_LT(job["prefill_rows"], prompt_tokens);
}

INSTANTIATE_TEST_SUITE_P(Stages, ReplayOfARealRun, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace stagecoach::testing
