// `coordinator bench`: what it prints, on the demo model with tiny sizes. Speeds are never compared.

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/trace_check.h"

namespace stagecoach::testing {
namespace {

using ::testing::ElementsAre;

ProgramResult Bench(const Words& more) { return Coordinator(Joined({"bench", "-t", "1"}, more), "", 300); }

ProgramResult BenchOfDemo(absl::string_view more) { return Bench(Joined(WordsOf("-m MODEL"), WordsOf(more))); }

void ExpectRates(const Json& record) {
  EXPECT_GT(record["avg_ts"].get<double>(), 0) << record;
  EXPECT_GT(record["avg_ns"].get<int64_t>(), 0) << record;
  EXPECT_GE(record["stddev_ts"].get<double>(), 0) << record;
  EXPECT_GT(record["gops"].get<double>(), 0) << record;
  EXPECT_GT(record["peak_share"].get<double>(), 0) << record;
  EXPECT_EQ(record["samples_ns"].size(), record["samples_ts"].size());
  EXPECT_EQ(record["n_gen"].get<int>() > 0, record["read_gbps"].is_number()) << record;
}

TEST(Bench, SaysValidBeforeATableOfEveryTest) {
  const ProgramResult result = BenchOfDemo("-p 16 -n 4 -d 0,40 -b 1,3 -r 2");
  ASSERT_THAT(result, Prints(StartsWith("VALID: ")));
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 1u + 2 + 5) << result;
  EXPECT_THAT(lines[0], ContainsRegex("1 thread read [0-9.]+ GB/s"));
  EXPECT_THAT(lines[1], HasSubstr(" t/s |   GB/s |"));
  EXPECT_THAT(lines[3], ContainsRegex("qwen3 .* Q8_0 .* pp16 [|] +[0-9.]+ ± [0-9.]+ "));
  EXPECT_THAT(lines[4], HasSubstr(" tg4 |"));
  EXPECT_THAT(lines[5], HasSubstr(" tg4 x3 |"));
  EXPECT_THAT(lines[7], HasSubstr(" tg4 @ d40 x3 |"));
}

TEST(Bench, GivesJsonWithEveryField) {
  const ProgramResult result = BenchOfDemo(
      "-p 16 -n 4 -b 2 --equal-sequences -d 8 -r 3 -o json --isa scalar --temp 0.7 --top-k 40 --top-p 0.9 --min-p 0.01 "
      "--repeat-penalty 1.1");
  ASSERT_THAT(result, EndsWithCode(0, AllOf(HasSubstr("VALID: "), HasSubstr("sampling: temp 0.7, top-k 40, "))));
  const Json json = Json::parse(result.out);
  ASSERT_EQ(json.size(), 2u);
  for (const Json& record : json) {
    ExpectRates(record);
    EXPECT_EQ(record["samples_ts"].size(), 3u);
    EXPECT_EQ(record["valid"], true);
    EXPECT_EQ(record["isa"], "scalar");
    EXPECT_EQ(record["model_filename"], DemoModelPath());
    EXPECT_EQ(record["n_threads"], 1);
    EXPECT_EQ(record["n_stages"], 1);
    EXPECT_EQ(record["type_k"], "f16");
    EXPECT_EQ(record["sampling"], "temp 0.7, top-k 40, top-p 0.9, min-p 0.01, repeat-penalty 1.1");
  }
  EXPECT_EQ(json[0]["n_prompt"], 16);
  EXPECT_EQ(json[1]["n_gen"], 4);
  EXPECT_EQ(json[1]["n_depth"], 8);
  EXPECT_EQ(json[1]["n_parallel"], 2);
  EXPECT_EQ(json[0]["equal_sequences"], false);
  EXPECT_EQ(json[1]["equal_sequences"], true);
}

TEST(Bench, RunsOneJobForEveryNumberOfStagesWhoseLogsAndTracesFollowEachOther) {
  const TempDir dir;
  const std::string steps = dir.File("steps.jsonl"), trace = dir.File("trace.json");
  const ProgramResult result = BenchOfDemo(
      absl::StrCat("-p 16 -n 4 -b 3 -r 1 -o jsonl --pp 1,2 --cpu-bind none --step-log ", steps, " --trace ", trace));
  ASSERT_EQ(result.exit_code, 0) << result;
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 4u) << result;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json record = Json::parse(lines[i]);
    ExpectRates(record);
    EXPECT_EQ(record["n_stages"], i < 2 ? 1 : 2);
    EXPECT_TRUE(record["peak_share"].is_number()) << record;
  }
  std::set<size_t> stages;
  for (const std::string& line : Lines(ReadFileOrDie(steps))) stages.insert(Json::parse(line)["stages"].size());
  EXPECT_THAT(stages, ElementsAre(1, 2));
  ExpectWellFormedTrace(nlohmann::json::parse(ReadFileOrDie(trace), nullptr, false));
  const Json jobs = CoordinatorJson({"trace", "summary", trace, "--json"})["jobs"];
  ASSERT_EQ(jobs.size(), 2u);
  for (size_t job : {0, 1}) EXPECT_EQ(jobs[job]["stages"].size(), job + 1);
}

TEST(Bench, AccountsForEveryPartOfAStepInEveryStage) {
  const ProgramResult result = BenchOfDemo("-p 16 -n 8 -r 2 -o jsonl --pp 1,2 --cpu-bind none --account");
  ASSERT_EQ(result.exit_code, 0) << result;
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 4u) << result;
  double matrix_bytes = 0;  // of a decode step with one stage
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json record = Json::parse(lines[i]);
    const Json& account = record["account"];
    EXPECT_EQ(account["steps"], record["n_gen"] == 0 ? 2 : 16) << account;
    ASSERT_EQ(account["stages"].size(), i < 2 ? 1u : 2u);
    const auto of = [](const Json& json, const char* key) { return json[key].get<double>(); };
    double sum = of(account, "coordinator_ns") + of(account, "hops_ns"), bytes = 0;
    EXPECT_GT(of(account, "hops_ns"), 0);
    for (const Json& stage : account["stages"]) {
      sum += of(stage, "queue_ns") + of(stage, "compute_ns");
      double parts = of(stage, "outside_ns");
      bool has_head = false;
      for (const Json& part : stage["parts"]) {
        parts += of(part, "busy_ns") + of(part, "wait_ns");
        bytes += part["part"] == "attention" ? 0 : of(part, "bytes");
        has_head |= part["part"] == "head";
      }
      EXPECT_EQ(has_head, &stage == &account["stages"].back());
      EXPECT_GT(of(stage, "outside_ns"), 0);
      EXPECT_NEAR(parts, of(stage, "compute_ns"), 0.01 * parts) << stage;
    }
    // One sequence: steps follow each other, and their lines add up to what was measured.
    EXPECT_NEAR(sum, of(account, "wall_ns"), 0.02 * sum) << account;
    if (i == 1) matrix_bytes = bytes;
    if (i == 3) {
      EXPECT_EQ(bytes, matrix_bytes) << "the same matrices, by two stages";
    }
  }
  EXPECT_GT(matrix_bytes, 1e6);
}

TEST(Bench, PrintsTheAccountBehindItsTable) {
  const TempDir dir;
  const std::string steps = dir.File("steps.jsonl");
  const ProgramResult result = BenchOfDemo(absl::StrCat("-p 0 -n 4 -b 1,2 -r 1 --account --step-log ", steps));
  ASSERT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, HasSubstr("\n\ntg4: 4 steps of "));
  EXPECT_THAT(result.out, HasSubstr("\n\ntg4 x2: "));
  EXPECT_THAT(result.out, HasSubstr("stage 0, layers 0-7, 1 thread on "));
  for (const char* line :
       {"gate, up ", "head ", "outside of the threads ", "= computing ", "hops ", "coordinator ", "= sum ", "wall "}) {
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat("\n", line))) << line;
  }
  EXPECT_FALSE(Lines(ReadFileOrDie(steps)).empty()) << "the user's own log stays";
}

TEST(Bench, PrintsWhatItMeasuredWhereTheStepLogIsLost) {
  const ProgramResult result = BenchOfDemo("-p 8 -n 4 -r 1 -o jsonl --account --step-log /dev/null");
  EXPECT_NE(result.exit_code, 0) << result;
  EXPECT_THAT(result.err, HasSubstr("the step log has no step of a load"));
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 2u) << result;
  for (const std::string& line : lines) EXPECT_FALSE(Json::parse(line).contains("account")) << line;
}

TEST(Bench, MeasuresModelsWithoutAFile) {
  const ProgramResult result =
      Bench(WordsOf("--load-format dummy --shape tiny --type q8_0,q4_0 -p 8 -n 0 -r 1 -o csv -q"));
  ASSERT_THAT(result, EndsWithCode(0, IsEmpty()));
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 3u) << result;
  EXPECT_THAT(lines[0], StartsWith("build,cpu_info,isa,"));
  EXPECT_THAT(lines[1], HasSubstr("\"dummy://tiny/q8_0\""));
  EXPECT_THAT(lines[2], HasSubstr("\"dummy://tiny/q4_0\""));
}

TEST(Bench, TakesTheLayoutOfTypeId42) {
  SHARED_FILE_OR_SKIP(model, "models/quantized/demo-q2_0.gguf");
  const auto size_as = [&](const char* layout) {
    const ProgramResult result =
        Bench({"-m", model, "-p", "8", "-n", "0", "-r", "1", "-o", "jsonl", "--q2-layout", layout});
    EXPECT_EQ(result.exit_code, 0) << result;
    return result.exit_code == 0 ? Json::parse(result.out)["model_size"].get<int64_t>() : 0;
  };
  const int64_t found = size_as("auto");
  EXPECT_EQ(size_as("g64"), found);
  EXPECT_LT(size_as("g128"), found);  // 34 bytes for 128 weights, where the file has 36
}

TEST(Bench, WorksInAWorldThatMpirunStarted) {
  const ProgramResult result = World(WordsOf("bench -m MODEL -t 1 -p 16 -n 4 -r 1 -o jsonl"), 2, "", 300);
  ASSERT_EQ(result.exit_code, 0) << result;
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 2u) << result;
  for (const std::string& line : lines) EXPECT_EQ(Json::parse(line)["n_stages"], 2);
}

TEST(Bench, EndsCleanlyWhenInterrupted) {
  Subprocess bench(CoordinatorProgram(), WordsOf("bench -m MODEL -t 1 -p 16 -n 512 -r 100 -o json"));
  ASSERT_TRUE(bench.WaitForOutput("pp16", 0.1) || bench.WaitForOutput("VALID", 60));
  ASSERT_TRUE(bench.WaitForOutput("[", 120));  // the first test is through
  bench.Kill(SIGINT);
  const ProgramResult result = bench.Wait(30);
  EXPECT_FALSE(result.timed_out);
  EXPECT_THAT(result, EndsWithCode(130, HasSubstr("interrupted after 1 of 2 tests")));
  EXPECT_EQ(Json::parse(result.out).size(), 1u);
}

TEST(Bench, WrongInputEndsWithAMessageBeforeAnythingStarts) {
  ExpectRefused({"bench"}, {
                               {"", 2, "--model is required, or --load-format dummy"},
                               {"-m /nowhere.gguf", 3, "/nowhere.gguf"},
                               {"--load-format dummy --type q8_0", 2, "--shape is required"},
                               {"--load-format dummy --shape tiny", 2, "--type is required"},
                               {"--load-format dummy --shape huge --type q8_0", 3, "huge"},
                           });
  ExpectRefused(WordsOf("bench -m MODEL"),
                {
                    {"--shape tiny", 2, "--shape and --type need --load-format dummy"},
                    {"--load-format dummy", 2, "instead of --model"},
                    {"-p 128;512", 2, "'128;512' is not an integer"},
                    {"-b 1,,2", 2, "'' is not an integer"},
                    {"-d -1", 2, "-1 is out of range, expected 0 to"},
                    {"-b 0", 2, "0 is out of range, expected 1 to 4096"},
                    {"-r 0", 2, "--repetitions: 0 is out of range, expected 1 to"},
                    {"-p 0 -n 0", 2, "there is nothing to measure"},
                    {"-p 2048", 2, "-p: pp2048 needs 2049 tokens of context"},
                    {"-d 1000", 2, "tg128 @ d1000 needs"},
                    {"-b 600", 2, "600 sequences do not fit a micro-batch of 512 rows"},
                    {"--pp 1,9", 2, "9 stages, but the model has 8 layers"},
                    {"--account -o csv", 2, "--account: a table of csv has no place for it"},
                    {"--equal-sequences --enable-prefix-caching", 2, "--equal-sequences: the"},
                    {"-o xml", 2, "'xml' is not one of md, csv, json, jsonl"},
                    {"--isa mmx", 2, "--isa: 'mmx' is not one of auto, scalar, avx2"},
                });
}

TEST(Bench, RefusesMoreSequencesThanTheCacheHolds) {
  EXPECT_THAT(BenchOfDemo("-p 0 -n 4 -d 200 -b 64 -r 1 --kv-cache-memory 1M"),
              EndsWithCode(2, HasSubstr("tg4 @ d200 x64 needs")));
}

TEST(Bench, PrintsTheLaunchLinesOfADryRun) {
  const ProgramResult result = BenchOfDemo("--pp 1,2 --dry-run");
  ASSERT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(Lines(result.out).size(), 2u) << result;
}

}  // namespace
}  // namespace stagecoach::testing
