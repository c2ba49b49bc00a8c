// `coordinator verify`: runs that must agree do, and where something is broken it says where.

#include <signal.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/models/damaged_copy.h"
#include "tests/testing/models/tiny_architectures.h"

namespace stagecoach::testing {
namespace {

constexpr int kDifferent = 1;

ProgramResult Verify(const Words& more, const std::string& model = DemoModelPath()) {
  return Coordinator(Joined({"verify", "-m", model, "--layer-split", "4,4", "-n", "6", "-t", "1"}, more), /*input=*/"",
                     /*timeout_s=*/300);
}

TEST(Verify, AHealthyClusterIsIdenticalInAllRuns) {
  const ProgramResult result = Verify({"-p", "Who made the heaven?"});
  ASSERT_EQ(result.exit_code, 0) << result;
  // As planned, one after the other, two chunks, restarted, without and with guesses, two splits, one stage.
  EXPECT_THAT(result.out, HasSubstr("identical: 10 runs, 30 tokens and "));
  EXPECT_THAT(result.out, ContainsRegex("\n 6  without guesses      layers 4,4, chunk 512: 30 tokens and .*\n"
                                        " 7  with guesses         layers 4,4, chunk 512, [0-9]+ guesses, [1-9][0-9]* "
                                        "right: 30 tokens and "));
  EXPECT_THAT(result.out, HasSubstr("layers 5,3, chunk 512: 30 tokens"));
  EXPECT_THAT(result.out, HasSubstr("layers 1,7, chunk 512: 30 tokens"));
  EXPECT_THAT(result.out, HasSubstr("layers 8, chunk 512: 30 tokens"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("layers 4,4, chunk 7: 30 tokens"), Not(HasSubstr("DIFFERENT"))));
}

TEST(Verify, OneStageSaysThatNoSplitIsCompared) {
  const ProgramResult result = Verify({"--layer-split", "8", "--chunks", "7"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out,
              HasSubstr("note: the job has one stage, so no other split is compared: --pp 2 or more hosts"));
  EXPECT_THAT(result.out, HasSubstr("identical: 5 runs"));
}

TEST(Verify, ChecksumsCompareEveryRowBehindEveryLayer) {
  const ProgramResult result = Verify({"--checksums", "--json", "--chunks", "5", "--splits", "1"});
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["verdict"], "identical");
  ASSERT_EQ(json["runs"].size(), 8u);
  int64_t rows = 0;
  for (const Json& request : json["requests"]) {
    rows += request["prompt_tokens"].get<int64_t>() + request["new_tokens"].get<int64_t>() - 1;
  }
  for (const Json& run : json["runs"]) {
    EXPECT_EQ(run["verdict"], "identical") << run;
    EXPECT_EQ(run["hidden_states"], 8 * rows) << run;
  }
  EXPECT_EQ(json["runs"][7]["stages"].size(), 1u);
  // Both kinds were there; the hidden states of void rows are nobody's.
  const Json& guesses = json["runs"][5];
  EXPECT_GT(guesses["guesses_right"].get<int>(), 0) << guesses;
  EXPECT_LT(guesses["guesses_right"].get<int>(), guesses["guesses"].get<int>()) << guesses;
  EXPECT_TRUE(json["difference"].is_null());
}

TEST(Verify, AModelWithoutAVocabularyIsAskedMadeUpTokens) {
  EXPECT_THAT(Verify({"--splits", "0", "--chunks", "7", "--layer-split", "2,1"}, "dummy://tiny/q8_0"),
              Prints(HasSubstr("identical: 7 runs")));
  EXPECT_EQ(Verify({"-p", "text"}, "dummy://tiny/q8_0").exit_code, 3);
}

// What --wire-dtype bf16 does by design is no difference: where stages begin matters there.
TEST(Verify, WhereHiddenStatesAreRoundedOtherSplitsAreLeftOutAndTheRestIsIdentical) {
  const ProgramResult result = Verify({"--wire-dtype", "bf16", "--splits", "1", "--chunks", "7,7"});
  EXPECT_THAT(result, Prints(AllOf(HasSubstr("layers 4,4, chunk 7: 24 tokens"), HasSubstr(" 4  restarted "))));
  EXPECT_THAT(result.out,
              HasSubstr(" 7  another split        layers 5,3: left out: hidden states are rounded between stages"));
  EXPECT_THAT(result.out, HasSubstr(" 8  one stage            left out: hidden states are rounded between stages"));
  EXPECT_THAT(result.out, HasSubstr("identical: 6 runs"));
  EXPECT_THAT(result.out, Not(HasSubstr("DIFFERENT")));
}

TEST(Verify, ALongPromptGoesBeyondTheWindowWhereContextAndPoolHoldIt) {
  const TempDir directory;
  TinyArchitectureOptions options = TinyArchitecture("gemma3", TensorType::kF32);
  options.window = 900;
  options.context = 2048;
  const std::string model = directory.File("tiny.gguf");
  WriteTinyArchitecture(model, options);
  const Words more = {"--layer-split", absl::StrCat(options.layers - 1, ",1"), "--splits", "0", "--chunks", "64"};
  const ProgramResult result = Verify(more, model);
  EXPECT_THAT(result, Prints(HasSubstr("long prompt, greedy (964 tokens)")));
  EXPECT_THAT(result.out, HasSubstr("identical: 7 runs, 30 tokens"));
  EXPECT_THAT(Verify(Joined(more, {"-c", "400"}), model).out,
              HasSubstr("note: no prompt is longer than the window of 900 positions"));
}

// The second of two stages, whose host has a damaged copy of the model.
std::string WriteDamagedStage(const std::string& directory, const std::string& model, const std::string& tensor) {
  const std::string stage = directory + "/stage";
  const std::string damaged = WriteDamagedCopy(model, tensor, directory + "/damaged.gguf");
  WriteFileOrDie(stage, absl::StrCat("#!/bin/sh\nexec ", BuildPath("tests/e2e/faulty_stage"), " 2 ", damaged, "\n"));
  EXPECT_EQ(chmod(stage.c_str(), 0755), 0);
  return stage;
}

TEST(Verify, OneFlippedBitOfAWeightOnOneHostIsFoundAndItsLayerAndStageAreNamed) {
  const TempDir directory;
  const std::string stage = WriteDamagedStage(directory.path(), DemoModelPath(), "blk.4.ffn_down.weight");
  const ProgramResult result = Verify({"--stage-worker", stage, "--json", "--chunks", "7"});
  EXPECT_EQ(result.exit_code, kDifferent) << result;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["verdict"], "different");
  // The layer is on the sound host with layers 5,3 and with one stage.
  EXPECT_EQ(json["agreeing"], Json::parse("[[1, 2, 3, 4, 5, 6, 8], [7, 9]]"));
  const Json& difference = json["difference"];
  EXPECT_EQ(difference["runs"], Json::parse("[1, 7]"));
  EXPECT_EQ(difference["looked_again"], true);
  EXPECT_EQ(difference["hidden"]["layer"], 4);
  EXPECT_LT(difference["hidden"]["position"], 4);  // where first a state is not 0 where the bit is
  EXPECT_EQ(difference["hidden"]["stages"][0]["stage"], 1);
  EXPECT_EQ(difference["hidden"]["stages"][1]["stage"], 0);
  EXPECT_THAT(result.err, HasSubstr("first behind layer 4"));
}

// Of one expert of many, which not every position chooses.
TEST(Verify, OneFlippedBitOfAnExpertIsFound) {
  const TempDir directory;
  TinyArchitectureOptions options = TinyArchitecture("qwen3moe", TensorType::kQ8_0);
  options.layers = 8;
  const std::string model = WriteTinyArchitecture(directory.File("tiny.gguf"), options);
  const std::string stage = WriteDamagedStage(directory.path(), model, "blk.4.ffn_down_exps.weight");
  const ProgramResult result = Verify({"--stage-worker", stage, "--json", "--chunks", "7", "--splits", "1"}, model);
  EXPECT_EQ(result.exit_code, kDifferent) << result;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["difference"]["hidden"]["layer"], 4) << result.out;
  EXPECT_EQ(json["difference"]["hidden"]["stages"][0]["stage"], 1);
}

TEST(Verify, StepLogsOfItsJobsFollowEachOther) {
  const TempDir directory;
  const std::string log = directory.File("steps.jsonl");
  const ProgramResult result = Verify({"--step-log", log, "--chunks", "7", "--splits", "0"});
  EXPECT_EQ(result.exit_code, 0) << result;
  int jobs = 0;
  for (const std::string& line : Lines(ReadFileOrDie(log))) jobs += absl::StrContains(line, "\"job\":") ? 1 : 0;
  EXPECT_EQ(jobs, 6) << "as planned, chunks, restarted, without and with guesses, one stage";
}

// What was found before somebody stopped it is said.
TEST(Verify, AnInterruptedOneSaysWhatItHasSeen) {
  Subprocess front(CoordinatorProgram(), WordsOf("verify -m MODEL --layer-split 4,4 -n 6 -t 1 --stage-delay-us 20000"));
  ASSERT_TRUE(front.WaitForOutput(" 3  chunks of 7", 90)) << front.err();
  front.Kill(SIGINT);
  const ProgramResult result = front.Wait(60);
  EXPECT_EQ(result.exit_code, 130) << result;
  EXPECT_THAT(result.out, HasSubstr("incomplete, identical so far: ")) << result;
}

TEST(Verify, IsNotForAWorldThatALauncherStarted) {
  const ProgramResult result = World({"verify", "-m", DemoModelPath(), "-n", "4"}, 2);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("start it without mpirun or srun"));
}

TEST(Verify, RefusesWhatItCannotAsk) {
  ProgramResult result = Verify({"-n", "1"});
  EXPECT_THAT(result, EndsWithCode(2, HasSubstr("expected 2 to 4096")));
  result = Verify({"-c", "40"});
  EXPECT_THAT(result, Prints(HasSubstr("verify's own prompts are cut to 34 tokens for the context")));
  EXPECT_THAT(result.out, HasSubstr("chunks of 64         left out: the longest prompt has 34 tokens"));
  result = Verify({"--kv-cache-memory", "100K"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("--kv-cache-memory, or ask for less with --predict"));
  result = Verify({"-c", "40", "-p", std::string(400, 'x')});
  EXPECT_THAT(result, EndsWithCode(2, HasSubstr("but the context is 40")));
}

}  // namespace
}  // namespace stagecoach::testing
