// --emulate-link: slower hops change no answer, and whatever ran over them says so.

#include "absl/strings/match.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

constexpr char kLink[] = "latency=3ms,bandwidth=100Mbit";

Json GenerateJson(const Words& more) {
  const Words words =
      WordsOf("generate -m MODEL --raw -n 12 --pp 2 -t 1 --logprobs 2 --temp 0.8 --seed 5 --output json");
  const ProgramResult result = Coordinator(Joined(Joined(words, {"-p", kPrompt}), more));
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(absl::StrContains(result.err, "emulated: latency=3ms,bandwidth=100Mbit"), !more.empty()) << result;
  return result.exit_code == 0 ? Json::parse(result.out) : Json();
}

TEST(EmulatedLink, ChangesNoTokenAndNoLogProbability) {
  Json plain = GenerateJson({}), slow = GenerateJson({"--emulate-link", kLink});
  EXPECT_FALSE(plain["timings"].contains("emulated_link"));
  EXPECT_EQ(slow["timings"]["emulated_link"], "latency=3ms,bandwidth=100Mbit");
  for (Json* json : {&plain, &slow}) {
    json->erase("timings");
    json->erase("stages");
  }
  EXPECT_EQ(plain, slow);
}

TEST(EmulatedLink, IsNamedByEveryBenchAndPoint) {
  const Json bench =
      CoordinatorJson(Joined(WordsOf("bench -m MODEL -t 1 -p 8 -n 0 -r 1 -o jsonl --emulate-link"), {kLink}));
  EXPECT_EQ(bench["emulated_link"], kLink);
  const TempDir dir;
  const std::string sweep = CoordinatorOut(
      Joined(WordsOf("sweep -m MODEL -t 1 --prompt 8 --output 4 --requests 1 --concurrency 1 -r 1 --no-probe"),
             {"-o", dir.path(), "--emulate-link", kLink}));
  EXPECT_THAT(sweep, HasSubstr("emulated latency=3ms,bandwidth=100Mbit"));
  const Json point = Json::parse(ReadFileOrDie(dir.File("points.jsonl")));
  EXPECT_DOUBLE_EQ(point["config"]["link_latency_s"].get<double>(), 0.003);
  EXPECT_DOUBLE_EQ(point["config"]["link_bytes_per_s"].get<double>(), 12.5e6);
  EXPECT_THAT(point["origin"]["command"].get<std::string>(), HasSubstr("--emulate-link latency=3ms,bandwidth=100Mbit"));
}

// Stages have the next chunk long before the one before has gone over the link, and tell of its send in time.
TEST(EmulatedLink, CarriesManyMicroBatchesAtOnce) {
  const TempDir dir;
  const std::string sweep = CoordinatorOut(
      Joined(WordsOf("sweep -m MODEL -t 1 --pp 2 --prompt 400 --prefill-chunk 16 --micro-batches 8 --output 4 "
                     "--requests 8 --concurrency 8 -r 1 --emulate-link latency=15ms"),
             {"-o", dir.path()}));
  const Json point = Json::parse(ReadFileOrDie(dir.File("points.jsonl")));
  EXPECT_EQ(point["result"]["requests"], 8);
  EXPECT_EQ(point["result"]["relaunches"], 0) << sweep;
}

TEST(EmulatedLink, ThatIsNoneIsAUsageError) {
  ExpectRefused({"generate"}, {{"-m MODEL -p x --emulate-link fast", 2,
                                "--emulate-link: 'fast' is neither latency=... nor bandwidth=..."}});
}

}  // namespace
}  // namespace stagecoach::testing
