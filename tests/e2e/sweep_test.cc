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
  EXPECT_EQ(again, absl::StrCat("report: ", dir.File("report.html"), " (", FiguresIn(dir.File("figures")),
                                " figures, 4 points; the numbers in ", dir.File("points.csv"), ")\n"));
  EXPECT_EQ(Points(dir.path()).size(), 4u);
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
  const Words impossible = {"--kv-cache-memory", "1K", "--concurrency", "1"};
  for (size_t tries : {1, 2}) {
    const ProgramResult result = Coordinator(Sweep(dir.path(), impossible));
    EXPECT_EQ(result.exit_code, 5) << result;
    EXPECT_THAT(result.out, HasSubstr("failed: --kv-cache-memory is 1024"));
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
  EXPECT_THAT(sweep.Wait(30), EndsWithCode(130, HasSubstr("of 100 points; the same command goes on from here")));
  EXPECT_GE(Points(dir.path()).size(), 1u);
}

TEST(Sweep, RefusesAModelThatFitsNoPointAndAFileOfAnotherModel) {
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
  const std::string model = dir.File("m.gguf");
  WriteFileOrDie(model, ReadFileOrDie(DemoModelPath()));
  const Words on_file = Joined(WordsOf("sweep -t 1 --prompt 4 --output 2 --requests 1 -r 1 --concurrency 1 --no-probe"),
                               {"-m", model, "-o", dir.path()});
  ASSERT_EQ(Coordinator(on_file).exit_code, 0);
  WriteFileOrDie(model, ReadFileOrDie(model) + std::string(32, '\0'));
  EXPECT_THAT(Coordinator(on_file), EndsWithCode(3, HasSubstr("its file is another one now")));
}

}  // namespace
}  // namespace stagecoach::testing
