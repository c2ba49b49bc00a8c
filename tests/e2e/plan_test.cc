// `coordinator plan`: what it says, and whether a job takes the memory that it says.

#include <algorithm>

#include "absl/strings/str_replace.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

constexpr char kTwoHosts[] =
    R"({"hosts": [{"name": "a", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000},
                  {"name": "b", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000}],
        "link": {"latency_us": 30, "bandwidth_gbit_s": 10}})";

Words Plan(const Words& more, const std::string& shape = "qwen3-8b") {
  return Joined({"plan", "--load-format", "dummy", "--shape", shape, "--type", "q8_0"}, more);
}

// What it prints for this cluster, when all is well.
std::string PlanFor(const std::string& cluster, const Words& more, const std::string& shape = "qwen3-8b") {
  const TempDir directory;
  WriteFileOrDie(directory.File("cluster.json"), cluster);
  return CoordinatorOut(Joined(Plan({"--cluster", directory.File("cluster.json")}, shape), more));
}

TEST(Plan, ShowsStagesFiguresAndSentences) {
  const TempDir directory;
  WriteFileOrDie(directory.File("cluster.json"), kTwoHosts);
  const ProgramResult result = Coordinator(Plan({"--cluster", directory.File("cluster.json"), "--max-num-seqs", "32"}));
  EXPECT_THAT(result, EndsWithCode(0, IsEmpty()));
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("model     qwen3 8.2B Q8_0, 36 layers"), HasSubstr("stage  host  layers"),
                    HasSubstr("weights MiB"), HasSubstr("prefill   "), HasSubstr("decode    "),
                    HasSubstr("too few sequences"), HasSubstr("limit     stage 0 on "),
                    HasSubstr("with guesses of which 70 % are right (--acceptance), 1 row in flight; stages beyond "),
                    HasSubstr("hosts     2 of 2, 32 cores, in 2 independent jobs; no choice is better"),
                    HasSubstr("tokens per core-hour"), HasSubstr("use       --micro-batches ")));
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("2 independent jobs on their own hosts are better than one pipeline: the best single job would"),
            HasSubstr("coordinator bench --load-format dummy --shape qwen3-8b --type q8_0 --host a "),
            HasSubstr("would help most"), HasSubstr("no profile has measured this model"), Not(HasSubstr("~"))));
}

TEST(Plan, MarksEveryFigureThatRestsOnAnAssumption) {
  const std::string result = CoordinatorOut(Plan({"--host", "far1,far2"}, "qwen3-0.6b"));
  EXPECT_THAT(result, AllOf(HasSubstr("prefill   ~"), HasSubstr("decode    ~"), HasSubstr("all       ~"),
                            HasSubstr("bubble    ~"), HasSubstr("~ rests on assumptions:"), HasSubstr("far1, far2: "),
                            HasSubstr("links between hosts: 10 Gbit/s")));
}

TEST(Plan, AModelFileAndItsIndependentJobsAreNamed) {
  const TempDir directory;
  WriteFileOrDie(directory.File("cluster.json"), kTwoHosts);
  const std::string result =
      CoordinatorOut({"plan", "-m", DemoModelPath(), "--cluster", directory.File("cluster.json")});
  EXPECT_THAT(result, HasSubstr("coordinator batch -m " + DemoModelPath() +
                                " --host a --max-num-seqs 4 -i requests-0.jsonl -o answers-0.jsonl"));
}

TEST(Plan, ShowsTheDraftItsHostAndTheTimeOfAGuess) {
  const Words with_draft = {"--pp", "2", "--draft-model", "dummy://qwen3-0.6b/q8_0"};
  const std::string text = PlanFor(kTwoHosts, with_draft);
  EXPECT_THAT(text,
              AllOf(HasSubstr("\ndraft     qwen3 0.6B Q8_0 on a, 8 threads: weights "), HasSubstr(" ms a guess\n"),
                    HasSubstr("\nThe draft shares a with stage 0, which then has fewer cores than these figures")));
  const auto rows = [&](const Words& draft) {
    const Json json = ReadJson(PlanFor(kTwoHosts, Joined({"--pp", "2", "--acceptance", "1", "--json"}, draft)));
    EXPECT_EQ(json.contains("draft"), !draft.empty());
    if (!draft.empty()) {
      EXPECT_EQ(json["draft"]["host"], "a");
      EXPECT_GT(json["draft"]["guess_s"].get<double>(), 0.005);
    }
    return json["predictions"]["speculation"]["rows"].get<int>();
  };
  EXPECT_EQ(rows({}), 2);
  EXPECT_EQ(rows({"--draft-model", "dummy://qwen3-0.6b/q8_0"}), 2);
  EXPECT_EQ(rows({"--draft-model", "dummy://qwen3-14b/q8_0"}), 1) << "slower than the model, it gains nothing";
}

TEST(Plan, CountsTheStatesOfAJobsOwnSequences) {
  const std::string result = PlanFor(kTwoHosts, {"--max-num-seqs", "32", "-c", "4096"}, "qwen3.5-4b");
  EXPECT_THAT(result, HasSubstr("in 2 independent jobs"));
  EXPECT_THAT(result, HasSubstr("\nstates    56 on every stage, of 16 sequences at once and 40 cached snapshots; "
                                "they are counted as KV in job 0\n"));
}

TEST(Plan, SaysThatTheOneHostThatHoldsTheModelIsFasterAlone) {
  constexpr char kLargeAndSmall[] =
      R"({"hosts": [{"name": "large", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000},
                    {"name": "small", "cores": 2, "memory_gib": 3, "read_gb_s": 8, "int8_gops": 200}],
          "link": {"latency_us": 30, "bandwidth_gbit_s": 1}})";
  EXPECT_THAT(PlanFor(kLargeAndSmall, {"--kv-type", "q8_0", "--prefill-chunk", "256"}),
              AllOf(HasSubstr("hosts     1 of 2, 16 cores, in one job"), HasSubstr("Left out: small. With it: ")));
}

TEST(Plan, TheLinesThatStartJobsHaveWhatWasAskedFor) {
  EXPECT_THAT(PlanFor(kTwoHosts, {"--kv-type", "q8_0", "--prefill-chunk", "256", "-t", "4"}),
              AllOf(HasSubstr("--host a --threads 4 --prefill-chunk 256 --kv-type q8_0 -p 512"),
                    HasSubstr("--host b --threads 4")));
  // Of two stages each, with their split, chunk and micro-batches; the links are too slow for all four in one.
  const std::string small = absl::StrReplaceAll(
      kTwoHosts, {{"\"memory_gib\": 64", "\"memory_gib\": 6"}, {"\"latency_us\": 30", "\"latency_us\": 2000"}});
  EXPECT_THAT(PlanFor(absl::StrReplaceAll(small, {{R"({"hosts": [)", R"({"hosts": [
      {"name": "c", "cores": 16, "memory_gib": 6, "read_gb_s": 80, "int8_gops": 3000},
      {"name": "d", "cores": 16, "memory_gib": 6, "read_gb_s": 80, "int8_gops": 3000},)"}}),
                      {"--wire-dtype", "bf16", "--jobs", "2"}),
              AllOf(HasSubstr("in 2 independent jobs"), HasSubstr(" --layer-split "), HasSubstr(" --micro-batches "),
                    HasSubstr(" --wire-dtype bf16")));
}

TEST(Plan, SaysThatAPipelineThatWasAskedForDoesNotPay) {
  const std::string slow = absl::StrReplaceAll(kTwoHosts, {{"gbit_s\": 10", "gbit_s\": 0.01"}});
  EXPECT_THAT(PlanFor(slow, {"--pp", "2"}), HasSubstr("The pipeline does not pay: a alone would give "));
}

TEST(Plan, AdvisesFramesOfHalfTheSizeOnlyWhereTheyAreNot) {
  const std::string slow = absl::StrReplaceAll(kTwoHosts, {{"gbit_s\": 10", "gbit_s\": 0.001"}});
  EXPECT_THAT(PlanFor(slow, {"--pp", "2", "--wire-dtype", "f32"}),
              AllOf(HasSubstr("the link is the limit"), HasSubstr("--wire-dtype bf16 halves")));
  EXPECT_THAT(PlanFor(slow, {"--pp", "2", "--wire-dtype", "bf16"}),
              AllOf(HasSubstr("the link is the limit"), Not(HasSubstr("--wire-dtype"))));
}

TEST(Plan, DescribesTheCoordinatorsLinksWhereNobodyDid) {
  constexpr char kFrontAndOne[] =
      R"({"hosts": [{"name": "front", "cores": 2, "memory_gib": 4, "slots": 0},
                    {"name": "a", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000}]})";
  EXPECT_THAT(PlanFor(kFrontAndOne, {"--isa", "avx512-vnni"}, "qwen3-0.6b"), HasSubstr("does not name: 10 Gbit/s"));
}

TEST(Plan, TheSameAsJson) {
  const TempDir directory;
  const std::string result = PlanFor(kTwoHosts, {"--pp", "2", "--json", "-o", directory.File("plan.json")});
  const Json json = Json::parse(result);
  EXPECT_EQ(ReadFileOrDie(directory.File("plan.json")), result);
  ASSERT_EQ(json["stages"].size(), 2u);
  EXPECT_EQ(json["stages"][0]["first_layer"], 0);
  EXPECT_EQ(json["stages"][0]["last_layer"], json["stages"][1]["first_layer"]);
  EXPECT_EQ(json["stages"][1]["last_layer"], 36);
  for (const Json& stage : json["stages"]) {
    EXPECT_EQ(stage["total_bytes"].get<uint64_t>(),
              stage["weight_bytes"].get<uint64_t>() + stage["kv_bytes"].get<uint64_t>() +
                  stage["scratch_bytes"].get<uint64_t>() + stage["frame_bytes"].get<uint64_t>());
  }
  EXPECT_GT(json["predictions"]["decode"]["tokens_per_s"], 0);
  EXPECT_GT(json["predictions"]["prefill"]["ttft_s"], 0);
  EXPECT_EQ(json["predictions"]["measured_steps"], false);
  EXPECT_LE(json["predictions"]["speculation"]["rows"], json["plan"]["micro_batches"]);
  EXPECT_THAT(json["assumptions"], IsEmpty());
  EXPECT_EQ(json["plan"]["layers"], 36);
  EXPECT_EQ(json["choice"]["jobs"].size(), 1u);
  EXPECT_EQ(json["choice"]["jobs"][0]["plan"], json["plan"]);
  EXPECT_GT(json["choice"]["figures"]["tokens_per_core_hour"], 0);
}

TEST(Plan, SaysWhatIsWrong) {
  const TempDir directory;
  WriteFileOrDie(directory.File("bad.json"), "{\"hosts\": 3}");
  WriteFileOrDie(directory.File("small.json"),
                 R"({"hosts": [{"name": "a", "cores": 4, "memory_gib": 1, "read_gb_s": 20, "int8_gops": 800},
                          {"name": "b", "cores": 4, "memory_gib": 2, "read_gb_s": 20, "int8_gops": 800}]})");
  ExpectRefused({"plan"}, {
                              {"", 2, "--model is required"},
                              {"--load-format dummy --shape qwen3-7b --type q8_0", 3, "shapes are tiny, "},
                              {"--load-format dummy --shape tiny --type q8_0 -o /nowhere/plan.json", 3,
                               "--output: cannot write '/nowhere/plan.json': No such file"},
                              {"--load-format dummy --shape tiny --type q8_0 -o /dev/full", 3,
                               "--output: cannot write '/dev/full': No space left on device"},
                          });
  ExpectRefused(Plan({}),
                {
                    {"--cluster DIR/bad.json", 3, "bad.json"},
                    {"--profile DIR/none.json", 3, "none.json"},
                    {"--hostfile DIR/none", 4, "--hostfile"},
                    {"--pp 37", 2, "--pp: 37 stages, but the model has 36 layers"},
                    {"--host a,b --pp 3", 2, "3 stages need 3 slots"},
                    {"--cluster DIR/small.json --pp 3", 2, "have 2 slots"},
                    {"--cluster DIR/small.json", 4, "fit in no split"},
                    {"--host a --cluster x", 2, "name the hosts twice"},
                    {"-c 100", 2, "640 tokens"},
                    {"--host a,b --pp 2 --jobs 2", 2, "--pp asks for one job"},
                    {"--host a,b --layer-split 18,18 --goal latency", 2, "--layer-split leaves nothing to choose"},
                    {"--hostfile /", 4, "--hostfile: '/' is no regular file"},
                    {"--hostfile ''", 2, "--hostfile: is empty, expected FILE"},
                },
                Refusal::kAnyLines, directory.path());
}

TEST(Plan, ASavedPlanIsFollowedAndGivesTheSameText) {
  const TempDir directory;
  const std::string file = directory.File("plan.json");
  const ProgramResult plan = Coordinator({"plan", "-m", DemoModelPath(), "--layer-split", "3,5", "-t", "1",
                                          "--micro-batches", "3", "--prefill-chunk", "64", "-o", file});
  ASSERT_EQ(plan.exit_code, 0) << plan;
  const Words generate = {"generate", "-m", DemoModelPath(), "--raw", "-q", "-p", kPrompt, "-n", "6"};
  const Json json = CoordinatorJson(Joined(generate, {"--plan", file, "--output", "json"}));
  ASSERT_EQ(json["stages"].size(), 2u);
  EXPECT_EQ(json["stages"][0]["last_layer"], 3);
  EXPECT_EQ(json["stages"][1]["last_layer"], 8);
  EXPECT_EQ(json["stages"][0]["threads"], 1);
  EXPECT_EQ(json["text"].get<std::string>() + "\n", Coordinator(generate).out);
}

TEST(Plan, ASavedPlanThatNoLongerFitsIsRefusedWithWhatDiffers) {
  const TempDir directory;
  const std::string file = directory.File("plan.json");
  ASSERT_EQ(Coordinator({"plan", "-m", DemoModelPath(), "--pp", "2", "-o", file}).exit_code, 0);
  const Words generate = {"generate", "-m", DemoModelPath(), "-q", "-p", "x", "-n", "1", "--plan"};
  const auto refusal = [&](const std::string& plan, const Words& more, int exit_code) {
    const ProgramResult result = Coordinator(Joined(Joined(generate, {plan}), more));
    EXPECT_EQ(result.exit_code, exit_code) << result;
    return result.err;
  };
  EXPECT_THAT(refusal(file, {"--pp", "3"}, 2), HasSubstr("--plan fixes --pp"));
  EXPECT_THAT(refusal(directory.File("none"), {}, 3), HasSubstr("--plan: cannot read"));
  WriteFileOrDie(directory.File("bad"), "{}");
  EXPECT_THAT(refusal(directory.File("bad"), {}, 3), HasSubstr("is no saved plan"));
  Json json = Json::parse(ReadFileOrDie(file));
  const int cores = json["plan"]["stages"][0]["cores"].get<int>();
  json["plan"]["stages"][0]["cores"] = cores + 3;
  json["plan"]["header_hash"] = "0123456789abcdef";
  WriteFileOrDie(directory.File("other"), json.dump());
  EXPECT_THAT(refusal(directory.File("other"), {}, 4),
              AllOf(HasSubstr("the plan no longer fits"), HasSubstr("0123456789abcdef"),
                    HasSubstr(std::to_string(cores + 3) + " cores for stage 0"), HasSubstr("leave --plan out")));
  json["plan"]["layers"] = 9;
  json["plan"]["stages"][0]["layers"] = json["plan"]["stages"][0]["layers"].get<int>() + 1;
  WriteFileOrDie(directory.File("larger"), json.dump());
  EXPECT_THAT(refusal(directory.File("larger"), {}, 4), HasSubstr("is for a model of 9 layers, this one has 8"));
}

// The most that each stage ever held, by the order of the stages.
std::vector<double> PeakBytesOfStages(const Words& arguments) {
  Subprocess front(CoordinatorProgram(), arguments);
  std::map<pid_t, double> peaks;  // ranks start in order
  const auto ended = [&] {
    for (const pid_t stage : StagesOf(front.pid())) {
      peaks[stage] = std::max(peaks[stage], static_cast<double>(PeakResidentBytesOf(stage)));
    }
    return !IsAlive(front.pid());
  };
  EXPECT_TRUE(front.WaitUntil(ended, 600));
  const ProgramResult result = front.Wait();
  EXPECT_EQ(result.exit_code, 0) << result;
  std::vector<double> bytes;
  for (const auto& [pid, peak] : peaks) bytes.push_back(peak);
  return bytes;
}

// What the plan says that the stages hold when everything has been used once, but for grammars: bench has none.
std::vector<double> PlannedBytes(const Words& arguments) {
  std::vector<double> bytes;
  const Json json = CoordinatorJson(arguments);
  for (const Json& stage : json["stages"]) {
    bytes.push_back(stage["total_bytes"].get<double>() - stage["grammar_bytes"].get<double>());
  }
  return bytes;
}

// Resident is what was touched: so the job fills its pool (one prompt takes nearly all blocks), its largest micro-batch
// and a whole tile of the head (32 sequences). What a process has that holds no model is measured with a tiny one.
TEST(Plan, StagesHoldWhatWasPlanned) {
  const Words job = WordsOf("--load-format dummy --type q8_0 --block-size 16 --max-num-batched-tokens 512 -t 1");
  const Words bench = Joined({"bench", "-r", "1"}, job), plan = Joined({"plan", "--json"}, job);
  const std::vector<double> tiny =
      PeakBytesOfStages(Joined(bench, WordsOf("--shape tiny -p 64 -n 2 -b 4 --kv-cache-memory 1M")));
  const std::vector<double> tiny_planned =
      PlannedBytes(Joined(plan, WordsOf("--shape tiny --max-num-seqs 4 --kv-cache-memory 1M -c 64 --prompt-tokens 60 "
                                        "--output-tokens 4")));
  ASSERT_EQ(tiny.size(), 1u);
  ASSERT_EQ(tiny_planned.size(), 1u);
  const double base = tiny[0] - tiny_planned[0];
  const Words large = WordsOf("--shape qwen3-0.6b --layer-split 16,12 --kv-cache-memory 46M");
  const std::vector<double> held = PeakBytesOfStages(Joined(Joined(bench, large), WordsOf("-p 512 -n 2 -b 32")));
  const std::vector<double> planned =
      PlannedBytes(Joined(Joined(plan, large), WordsOf("--max-num-seqs 32 -c 544 --prompt-tokens 512 "
                                                       "--output-tokens 2 --micro-batches 2")));
  ASSERT_EQ(held.size(), 2u);
  ASSERT_EQ(planned.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const double net = held[i] - base;
    EXPECT_NEAR(net / planned[i], 1, 0.05) << "stage " << i << " held " << net << " bytes beside the " << base
                                           << " of an empty rank, planned were " << planned[i];
    RecordProperty("stage_" + std::to_string(i), std::to_string(net / planned[i]));
  }
}

}  // namespace
}  // namespace stagecoach::testing
