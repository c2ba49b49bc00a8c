#include "coordinator/cli/sweep/sweep_options.h"

#include <filesystem>
#include <map>
#include <set>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "common/host/host_info.h"
#include "common/json/json_value.h"
#include "coordinator/cli/verb.h"
#include "coordinator/plan/saved_plan.h"
#include "coordinator/report/sweep_cells.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using Words = std::vector<std::string>;

// A sweep or a simulation with an option of its own, and why others give no other key.
struct Changed {
  const char* option;
  Words values;  // each gives another key than the usual ones and than the others; none: see `why`
  const char* why = "";
  Words beside = {};  // what it needs, in both
};

Words With(Words words, const std::string& option, const std::string& value) {
  words.push_back(option);
  if (value != "given") words.push_back(value);
  return words;
}

// The names of the options of a verb, without the dashes of none: "--pp", "-o".
std::set<std::string> OptionsOf(MakeVerb* make) {
  CLI::App app;
  const std::unique_ptr<Verb> verb = make();
  verb->AddOptions(&app);
  std::set<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    const auto& longs = option->get_lnames();
    names.insert(longs.empty() ? "-" + option->get_snames().front() : "--" + longs.front());
  }
  return names;
}

void ExpectEveryOptionOnce(MakeVerb* make, const std::vector<Changed>& all) {
  std::set<std::string> known;
  for (const Changed& changed : all) {
    EXPECT_TRUE(known.insert(changed.option).second) << changed.option;
    EXPECT_EQ(changed.values.empty(), *changed.why != '\0') << changed.option << ": other keys, or a reason";
  }
  EXPECT_EQ(OptionsOf(make), known) << "an option decides a point's value, or it is said why not";
}

// Both the name in progress lines and the label in charts.
void ExpectNamesApart(const SweepConfig& a, const SweepConfig& b, bool simulated, const std::string& what) {
  const PointNames names({a, b});
  EXPECT_NE(names.Of(a), names.Of(b)) << what;
  std::vector<SweepPoint> points(2);
  points[0].config = a;
  points[1].config = b;
  points[0].simulated = points[1].simulated = simulated;
  const std::vector<SweepCell> cells = SweepCells({{"", "", points}});
  ASSERT_EQ(cells.size(), 2u) << what;
  const CellLabels labels(PointersTo(cells), {});
  EXPECT_NE(labels.Of(cells[0]), labels.Of(cells[1])) << what;
}

void ExpectApart(const std::vector<std::pair<std::string, SweepConfig>>& points, bool simulated) {
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const std::string what = points[j].first + " | " + points[i].first;
      EXPECT_NE(RepetitionsKey(points[i].second), RepetitionsKey(points[j].second)) << what;
      ExpectNamesApart(points[i].second, points[j].second, simulated, what);
    }
  }
}

struct SweepKeyTest : ::testing::Test {
  SweepKeyTest() {
    WriteTrace(1);
    testing::WriteFileOrDie(file("model.gguf"), testing::ReadFileOrDie(testing::DemoModelPath()));
    WritePlan("plan", {{.host = HostName(), .layers = 2}, {.host = HostName(), .layers = 1}}, /*here=*/true);
  }
  void WritePlan(const std::string& name, const std::vector<SavedStage>& stages, bool here) const {
    SavedPlan plan;
    SetModelOf(*OpenModel("dummy://tiny/q8_0").value(), &plan);
    plan.stages = stages;
    plan.micro_batches = 3;
    plan.prefill_chunk = 64;
    plan.here = here;
    testing::WriteFileOrDie(file(name), CompactJson({{"plan", SavedPlanJson(plan)}}));
  }
  std::string file(const std::string& name) const { return dir.File(name); }
  void WriteTrace(int64_t tokens) {
    testing::WriteFileOrDie(file("trace"),
                            "{\"arrival_s\":0,\"prompt_tokens\":4,\"output_tokens\":" + std::to_string(tokens) + "}\n");
  }
  // Little work, but where that is the option that is looked at.
  static Words Small(const std::string& option) {
    Words words = Dummy();
    if (option != "--requests") words = With(words, "--requests", "2");
    if (option != "--output") words = With(words, "--output", "3");
    return words;
  }
  static Words Dummy() { return {"--load-format", "dummy", "--shape", "tiny", "--type", "q8_0"}; }
  Words Model() const { return {"-m", file("model.gguf")}; }

  const testing::TempDir dir;
};

// The first point of a sweep.
SweepConfig SweptBy(Words words) {
  CLI::App app;
  SweepOptions options;
  AddSweepOptions(&app, &options);
  words.insert(words.end(), {"-o", "x"});
  std::reverse(words.begin(), words.end());
  app.parse(words);
  const auto model = ResolveSweep({.program = "/coordinator"}, &options);
  EXPECT_TRUE(model.ok()) << model.status() << ::testing::PrintToString(words);
  return model.ok() ? PointsOf(options.lists).front() : SweepConfig();
}

TEST_F(SweepKeyTest, EveryOptionOfASweepGivesAnotherKeyOrHasAReason) {
  testing::WriteFileOrDie(file("hosts"), "node1 slots=2\nnode2\n");
  const std::vector<Changed> all = {
      {"--help", {}, "measures nothing"},
      {"--model", {}, "with --load-format gguf; see FilesCountByTheirContent"},
      {"--load-format", {}, "what the model is, --shape and --type say"},
      {"--shape", {}, "is --type's neighbour in the model's name, which is looked at below"},
      {"--type", {}, "as --shape"},
      {"--layers", {"1", "2"}},
      {"--q2-layout", {"g64", "g128"}},
      {"--directory", {}, "where the point is kept"},
      {"--layer-split", {"1,2", "2,1"}},
      {"--plan", {file("plan")}},
      {"--trace", {}, "keeps what happened; the times are those without it"},
      {"--pp", {"1", "2"}},
      {"--threads", {"1", "2"}},
      {"--decode-groups", {"1", "2"}},
      {"--micro-batches", {"1", "2"}},
      {"--prefill-chunk", {"64", "128"}},
      {"--max-num-batched-tokens", {"600", "700"}},
      {"--max-num-seqs", {"9", "10"}},
      {"--block-size", {"16", "64"}},
      {"--policy", {"phases", "interleaved"}},
      {"--chunking", {"equal-time"}},
      {"--wire-dtype", {"bf16"}},
      {"--kv-type", {"f32"}},
      {"--speculate", {"suffix", "auto"}},
      {"--acceptance", {"0.5", "0.75"}},
      {"--draft-model", {}, "is refused"},
      {"--stage-delay-us", {"100", "200"}},
      {"--emulate-link", {"latency=1ms", "latency=1.0001ms", "bandwidth=1Gbit", "bandwidth=1000001kbit"}},
      {"--kv-cache-memory", {"512M", "512001K"}},
      {"--repetitions", {}, "more points, each with a key of its own"},
      {"--arrivals", {"poisson:2", "poisson:2.00001", "trace:" + file("trace")}},
      {"--concurrency", {"1", "2"}},
      {"--prompt", {"4", "uniform:4:8"}},
      {"--output", {"4", "uniform:4:8"}},
      {"--requests", {"4", "5"}},
      {"--duration", {"4", "125", "125.001"}},
      {"--slo-ttft", {"1s", "1.001s"}},
      {"--slo-itl", {"1s", "1.001s"}},
      {"--seed", {"1", "2"}},
      {"--profile", {}, "what is predicted, not what is measured"},
      {"--cluster", {}, "as --profile"},
      {"--no-probe", {}, "as --profile"},
      {"--isa", {"scalar", "avx2"}},
      {"--cpu-bind", {"none"}},
      {"--weights", {"stream"}, "", Model()},
      {"--weights-cache", {}, "how long the model loads, before anything is measured"},
      {"--allow-damaged", {}, "what the weights are takes no time"},
      {"--stage-timeout", {}, "when a point is given up, not what a finished one took"},
      {"--hostfile", {file("hosts")}},
      {"--host", {"node1,node2", "node2,node1", "node1:2,node2"}},
      {"--launcher", {"mpirun", "srun"}},
      {"--launcher-args", {"--bind-to core", "--bind-to none"}},
      {"--rsh-agent", {}, "starts the ranks, which then need it no more"},
      {"--host-timeout", {}, "as --stage-timeout"},
      {"--stage-worker", {file("plan"), file("trace")}},
      {"--startup-timeout", {}, "as --stage-timeout"},
      {"--relaunch-timeout", {}, "as --stage-timeout"},
      {"--dry-run", {}, "measures nothing"},
      {"--quiet", {}, "what is printed"},
      {"--verbose", {}, "what is printed"},
      {"--progress", {}, "what is printed"},
  };
  ExpectEveryOptionOnce(MakeSweepVerb, all);
  for (const Changed& changed : all) {
    if (changed.values.empty()) continue;
    const Words usual = changed.beside.empty() ? Dummy() : changed.beside;
    std::vector<std::pair<std::string, SweepConfig>> points = {{"none", SweptBy(usual)}};
    for (const std::string& value : changed.values) {
      points.emplace_back(absl::StrCat(changed.option, " ", value), SweptBy(With(usual, changed.option, value)));
    }
    ExpectApart(points, /*simulated=*/false);
  }
  ExpectApart({{"tiny", SweptBy(Dummy())},
               {"q4_0", SweptBy({"--load-format", "dummy", "--shape", "tiny", "--type", "q4_0"})},
               {"demo", SweptBy(Model())}},
              /*simulated=*/false);
}

TEST_F(SweepKeyTest, ADraftIsRefusedWithWhatToDoInstead) {
  for (MakeVerb* make : {MakeSweepVerb, MakeSimulateVerb}) {
    CLI::App app;
    const std::unique_ptr<Verb> verb = make();
    verb->AddOptions(&app);
    EXPECT_THAT(app.help(), Not(HasSubstr("\n  --draft-model")));
    try {
      app.parse("--draft-model draft.gguf");
      ADD_FAILURE() << "was taken";
    } catch (const CLI::ParseError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("--draft-model: "), HasSubstr("by --acceptance how often")));
    }
  }
}

TEST_F(SweepKeyTest, FilesCountByTheirContent) {
  // A host file whatever its name and whatever its comments; its order counts.
  testing::WriteFileOrDie(file("one"), "node1 slots=2\nnode2\n");
  testing::WriteFileOrDie(file("other"), "# the same\nnode1 slots=2\nnode2 slots=1\n");
  testing::WriteFileOrDie(file("turned"), "node2\nnode1 slots=2\n");
  const SweepConfig one = SweptBy(With(Dummy(), "--hostfile", file("one")));
  EXPECT_EQ(SweepKey(one), SweepKey(SweptBy(With(Dummy(), "--hostfile", file("other")))));
  EXPECT_EQ(SweepKey(one), SweepKey(SweptBy(With(Dummy(), "--host", "node1:2,node2"))));
  ExpectApart({{"one", one}, {"turned", SweptBy(With(Dummy(), "--hostfile", file("turned")))}}, false);
  // A trace of arrivals under its old name.
  const Words traced = With(Dummy(), "--arrivals", "trace:" + file("trace"));
  const SweepConfig before = SweptBy(traced);
  WriteTrace(2);
  ExpectApart({{"trace", before}, {"trace, changed", SweptBy(traced)}}, false);
  // The model under its old name: changed at another time, longer, with another header.
  std::vector<std::pair<std::string, SweepConfig>> models = {{"model", SweptBy(Model())}};
  EXPECT_EQ(SweepKey(models[0].second), SweepKey(SweptBy(Model())));
  const auto changed = std::filesystem::last_write_time(file("model.gguf"));
  std::filesystem::last_write_time(file("model.gguf"), changed + std::chrono::milliseconds(1));
  models.emplace_back("touched", SweptBy(Model()));
  testing::WriteFileOrDie(file("model.gguf"), testing::ReadFileOrDie(file("model.gguf")) + std::string(32, '\0'));
  std::filesystem::last_write_time(file("model.gguf"), changed);
  models.emplace_back("longer", SweptBy(Model()));
  ExpectApart(models, false);
}

// The only point of a simulation.
SweepConfig SimulatedBy(const Words& words) {
  const testing::TempDir points;
  CLI::App app;
  const std::unique_ptr<Verb> verb = MakeSimulateVerb();
  verb->AddOptions(&app);
  Words all = words;
  all.insert(all.end(), {"-o", points.path(), "--json"});
  std::reverse(all.begin(), all.end());
  ::testing::internal::CaptureStdout();
  app.parse(all);
  const absl::Status status = verb->Run({.program = "/coordinator"});
  ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(status.ok()) << status << ::testing::PrintToString(words);
  const auto records = ReadSweepFile(points.File("points.jsonl"));
  return records.ok() && records->points.size() == 1 ? records->points[0].config : SweepConfig();
}

std::string TwoHosts(double latency_us, double uplink_gbit) {
  return absl::StrCat(
      R"({"hosts": [{"name": "n1", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000},)",
      R"({"name": "n2", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000}], )",
      R"("link": {"bandwidth_gbit_s": 10, "latency_us": )", latency_us,
      R"(}, "uplinks": [{"name": "rack", "hosts": ["n1"], "bandwidth_gbit_s": )", uplink_gbit, "}]}");
}

TEST_F(SweepKeyTest, PlansThatDifferInSplitOrHostsAreDifferentSimulations) {
  testing::WriteFileOrDie(file("cluster"), TwoHosts(30, 10));
  std::vector<std::pair<std::string, SweepConfig>> points;
  const std::pair<const char*, std::vector<SavedStage>> plans[] = {
      {"one", {{.host = "n1", .layers = 2}, {.host = "n2", .layers = 1}}},
      {"split", {{.host = "n1", .layers = 1}, {.host = "n2", .layers = 2}}},
      {"turned", {{.host = "n2", .layers = 2}, {.host = "n1", .layers = 1}}},
      {"here", {{.host = "n1", .layers = 2}, {.host = "n1", .layers = 1}}}};
  for (const auto& [name, stages] : plans) {
    WritePlan(name, stages, /*here=*/name == std::string("here"));
    const Words planned = With(With(Small("--plan"), "--cluster", file("cluster")), "--plan", file(name));
    points.emplace_back(name, SimulatedBy(planned));
  }
  ExpectApart(points, /*simulated=*/true);
  EXPECT_THAT(points[0].second.layer_split, ElementsAre(2, 1));
  EXPECT_EQ(points[2].second.hosts, "n2,n1");
  EXPECT_EQ(points[3].second.hosts, "n1:2");
}

TEST_F(SweepKeyTest, EveryOptionOfASimulationGivesAnotherKeyOrHasAReason) {
  testing::WriteFileOrDie(file("cluster"), TwoHosts(30, 10));
  testing::WriteFileOrDie(file("uplink"), TwoHosts(30, 0.1));
  testing::WriteFileOrDie(file("far"), TwoHosts(300, 10));
  const std::vector<Changed> all = {
      {"--help", {}, "simulates nothing"},
      {"--model", {}, "as of a sweep"},
      {"--load-format", {}, "as of a sweep"},
      {"--shape", {}, "as of a sweep"},
      {"--type", {}, "as of a sweep"},
      {"--layers", {"1", "2"}},
      {"--hostfile", {}, "as of a sweep"},
      {"--host", {"node1,node2", "node2,node1", "node1:2"}},
      {"--cluster", {file("cluster"), file("uplink"), file("far")}},
      {"--profile", {}, "as --cluster"},
      {"--q2-layout", {"g64"}},
      {"--pp", {"2", "3"}},
      {"--layer-split", {"1,2", "2,1"}},
      {"--threads", {"1", "2"}},
      {"--ctx-size", {"1024", "1500"}},
      {"--isa", {"scalar", "avx2"}},
      {"--split-by-cost", {"given"}},
      {"--plan", {file("plan")}},
      {"--draft-model", {}, "is refused"},
      {"--policy", {"phases", "interleaved"}},
      {"--emulate-link", {"latency=1ms", "latency=2ms"}},
      {"--max-num-seqs", {"4", "5"}},
      {"--max-num-batched-tokens", {"600", "700"}},
      {"--prefill-chunk", {"32", "64"}},
      {"--chunking", {"equal-time"}},
      {"--slo-itl", {"1s", "2s"}},
      {"--block-size", {"16", "64"}},
      {"--enable-prefix-caching", {"given"}},
      {"--micro-batches", {"1", "2"}},
      {"--decode-groups", {"1", "2"}},
      {"--kv-cache-memory", {"512M", "513M"}},
      {"--kv-type", {"f32"}},
      {"--wire-dtype", {"bf16"}},
      {"--step-log", {}, "keeps what happened"},
      {"--trace", {}, "keeps what happened"},
      {"--stage-delay-us", {"100", "200"}},
      {"--requests", {"3", "4"}},
      {"--arrivals", {"poisson:2", "poisson:3", "trace:" + file("trace")}},
      {"--concurrency", {"2", "3"}},
      {"--prompt", {"9", "uniform:4:8"}},
      {"--output", {"9", "uniform:4:8"}},
      {"--slo-ttft", {"1s", "2s"}},
      {"--seed", {"1", "2"}},
      {"--acceptance", {"0.5", "0.75"}},
      {"--coordinator-us", {"100", "200"}},
      {"--wake-us", {"100", "200"}},
      {"--front-us", {"100", "200"}},
      {"--fail-at", {"0.001", "0.002", "0.001,0.002"}},
      {"--mtbf", {"100000", "200000"}},
      {"--detect", {"1", "2"}},
      {"--relaunch", {"1", "2"}},
      {"--replay", {}, "makes no point"},
      {"--json", {}, "how the point is printed"},
      {"-o", {}, "where the point is kept"},
  };
  ExpectEveryOptionOnce(MakeSimulateVerb, all);
  std::map<Words, SweepConfig> usuals;
  for (const Changed& changed : all) {
    if (changed.values.empty()) continue;
    const auto [usual, fresh] = usuals.try_emplace(Small(changed.option));
    if (fresh) usual->second = SimulatedBy(usual->first);
    std::vector<std::pair<std::string, SweepConfig>> points = {{"none", usual->second}};
    for (const std::string& value : changed.values) {
      points.emplace_back(absl::StrCat(changed.option, " ", value),
                          SimulatedBy(With(Small(changed.option), changed.option, value)));
    }
    ExpectApart(points, /*simulated=*/true);
  }
}

TEST_F(SweepKeyTest, VersionsAndMachinesAreKeptApart) {
  const SweepConfig now = SweptBy(Dummy());
  SweepConfig version = now, record = now, machine = now;
  EXPECT_NE(now.machine, "");
  version.program_version = "0.0.9";
  record.program_version = now.program_version + " (record 1)";
  machine.machine = "Another processor, 64 cores";
  ExpectApart({{"now", now}, {"version", version}, {"record", record}, {"machine", machine}}, false);
}

// Else there would be neither repetitions of a simulation nor a line over its stages.
TEST_F(SweepKeyTest, AssumedHostsAreTheSameAgainAndForEveryNumberOfStages) {
  const Words two = With(Small("--host"), "--host", "node1,node2");
  const SweepConfig first = SimulatedBy(two);
  EXPECT_EQ(first.cluster, "assumed");
  EXPECT_EQ(SweepKey(first), SweepKey(SimulatedBy(two)));
  EXPECT_EQ(first.cluster_hash, SimulatedBy(With(two, "--pp", "1")).cluster_hash);
}

TEST_F(SweepKeyTest, APlanIsWhatItSays) {
  const SweepConfig planned = SweptBy(With(Dummy(), "--plan", file("plan")));
  EXPECT_EQ(planned.stages, 2);
  EXPECT_THAT(planned.layer_split, ElementsAre(2, 1));
  EXPECT_EQ(planned.micro_batches, 3);
  EXPECT_EQ(planned.prefill_chunk, 64);
  SweepOptions options;
  options.cluster.plan = file("plan");
  const ClusterOptions job = ClusterOptionsOf(options, planned, 100);
  EXPECT_EQ(job.stages, 0) << "which the launch takes from the plan itself, to check it against the hosts";
  EXPECT_THAT(job.layer_split, IsEmpty());
  EXPECT_THAT(CommandOf(options, planned), HasSubstr("--pp 2"));
  EXPECT_THAT(CommandOf(options, planned), HasSubstr("--layer-split 2,1"));
}

TEST_F(SweepKeyTest, TheFirstLineSaysLoadAndSplit) {
  SweepOptions options;
  EXPECT_EQ(LoadAndSplitText(options),
            "load         prompts of 512 and answers of 128 tokens, closed x8; layers split by cost");
  options.cluster.layer_split = {2, 1};
  options.cluster.plan = "p.json";
  options.lists.arrivals = {"closed", "poisson:2"};
  EXPECT_THAT(LoadAndSplitText(options), HasSubstr("closed x8, poisson:2; layers split 2,1 as in p.json"));
}

}  // namespace
}  // namespace stagecoach
