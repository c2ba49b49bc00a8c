// `coordinator simulate`: what it says of a described cluster, and the replay of runs that really took place.

#include "absl/strings/str_cat.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/trace_check.h"

namespace stagecoach::testing {
namespace {

constexpr char kRacks[] =
    R"({"hosts": [{"name": "a", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000, "slots": 2},
                  {"name": "b", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000, "slots": 2}],
        "link": {"latency_us": 30, "bandwidth_gbit_s": 10, "jitter_us": 20},
        "uplinks": [{"name": "rack", "bandwidth_gbit_s": 10, "hosts": ["a"]}]})";

Words Simulate(const Words& more) {
  return Joined({"simulate", "--load-format", "dummy", "--shape", "qwen3-8b", "--type", "q8_0"}, more);
}

std::string WriteCluster(const TempDir& directory) {
  WriteFileOrDie(directory.File("cluster.json"), kRacks);
  return directory.File("cluster.json");
}

TEST(Simulate, ReportsASimulatedRunAsARealOneIsReported) {
  const TempDir directory;
  const ProgramResult result =
      Coordinator(Simulate({"--cluster", WriteCluster(directory), "--max-num-seqs", "16", "--requests", "40",
                            "--prompt", "64:512", "--output", "lognormal:60:0.5:200", "--arrivals", "poisson:2",
                            "--slo-ttft", "1s", "--step-log", directory.File("steps.jsonl")}));
  EXPECT_THAT(result, EndsWithCode(0, IsEmpty()));
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("simulated    40 requests in "), StartsWith("load         40 requests of uniform:64:512 prompt"),
            HasSubstr("; layers split 9,9,9,9\n"), HasSubstr("this run     "), HasSubstr("nothing ran"),
            HasSubstr("in 40 requests"), HasSubstr("bubble       "), HasSubstr("floor for this work"),
            HasSubstr("stage  host  layers"), HasSubstr("TTFT"), HasSubstr("goodput      "), HasSubstr("predicted    "),
            Not(HasSubstr(" 0.0 of them"))));
  const std::string replay = CoordinatorOut({"simulate", "--replay", directory.File("steps.jsonl")});
  EXPECT_THAT(replay, HasSubstr("over 4 stages, each as it was recorded"));
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
  EXPECT_EQ(point["result"]["output_tokens"], 64 * 128);
  EXPECT_EQ(point["config"]["prompt"], "512") << "the load that the verb plan has";
  EXPECT_EQ(point["result"]["relaunches"], 1);
  EXPECT_EQ(point["stages"].size(), 4u);
  EXPECT_EQ(Coordinator(words).out, result.out);
}

TEST(Simulate, StagesTakeAsMuchLongerAsTheyAreTold) {
  const TempDir directory;
  const Words words =
      Simulate({"--cluster", WriteCluster(directory), "--requests", "1", "--max-num-seqs", "1", "--json"});
  const auto gap_s = [&words](const Words& more) {
    return CoordinatorJson(Joined(words, more))["result"]["itl_s"]["mean"].get<double>();
  };
  EXPECT_NEAR(gap_s({"--stage-delay-us", "5000"}), gap_s({}) + 4 * 0.005, 1e-5);
}

TEST(Simulate, OneUserIsFasterByGuessesThatAreRight) {
  const TempDir directory;
  const std::string log = directory.File("steps.jsonl");
  const Words words = Simulate({"--cluster", WriteCluster(directory), "--requests", "1", "--max-num-seqs", "1",
                                "--prompt", "64", "--output", "400"});
  const auto gap_s = [&words](const Words& more) {
    return CoordinatorJson(Joined(Joined(words, {"--json"}), more))["result"]["itl_s"]["mean"].get<double>();
  };
  const double without_s = gap_s({}), with_s = gap_s({"--acceptance", "0.9", "--step-log", log});
  EXPECT_LT(with_s, without_s * 0.8);
  EXPECT_NEAR(gap_s({"--acceptance", log}) / with_s, 1, 0.1) << "those of a recorded run";
  EXPECT_THAT(CoordinatorOut({"simulate", "--replay", log}), HasSubstr("each as it was recorded"));
  EXPECT_THAT(CoordinatorOut(Joined(words, {"--acceptance", "1"})), HasSubstr("(accepted 100.0 %); 0 void,"));
}

TEST(Simulate, TracesARunAsARealOneIsTraced) {
  const TempDir directory;
  const std::string path = directory.File("out.json");
  const Json point = CoordinatorJson(
      Simulate({"--cluster", WriteCluster(directory), "--trace", path, "--fail-at", "4", "--relaunch", "2", "--json"}));
  ExpectWellFormedTrace(nlohmann::json::parse(ReadFileOrDie(path), nullptr, false));
  const std::string text = CoordinatorOut({"trace", "summary", path});
  EXPECT_THAT(text, AllOf(HasSubstr("job 1: simulated "), HasSubstr("job 2: simulated ")));
  const Json jobs = CoordinatorJson({"trace", "summary", path, "--json"})["jobs"];
  ASSERT_EQ(jobs.size(), 2u);
  int64_t micro_batches = 0, rows = 0;
  for (const Json& job : jobs) {
    EXPECT_EQ(job["simulated"], true);
    EXPECT_EQ(job["options"]["policy"], "throttled");
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
  const Json job = Json::parse(Lines(ReadFileOrDie(directory.File("steps.jsonl")))[0])["job"];
  EXPECT_EQ(job["micro_batches"], 4);
  EXPECT_EQ(job["most_groups"], 5);  // one more than stages, see PlanJob
  EXPECT_EQ(Coordinator(Joined(words, {"--decode-groups", "7"})).exit_code, 0);
}

// `hosts` of 16 cores, n0, n1, ..
void DescribeHosts(const std::string& file, int hosts) {
  Json cluster;
  for (int host = 0; host < hosts; ++host) {
    cluster["hosts"].push_back(
        {{"name", absl::StrCat("n", host)}, {"cores", 16}, {"memory_gib", 64}, {"read_gb_s", 80}, {"int8_gops", 3000}});
  }
  cluster["link"] = {{"latency_us", 30}, {"bandwidth_gbit_s", 10}};
  WriteFileOrDie(file, cluster.dump());
}

// More stages than any published shape has layers.
TEST(Simulate, RunsAPipelineOf512StagesOfADummyModelWithAsManyLayers) {
  const TempDir directory;
  DescribeHosts(directory.File("cluster.json"), 512);
  const Json point = CoordinatorJson(
      Joined(WordsOf("simulate --load-format dummy --shape qwen3-0.6b:layers=512 --type q8_0 --pp 512 --requests 4 "
                     "--prompt 32 --output 2 --json --cluster"),
             {directory.File("cluster.json")}));
  EXPECT_EQ(point["stages"].size(), 512u);
  EXPECT_EQ(point["stages"][511]["last_layer"], 512);
  EXPECT_EQ(point["result"]["output_tokens"], 8);
}

// The throttle keeps to the gap where chunks are short and the last stage is most of all head.
TEST(Simulate, FollowsASavedPlanAndGivesItsFigure) {
  const TempDir directory;
  DescribeHosts(directory.File("hosts.json"), 16);
  const Words load = WordsOf("--load-format dummy --shape qwen3-8b:layers=16 --type q8_0 --max-num-seqs 512 --cluster");
  const Words words = Joined(load, {directory.File("hosts.json")});
  const Json plan = CoordinatorJson(Joined(Joined({"plan", "--json", "-o", directory.File("plan.json")}, words), {}));
  const Words simulate = Joined(Joined({"simulate", "--plan", directory.File("plan.json")}, words), {});
  const Json point = CoordinatorJson(Joined(simulate, {"--requests", "512", "--json"}));
  EXPECT_NEAR(
      point["result"]["output_tokens_per_s"].get<double>() / plan["predictions"]["output_tokens_per_s"].get<double>(),
      1, 0.1);
  EXPECT_EQ(point["config"]["prefill_chunk"], plan["plan"]["prefill_chunk"]);
}

TEST(Simulate, PlacesAPlanOfFewerStagesOnTheHostsThatItNames) {
  const TempDir directory;
  const std::string file = directory.File("plan.json");
  DescribeHosts(directory.File("hosts.json"), 5);
  const Words cluster = {"--cluster", directory.File("hosts.json")};
  ASSERT_EQ(Coordinator(Joined(Words{"plan", "--load-format", "dummy", "--shape", "qwen3-8b", "--type", "q8_0", "--pp",
                                     "2", "-o", file},
                               cluster))
                .exit_code,
            0);
  Json document = Json::parse(ReadFileOrDie(file));
  document["plan"]["stages"][0]["host"] = "n4";
  document["plan"]["stages"][1]["host"] = "n1";
  document["plan"]["stages"][0]["layers"] = 20;
  document["plan"]["stages"][1]["layers"] = 16;
  WriteFileOrDie(file, document.dump());
  const Words words = Joined(Simulate({"--requests", "2", "--plan", file}), cluster);
  EXPECT_THAT(Coordinator(words),
              Prints(AllOf(StartsWith("load         2 requests of 512 prompt and 128 output tokens, closed, 8 at once; "
                                      "layers split 20,16\n"),
                           ContainsRegex("\n0 +n4 +0-19 "), ContainsRegex("\n1 +n1 +20-35 "))));
  EXPECT_THAT(Coordinator(Joined(Simulate({"--requests", "2", "--layer-split", "30,6"}), cluster)),
              Prints(ContainsRegex("\n1 +n1 +30-35 ")));
  document["plan"]["stages"][1]["host"] = "n9";
  WriteFileOrDie(directory.File("gone.json"), document.dump());
  document["plan"]["stages"][1]["host"] = "n1";
  document["plan"]["stages"][1]["cores"] = 99;
  WriteFileOrDie(directory.File("larger.json"), document.dump());
  ExpectRefused(Joined(Simulate({}), cluster),
                {{"--plan DIR/gone.json", 2, "has stage 1 on n9, which"},
                 {"--plan DIR/larger.json", 4, "99 cores for stage 1"},
                 {"--plan DIR/larger.json --pp 2", 2, "--plan fixes --pp"},
                 {"--plan DIR/plan.json --split-by-cost", 2, "leave one out"}},
                Refusal::kAnyLines, directory.path());
}

TEST(Simulate, PutsItsPointsBesideMeasuredOnesInTheReportOfASweep) {
  const TempDir directory;
  const std::string cluster = WriteCluster(directory), points = directory.File("points");
  for (const char* sequences : {"4", "16"}) {
    ASSERT_THAT(Coordinator(Simulate({"--cluster", cluster, "-o", points, "--max-num-seqs", sequences})),
                Prints(HasSubstr("nothing ran")));
  }
  EXPECT_THAT(CoordinatorOut({"sweep", "report", points}), HasSubstr(", 2 points"));
  EXPECT_THAT(ReadFileOrDie(points + "/report.html"), HasSubstr("All points are simulated: nothing ran."));
  EXPECT_THAT(ReadFileOrDie(points + "/points.csv"), ContainsRegex("\n2,\"[0-9a-f]+\",true,\"\","));
  const Json numbers = CoordinatorJson({"sweep", "report", points, "--json"});
  EXPECT_THAT(numbers["verdict"]["sentence"].get<std::string>(), StartsWith("By simulation, "));
  EXPECT_FALSE(numbers["figures"].empty());
  // Against another directory, whose own report stays what it was.
  const std::string others = directory.File("others"), alone = ReadFileOrDie(points + "/report.html");
  ASSERT_THAT(Coordinator(Simulate({"--cluster", cluster, "-o", others, "--max-num-seqs", "4"})),
              Prints(HasSubstr("nothing ran")));
  EXPECT_THAT(CoordinatorOut({"sweep", "report", points, others}),
              HasSubstr("report: " + points + "/comparison/report.html"));
  EXPECT_THAT(ReadFileOrDie(points + "/comparison/report.html"), HasSubstr("Against points, others changes"));
  EXPECT_EQ(ReadFileOrDie(points + "/report.html"), alone);
}

TEST(Simulate, DelaysEveryHopAsOverAnEmulatedLinkAndSaysSo) {
  const TempDir directory;
  const Words near = Simulate({"--cluster", WriteCluster(directory), "--requests", "1"});
  const Words far = Joined(near, {"--emulate-link", "latency=10ms"});
  const Json point = CoordinatorJson(Joined(near, {"--json"})), slow = CoordinatorJson(Joined(far, {"--json"}));
  EXPECT_EQ(slow["config"]["link_latency_s"], 0.01);
  // Five hops a token; each has a chance of its own of being late, by 20 us on average.
  const double added_s = slow["result"]["itl_s"]["mean"].get<double>() - point["result"]["itl_s"]["mean"].get<double>();
  EXPECT_NEAR(added_s, 0.050, 1e-3);
  EXPECT_THAT(Coordinator(far).out, HasSubstr("emulated: latency=10ms"));
}

TEST(Simulate, ComparesPoliciesOnTheSameLoad) {
  const TempDir directory;
  const Words words = Simulate({"--cluster", WriteCluster(directory), "--prompt", "64:512", "--policy"});
  const auto with = [&words](const Words& more) { return Coordinator(Joined(words, more)); };
  EXPECT_THAT(with({"all", "--slo-itl", "200ms"}),
              Prints(AllOf(HasSubstr("64 requests under each policy; nothing ran\n"), HasSubstr("TTFT p50 ms"),
                           HasSubstr("good %"), HasSubstr("\nthrottled "), HasSubstr("\nprefill-first "))));
  const ProgramResult lines = with({"phases,interleaved", "--json"});
  const ProgramResult alone = with({"interleaved", "--json"});
  EXPECT_EQ(lines.out, with({"phases", "--json"}).out + alone.out) << "each is simulated as if it were alone";
  EXPECT_THAT(with({"fair"}).err, HasSubstr("--policy is 'fair', expected one of prefill-first"));
  EXPECT_EQ(with({"all", "--step-log", directory.File("steps.jsonl")}).exit_code, 2);
}

TEST(Simulate, TakesTheFirstRequestsOfATraceWhereFewerAreAskedFor) {
  const TempDir directory;
  std::string trace;
  for (int i = 0; i < 5; ++i) {
    absl::StrAppend(&trace, "{\"arrival_s\":", i, ",\"prompt_tokens\":8,\"output_tokens\":4}\n");
  }
  WriteFileOrDie(directory.File("trace"), trace);
  const Words words = Simulate({"--arrivals", "trace:" + directory.File("trace"), "--json"});
  EXPECT_EQ(CoordinatorJson(words)["config"]["requests"], 5);
  EXPECT_EQ(CoordinatorJson(Joined(words, {"--requests", "3"}))["config"]["requests"], 3);
}

TEST(Simulate, SaysWhatIsWrongAndWhere) {
  const TempDir directory;
  WriteFileOrDie(directory.File("trace"),
                 "{\"arrival_s\":0,\"prompt_tokens\":1,\"output_tokens\":1}\n{\"arrival_s\":1}\n");
  WriteFileOrDie(directory.File("text"), "hosts: none\n");
  ExpectRefused({"simulate"},
                {
                    {"", 2, "--model is required"},
                    {"--replay DIR/text", 3, "line 1: expected a JSON object"},
                    {"--replay DIR/nowhere", 3, "cannot read"},
                },
                Refusal::kAnyLines, directory.path());
  ExpectRefused(
      Simulate({}),
      {
          {"--cluster DIR/text", 3, "expected JSON, found"},
          {"--cluster DIR/nowhere", 3, "nowhere"},
          {"--pp 0", 2, "--pp: 0 is out of range"},
          {"--pp 37", 2, "the model has 36 layers"},
          {"--arrivals trace:DIR/trace", 3, "line 2: 'prompt_tokens' is missing"},
          {"--arrivals often", 2, "--arrivals: 'often': expected closed, poisson:RATE or trace:FILE"},
          {"--acceptance 1.5", 2, "expected a probability from 0 to 1 or a step log, found 1.5"},
          {"--acceptance DIR/text", 3, "line 1: expected a JSON object"},
          {"--prompt lognormal:30000:2", 2, "but the context is"},
          {"--mtbf 0.001 --requests 1", 5, "let stages live longer, or relaunch faster"},
          {"--mtbf 0.001 --relaunch 1e9 --detect 1e9 --requests 1", 5, "takes longer than 20 years of simulated time"},
          {"--trace DIR/nowhere/out.json", 3, "--trace: cannot write"},
          {"-o DIR/text/points", 3, "-o: cannot make"},
      },
      Refusal::kAnyLines, directory.path());
}

// Runs of the real programs: their micro-batches come out of the replay as they were.
class ReplayOfARealRun : public ::testing::TestWithParam<int> {};

TEST_P(ReplayOfARealRun, GivesItsMicroBatchesOrderAndTotals) {
  const TempDir directory;
  int64_t prompt_tokens = 0;
  std::string lines;
  for (int i = 0; i < 24; ++i) {
    std::vector<int> prompt;
    // Some begin alike, and are found in the prefix cache.
    for (int t = 0; t < 5 + 37 * (i % 9); ++t) prompt.push_back(10 + (i % 5 * 31 + t * 7) % 200);
    prompt_tokens += static_cast<int64_t>(prompt.size());
    lines += BatchInputLine(absl::StrCat("r", i), {{"prompt", prompt}, {"max_tokens", 4 + 5 * (i % 7)}});
  }
  WriteFileOrDie(directory.File("in.jsonl"), lines);
  const std::string run =
      CoordinatorOut(Batch(directory.File("in.jsonl"), directory.File("out.jsonl"),
                           {"--pp", std::to_string(GetParam()), "--max-num-seqs", "6", "--prefill-chunk", "48", "-c",
                            "512", "--step-log", directory.File("steps.jsonl")}));
  const Json json = CoordinatorJson({"simulate", "--replay", directory.File("steps.jsonl"), "--json"});
  ASSERT_EQ(json["replayed"].size(), 1u);
  const Json& job = json["replayed"][0];
  EXPECT_EQ(job["stages"], GetParam());
  EXPECT_EQ(job["requests"], 24);
  int64_t rows = 0, completion_tokens = 0;
  for (const std::string& line : Lines(ReadFileOrDie(directory.File("steps.jsonl")))) {
    const Json record = Json::parse(line);
    for (const Json& slice : record["slices"]) rows += slice["count"].get<int64_t>();
  }
  for (const auto& [id, answer] : ReadBatchOutput(directory.File("out.jsonl"))) {
    completion_tokens += answer["response"]["body"]["usage"]["completion_tokens"].get<int64_t>();
  }
  EXPECT_EQ(job["micro_batches"], LinesIn(directory.File("steps.jsonl")));
  const int64_t known = job["prefill_rows"].get<int64_t>() + job["decode_rows"].get<int64_t>();
  EXPECT_EQ(known + job["guesses"].get<int64_t>(), rows);
  EXPECT_EQ(job["tokens"], completion_tokens);
  EXPECT_LT(job["prefill_rows"], prompt_tokens);
}

INSTANTIATE_TEST_SUITE_P(Stages, ReplayOfARealRun, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace stagecoach::testing
