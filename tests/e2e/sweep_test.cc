// `coordinator sweep`: points of a tiny model, ended half-way and gone on with. Speeds are never compared.

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

Words ProbedSweep(const std::string& directory, const Words& more = {}) {
  const Words words = WordsOf("sweep --load-format dummy --shape tiny --type q8_0 -t 1 --prompt 16 --output 8 -r 1 -o");
  return Joined(Joined(words, {directory}), more);
}

Words Sweep(const std::string& directory, const Words& more = {}) {
  return Joined(ProbedSweep(directory, more), {"--no-probe"});
}

const Words kTwoByTwo = WordsOf("--pp 1,2 --concurrency 1,3 --cpu-bind none");

std::vector<Json> Points(const std::string& directory) {
  std::vector<Json> points;
  for (const std::string& line : Lines(ReadFileOrDie(directory + "/points.jsonl"))) points.push_back(Json::parse(line));
  return points;
}

std::set<std::string> Keys(const std::vector<Json>& points) {
  std::set<std::string> keys;
  for (const Json& point : points) keys.insert(point["key"].get<std::string>());
  return keys;
}

int64_t FiguresIn(const std::string& directory) {
  const std::filesystem::directory_iterator figures(directory);
  return std::distance(begin(figures), end(figures));
}

TEST(Sweep, GoesOnWhereItWasKilledUntilAllPointsAreThereOnce) {
  const TempDir dir;
  {
    Subprocess sweep(CoordinatorProgram(), Sweep(dir.path(), kTwoByTwo));
    ASSERT_TRUE(sweep.WaitForOutput("\n2/4  ", 120)) << sweep.err();
    sweep.Kill(SIGKILL);
    EXPECT_EQ(sweep.Wait(30).exit_code, 128 + SIGKILL);
  }
  const std::vector<Json> first = Points(dir.path());
  ASSERT_GE(first.size(), 2u);
  ASSERT_LT(first.size(), 4u);
  std::ofstream(dir.File("points.jsonl"), std::ios::app) << "{\"version\":1,\"key\":\"half a li";
  const ProgramResult result = Coordinator(Sweep(dir.path(), kTwoByTwo), "", 300);
  ASSERT_THAT(result, EndsWithCode(0, HasSubstr(absl::StrCat(first.size(), " of 4 points are finished already"))));
  const std::vector<Json> points = Points(dir.path());
  ASSERT_EQ(points.size(), 4u) << result;
  EXPECT_EQ(Keys(points).size(), 4u);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), points.begin()));
  const std::string again = CoordinatorOut(Sweep(dir.path(), kTwoByTwo));
  EXPECT_EQ(again,
            absl::StrCat("load         prompts of 16 and answers of 8 tokens, closed x1,3; layers split by cost\n"
                         "report: ",
                         dir.File("report.html"), " (", FiguresIn(dir.File("figures")),
                         " figures, 4 points; the numbers in ", dir.File("points.csv"), ")\n"));
  EXPECT_EQ(Points(dir.path()).size(), 4u);
  // What a prediction says is no reason to measure again.
  std::string text = ReadFileOrDie(dir.File("points.jsonl"));
  const size_t at = text.find("\"bubble_imbalance\":") + sizeof("\"bubble_imbalance\":") - 1;
  WriteFileOrDie(dir.File("points.jsonl"), text.replace(at, text.find(',', at) - at, "-7e-17"));
  const ProgramResult resumed = Coordinator(Sweep(dir.path(), kTwoByTwo));
  const std::string remark =
      "line 1: prediction.bubble_imbalance: expected a number, 0 to 1e+18, found -7e-17; this point has no prediction "
      "here";
  EXPECT_THAT(resumed, EndsWithCode(0, AllOf(HasSubstr(remark), HasSubstr("4 of 4 points are finished already"))));
  EXPECT_EQ(resumed.err.find(remark), resumed.err.rfind(remark)) << "it is said once";
  EXPECT_EQ(ReadFileOrDie(dir.File("points.jsonl")), text);
}

TEST(Sweep, MeasuresOneUserOverStagesWithGuessesAsOftenRightAsAskedFor) {
  const TempDir dir;
  const Words load = WordsOf(
      "--load-format dummy --shape tiny --type q8_0 -t 1 --prompt 4 --output 60 --concurrency 1 --requests 2 "
      "--stage-delay-us 3000");
  const ProgramResult result =
      Coordinator(Joined(Joined({"sweep", "-o", dir.path()}, load),
                         WordsOf("--pp 1,3 --acceptance 0,0.7 -r 1 --no-probe --cpu-bind none")),
                  "", 300);
  ASSERT_EQ(result.exit_code, 0) << result;
  const std::vector<Json> points = Points(dir.path());
  ASSERT_EQ(points.size(), 4u);
  for (const Json& point : points) {
    const bool guessed = &point == &points[3];
    const Json& done = point["result"];
    EXPECT_EQ(point["config"]["speculate"], point["config"]["acceptance"] > 0 ? "auto" : "off");
    EXPECT_EQ(done["output_tokens"], 2 * 60);
    EXPECT_EQ(done["guesses"] > 0, guessed) << "one stage is never idle";
    EXPECT_EQ(done["decode_rows"].get<int>() + done["guesses"].get<int>() - done["guesses_void"].get<int>(), 2 * 59);
    EXPECT_EQ(done["guesses_right"] > 0, guessed);
    EXPECT_EQ(done["accepted_share"] > 0.5, guessed) << "7 of 8 are meant to be";
    EXPECT_FALSE(point.contains("prediction")) << "no plan knows of guesses or of stages that sleep";
  }
  EXPECT_THAT(result.out, HasSubstr("guesses right (accepted "));
  for (const char* stages : {"1", "3"}) {
    CoordinatorOut(Joined(Joined({"simulate", "-o", dir.path()}, load), {"--pp", stages, "--acceptance", "0.7"}));
  }
  CoordinatorOut({"sweep", "report", dir.path()});
  EXPECT_THAT(ReadFileOrDie(dir.File("report.html")), HasSubstr("Tokens/s of one user over stages"));
  EXPECT_THAT(ReadFileOrDie(dir.File("figures/one-user.svg")), HasSubstr("Hollow: simulated"));
}

TEST(Sweep, RecordsWhatEveryPointDid) {
  const TempDir dir;
  const ProgramResult result =
      Coordinator(ProbedSweep(dir.path(), {"--pp", "2", "--arrivals", "closed,poisson:200", "--concurrency", "3",
                                           "--requests", "7", "--slo-ttft", "600s", "--cpu-bind", "none"}),
                  "", 300);
  ASSERT_EQ(result.exit_code, 0) << result;
  const std::vector<Json> points = Points(dir.path());
  ASSERT_EQ(points.size(), 2u);
  for (const Json& point : points) {
    EXPECT_EQ(point["error"], "");
    EXPECT_EQ(point["simulated"], false);
    EXPECT_THAT(point["origin"]["command"].get<std::string>(), HasSubstr("-m dummy://tiny/q8_0 --pp 2 -t 1"));
    const Json& done = point["result"];
    EXPECT_EQ(done["requests"], 7);
    EXPECT_EQ(done["prompt_tokens"], 7 * 16);
    EXPECT_EQ(done["output_tokens"], 7 * 8);
    EXPECT_EQ(done["prefill_rows"], 7 * 16);
    EXPECT_EQ(done["decode_rows"], 7 * 7);
    EXPECT_EQ(done["ttft_s"]["count"], 7);
    EXPECT_EQ(done["itl_s"]["count"], 7 * 7);
    EXPECT_EQ(done["slo_requests"], 7);
    EXPECT_GT(done["output_tokens_per_s"].get<double>(), 0);
    ASSERT_EQ(point["stages"].size(), 2u);
    EXPECT_GT(point["stages"][1]["compute_s"].get<double>(), 0);
    EXPECT_EQ(point["stages"][1]["processor"], point["origin"]["processor"]);
    EXPECT_EQ(point["stages"][1]["cores"], point["origin"]["cores"]);
    EXPECT_GT(point["stages"][1]["memory_bytes"].get<uint64_t>(), uint64_t{1} << 20);
    EXPECT_DOUBLE_EQ(done["tokens_per_core_hour"].get<double>(),
                     3600 * done["output_tokens_per_s"].get<double>() / point["origin"]["cores"].get<double>());
    EXPECT_GT(point["prediction"]["output_tokens_per_s"].get<double>(), 0);
    EXPECT_EQ(point["prediction"]["source"], "probe");
    EXPECT_EQ(point["prediction"]["measured_steps"], true);
  }
  EXPECT_EQ(points[0]["config"]["concurrency"], 3);
  EXPECT_EQ(points[1]["config"]["arrivals"], "poisson:200");
  EXPECT_EQ(points[1]["config"]["concurrency"], 0);
  EXPECT_TRUE(std::filesystem::exists(dir.File("profile.json")));
}

TEST(Sweep, ComparesLinksOverAHostListAndMeasuresWithoutAProbeWhereThereCanBeNone) {
  const TempDir dir;
  ASSERT_TRUE(std::filesystem::create_directory(dir.File("profile.json")));  // which a profile cannot be written to
  ASSERT_THAT(Coordinator(ProbedSweep(dir.path(), {"--host", "localhost:2", "--concurrency", "1", "--requests", "2",
                                                   "--cpu-bind", "none", "--emulate-link", "none", "--emulate-link",
                                                   "latency=2ms,bandwidth=1Gbit"}),
                          "", 300),
              EndsWithCode(0, HasSubstr("no probe, so predictions rest on assumed speeds: cannot write")));
  const std::vector<Json> points = Points(dir.path());
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0]["stages"].size(), 2u) << "a slot each";
  EXPECT_THAT(points[0]["origin"]["command"].get<std::string>(), HasSubstr("--host localhost:2"));
  EXPECT_EQ(points[0]["config"]["link_latency_s"], 0.0);
  EXPECT_EQ(points[1]["config"]["link_latency_s"], 0.002);
  EXPECT_EQ(points[1]["prediction"]["source"], "assumed");
  EXPECT_THAT(points[1]["origin"]["command"].get<std::string>(),
              HasSubstr("--emulate-link latency=2ms,bandwidth=1Gbit"));
}

TEST(Sweep, EndsWithItsPoliciesSideBySide) {
  const TempDir dir;
  const std::string result = CoordinatorOut(Sweep(dir.path(), {"--policy", "phases,throttled", "--concurrency", "1"}));
  EXPECT_THAT(result, AllOf(HasSubstr("each policy/512, f32, closed x1, 16 -> 8\npolicy "), HasSubstr("\nphases ")));
  EXPECT_THAT(result, HasSubstr("\nthrottled "));
}

TEST(Sweep, RecordsAPointThatFailsAndTriesItAgain) {
  const TempDir dir;
  const Words impossible = {"--kv-cache-memory", "512T", "--concurrency", "1"};
  for (size_t tries : {1, 2}) {
    const ProgramResult result = Coordinator(Sweep(dir.path(), impossible));
    EXPECT_EQ(result.exit_code, 5) << result;
    EXPECT_THAT(result.out, HasSubstr("failed: --kv-cache-memory is 562949953421312 bytes a stage"));
    const std::vector<Json> points = Points(dir.path());
    ASSERT_EQ(points.size(), tries);
    EXPECT_THAT(points.back()["error"].get<std::string>(), HasSubstr("--kv-cache-memory"));
  }
}

TEST(Sweep, SaysWhatItWouldMeasureWithoutStartingAnything) {
  const TempDir dir;
  const std::string result = CoordinatorOut(Sweep(dir.File("none"), Joined(kTwoByTwo, {"--dry-run"})));
  EXPECT_THAT(result, HasSubstr("pp 2, t 1, throttled/512, f32, closed x3, 16 -> 8, run 1: 12 requests, ~"));
  EXPECT_THAT(result, HasSubstr("4 points in 2 launches, about "));
  // Of answers of 8 tokens, one of which is asked for each second or so, no more come out than go in.
  const ProgramResult slow = Coordinator(Sweep(dir.File("none"), {"--arrivals", "poisson:1", "--dry-run"}));
  const std::vector<std::string> parts = absl::StrSplit(slow.out, "64 requests, ~");
  ASSERT_EQ(parts.size(), 2u) << slow;
  EXPECT_LT(std::stod(parts[1]), 16) << slow;
}

TEST(Sweep, EndsCleanlyWhenInterrupted) {
  const TempDir dir;
  Subprocess sweep(CoordinatorProgram(), Sweep(dir.path(), {"--concurrency", "1,2", "-r", "50"}));
  ASSERT_TRUE(sweep.WaitForOutput("1/100  ", 120)) << sweep.err();
  sweep.Kill(SIGINT);
  const ProgramResult result = sweep.Wait(30);
  EXPECT_THAT(result, EndsWithCode(130, HasSubstr("of 100 points; the same command goes on from here")));
  EXPECT_THAT(result.out, AllOf(HasSubstr("report: " + dir.File("report.html")),
                                HasSubstr("\nagain:  coordinator sweep report " + dir.path() + "\n")));
  EXPECT_TRUE(std::filesystem::exists(dir.File("report.html")));
  EXPECT_GE(Points(dir.path()).size(), 1u);
}

TEST(Sweep, KeepsATimelineOfTheFirstRunOfEachPoint) {
  const TempDir dir;
  Words traced = Sweep(dir.path(), {"--concurrency", "1,2", "--trace"});
  *(std::find(traced.begin(), traced.end(), "-r") + 1) = "2";
  ASSERT_EQ(Coordinator(traced).exit_code, 0);
  const std::vector<Json> points = Points(dir.path());
  ASSERT_EQ(points.size(), 4u);
  for (const Json& point : points) {
    const std::string trace = point["trace"].get<std::string>();
    if (point["config"]["repetition"] > 0) {
      EXPECT_EQ(trace, "");
      continue;
    }
    EXPECT_EQ(trace, "traces/" + point["key"].get<std::string>() + ".json");
    EXPECT_THAT(CoordinatorOut({"trace", "summary", dir.File(trace)}), HasSubstr("stage"));
  }
}

TEST(Sweep, MeasuresThePlanThatWillBeRun) {
  const TempDir dir;
  const Words model = WordsOf("--load-format dummy --shape tiny --type q8_0");
  const std::string plan = dir.File("plan.json");
  ASSERT_EQ(Coordinator(Joined(Joined({"plan"}, model), {"--pp", "2", "-t", "1", "-o", plan})).exit_code, 0);
  const Words planned =
      Joined(Joined({"sweep"}, model), {"--plan", plan, "--prompt", "16", "--output", "8", "-r", "1", "--concurrency",
                                        "1", "--no-probe", "-o", dir.File("points")});
  const std::string out = CoordinatorOut(planned);
  const Json saved = Json::parse(ReadFileOrDie(plan))["plan"];
  const Json point = Points(dir.File("points")).front();
  ASSERT_EQ(point["stages"].size(), 2u);
  for (size_t s = 0; s < 2; ++s) {
    EXPECT_EQ(point["stages"][s]["last_layer"].get<int>() - point["stages"][s]["first_layer"].get<int>(),
              saved["stages"][s]["layers"]);
  }
  EXPECT_EQ(point["config"]["layer_split"], "2,1");
  EXPECT_EQ(point["config"]["prefill_chunk"], saved["prefill_chunk"]);
  EXPECT_THAT(out, HasSubstr(" as in " + plan + "\n1/1  pp 2"));
  EXPECT_THAT(Coordinator(Joined(planned, {"--pp", "1"})), EndsWithCode(2, HasSubstr("--plan fixes --pp")));
}

TEST(Sweep, RefusesBeforeTheFirstPointWhatNoHostCanRun) {
#ifdef __x86_64__
  const std::string foreign = "neon-i8mm";
#else
  const std::string foreign = "avx2";
#endif
  const TempDir dir;
  ExpectRefused(Sweep(dir.path()),
                {{"--kv-cache-memory 1K", 2, "nothing was measured: 'pp auto, t 1, throttled/512, f32, closed x8"},
                 {"--kv-cache-memory 1K", 2, "--kv-cache-memory is 1024, but one block of 32 tokens of stage 0"},
                 {"--isa " + foreign, 2, " and not " + foreign + "; name one that every host has with --isa"}},
                Refusal::kAnyLines);
  EXPECT_FALSE(std::filesystem::exists(dir.File("points.jsonl")));
}

TEST(Sweep, RefusesAModelThatFitsNoPoint) {
  const TempDir dir;
  WriteFileOrDie(dir.File("trace"), "{\"arrival_s\":0,\"prompt_tokens\":-1,\"output_tokens\":3}\n");
  ExpectRefused(
      Sweep(dir.path()),
      {
          {"--pp 1,9", 2, "--pp: 9 stages, but the model has 3 layers"},
          {"--profile /nowhere/profile.json", 3, "cannot read '/nowhere/profile.json'"},
          {"--arrivals trace:DIR/trace", 3, "line 1: 'prompt_tokens': -1 is out of range, expected 1 to 16777216"},
      },
      Refusal::kAnyLines, dir.path());
  EXPECT_THAT(World(Sweep(dir.path()), 1).err, HasSubstr("start it without mpirun or srun"));
}

TEST(Sweep, MeasuresAFileAnewThatIsAnotherOneNowAndKeepsBothApart) {
  const TempDir dir;
  const std::string model = dir.File("m.gguf");
  WriteFileOrDie(model, ReadFileOrDie(DemoModelPath()));
  const Words on_file = Joined(WordsOf("sweep -t 1 --prompt 4 --output 2 --requests 1 -r 1 --concurrency 1 --no-probe"),
                               {"-m", model, "-o", dir.path()});
  ASSERT_EQ(Coordinator(on_file).exit_code, 0);
  WriteFileOrDie(model, ReadFileOrDie(model) + std::string(32, '\0'));
  const ProgramResult other = Coordinator(on_file);
  EXPECT_THAT(other, EndsWithCode(0, HasSubstr("1 of these points was measured earlier with another file of the model; "
                                               "what was measured then stays beside the new ones")));
  EXPECT_THAT(other.out, AllOf(HasSubstr("1/1  pp auto, t 1"), HasSubstr(" bytes and header ")));
  EXPECT_EQ(Keys(Points(dir.path())).size(), 2u);
  EXPECT_THAT(Coordinator(on_file), EndsWithCode(0, HasSubstr("1 of 1 points are finished already")));
}

}  // namespace
}  // namespace stagecoach::testing
