// The main job: text from the pipeline, launched by the coordinator itself.

#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/tiny_model.h"

namespace stagecoach::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Generate, PrintsTheAnswerAndThenTheStatistics) {
  const ProgramResult result =
      Coordinator({"generate", "-m", DemoModelPath(), "--raw", "--pp", "2", "-p", kPrompt, "-n", "24"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, StartsWith(" the heaven and the earth."));
  EXPECT_EQ(result.out.back(), '\n');
  EXPECT_THAT(result.err, Not(HasSubstr("chat template")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("prompt       5 tokens"), HasSubstr("decode       24 tokens in"),
                                HasSubstr("first token  after"), HasSubstr("preemptions  0"),
                                ContainsRegex("bubble +[0-9.]+ % .*floor"), ContainsRegex("stage +host +layers"),
                                ContainsRegex("\n1 +[^ ]+ +[0-9]-7 ")));
}

TEST(Generate, TakesALayoutThatTheFileDoesNotTellInEveryProcess) {
  const TempDir directory;
  const std::string model = directory.File("m.gguf");
  GgufWriter writer = TinyModel({.hidden = 128, .ffn = 128});
  const std::string blocks(128 * 34, '\0');  // all zero: no reading of them is better than another
  writer.SetTensor("blk.3.ffn_up.weight", {128, 128}, static_cast<uint32_t>(TensorType::kQ2_0_Oxi), blocks);
  ASSERT_TRUE(writer.Write(model).ok());
  const Words generate = {"generate", "-m", model, "--pp", "2", "-p", "abc", "-n", "4", "-q", "--allow-damaged"};
  const ProgramResult refused = Coordinator(generate);
  EXPECT_EQ(refused.exit_code, 3) << refused;
  EXPECT_THAT(refused.err, HasSubstr("cannot tell the layout of tensor 'blk.3.ffn_up.weight'"));
  Words named = generate;
  named.insert(named.end(), {"--q2-layout", "g128-oxi"});
  const ProgramResult result = Coordinator(named);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, Not(IsEmpty()));
}

TEST(Generate, IsQuietWhenAsked) {
  const ProgramResult result = Coordinator(Generate({"--pp", "2", "-p", kPrompt, "-n", "4"}));
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, " the heaven and the\n");
  EXPECT_THAT(result.err, Not(HasSubstr("tokens/s")));
}

TEST(Generate, GivesTheSameTextForAnyNumberOfStages) {
  const std::string one = Coordinator(Generate({"-p", kPrompt, "-n", "40"})).out;
  EXPECT_THAT(one, StartsWith(" the heaven"));
  for (const char* split : {"4,4", "1,7", "3,3,2", "2,2,2,2"}) {
    const ProgramResult result = Coordinator(Generate({"-p", kPrompt, "-n", "40", "--layer-split", split}));
    EXPECT_EQ(result.exit_code, 0) << result;
    EXPECT_EQ(result.out, one) << split;
  }
}

TEST(Generate, PrintsOneJsonObject) {
  const ProgramResult result =
      Coordinator(Generate({"--pp", "2", "-p", kPrompt, "-n", "12", "--output", "json", "--logprobs", "3"}));
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["prompt_tokens"], 5);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_THAT(json["text"].get<std::string>(), StartsWith(" the heaven"));
  EXPECT_TRUE(json["seed"].is_number_unsigned());
  ASSERT_EQ(json["tokens"].size(), 12u);
  ASSERT_EQ(json["logprobs"].size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    const Json& entry = json["logprobs"][i];
    EXPECT_EQ(entry["token"], json["tokens"][i]);
    ASSERT_EQ(entry["top"].size(), 3u);
    EXPECT_EQ(entry["top"][0][0], entry["token"]) << "greedy takes the most probable one";
    EXPECT_EQ(entry["top"][0][1], entry["logprob"]);
    EXPECT_GE(entry["top"][0][1].get<double>(), entry["top"][1][1].get<double>());
    EXPECT_LE(entry["logprob"].get<double>(), 0);
  }
  EXPECT_EQ(json["timings"]["prompt_tokens"], 5);
  EXPECT_EQ(json["timings"]["decode_tokens"], 12);
  EXPECT_EQ(json["timings"]["prefill_rows"], 5);
  EXPECT_EQ(json["stages"].size(), 2u);
  EXPECT_EQ(json["stages"][1]["last_layer"], 8);
}

TEST(Generate, ContinuesAsTheReferenceDoes) {
  SHARED_FILE_OR_SKIP(model, "models/demo-f32.gguf");
  SHARED_FILE_OR_SKIP(reference_path, "models/reference.json");
  const Json reference = Json::parse(ReadFileOrDie(reference_path));
  Words arguments = {"generate", "-m", model, "--kv-type", "f32",  "--pp", "2",
                     "-q",       "-n", "48",  "--output",  "json", "--raw"};
  for (const Json& prompt : reference["prompts"]) {
    arguments.push_back("-p");
    arguments.push_back(prompt["text"].get<std::string>());
  }
  const ProgramResult result = Coordinator(arguments);
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json results = Json::parse(result.out)["results"];
  ASSERT_EQ(results.size(), reference["prompts"].size());
  for (size_t i = 0; i < results.size(); ++i) {
    const Json& prompt = reference["prompts"][i];
    EXPECT_EQ(results[i]["prompt_tokens"], prompt["tokens"].size()) << prompt["name"];
    EXPECT_EQ(results[i]["tokens"], prompt["greedy"]) << prompt["name"];
  }
}

TEST(Generate, SharesWhatPromptsHaveInCommonUnlessToldNotTo) {
  std::string prompt;
  for (int i = 0; i < 12; ++i) absl::StrAppend(&prompt, kPrompt, " ");
  const auto run = [&prompt](const Words& more) {
    Words words = {"generate", "-m", DemoModelPath(), "--pp", "2",        "-t",  "1",
                   "-n",       "12", "--block-size",  "16",   "--output", "json"};
    words.insert(words.end(), {"-p", prompt, "-p", prompt, "-p", prompt + "And"});
    words.insert(words.end(), more.begin(), more.end());
    return Coordinator(words);
  };
  const ProgramResult shared = run({}), computed = run({"--no-enable-prefix-caching"});
  ASSERT_EQ(shared.exit_code, 0) << shared;
  ASSERT_EQ(computed.exit_code, 0) << computed;
  const Json with = Json::parse(shared.out), without = Json::parse(computed.out);
  EXPECT_EQ(with["results"], without["results"]);
  EXPECT_EQ(with["results"][0]["tokens"], with["results"][1]["tokens"]);
  const int64_t tokens = with["results"][0]["prompt_tokens"].get<int64_t>();
  ASSERT_GT(tokens, 33);
  const int64_t blocks = (tokens - 1) / 16;
  const Json& timings = with["timings"];
  EXPECT_GE(timings["cached_tokens"], blocks * 16) << "the second one, at least";
  EXPECT_EQ(timings["prefix_hit_tokens"], timings["cached_tokens"]);
  EXPECT_EQ(timings["prefix_query_tokens"], timings["prompt_tokens"]);
  EXPECT_EQ(timings["prefill_rows"].get<int64_t>() + timings["cached_tokens"].get<int64_t>(),
            timings["prompt_tokens"].get<int64_t>());
  EXPECT_THAT(shared.err, HasSubstr(absl::StrCat("in 3 requests, ", timings["cached_tokens"].get<int64_t>(),
                                                 " of them from the prefix cache")));
  EXPECT_EQ(without["timings"]["cached_tokens"], 0);
  EXPECT_EQ(without["timings"]["prefix_query_tokens"], 0);
  EXPECT_EQ(without["timings"]["prefill_rows"], without["timings"]["prompt_tokens"]);
  EXPECT_THAT(computed.err, Not(HasSubstr("prefix cache")));
}

TEST(Generate, AnswersSeveralPromptsInTheirOrder) {
  const Words prompts = {kPrompt, "And Jesus said unto them", "LIBERTY, n."};
  std::string expected;
  Words together = {"--pp", "2", "-n", "20"};
  for (const std::string& prompt : prompts) {
    expected += Coordinator(Generate({"--pp", "2", "-n", "20", "-p", prompt})).out;
    together.insert(together.end(), {"-p", prompt});
  }
  const ProgramResult result = Coordinator(Generate(together));
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, expected);
}

TEST(Generate, RunsMorePromptsThanFitAtOnce) {
  Words arguments = {"--pp", "2", "-n", "3", "--max-num-seqs", "2", "--output", "json"};
  for (int i = 0; i < 9; ++i) arguments.insert(arguments.end(), {"-p", kPrompt});
  const ProgramResult result = Coordinator(Generate(arguments));
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json results = Json::parse(result.out)["results"];
  ASSERT_EQ(results.size(), 9u);
  for (const Json& answer : results) EXPECT_EQ(answer["text"], " the heaven and");
}

TEST(Generate, APromptThatDoesNotFitCostsTheOthersNothing) {
  Words arguments = {"--pp", "2", "-n", "3", "-c", "64", "--max-num-seqs", "1", "--output", "json"};
  std::string long_prompt;
  for (int i = 0; i < 200; ++i) long_prompt += " word";
  // The seventh is looked at when the job is ready and others are being answered.
  for (int i = 0; i < 9; ++i) arguments.insert(arguments.end(), {"-p", i == 6 ? long_prompt : std::string(kPrompt)});
  const ProgramResult result = Coordinator(Generate(arguments));
  EXPECT_EQ(result.exit_code, 2) << result;
  EXPECT_THAT(result.err, HasSubstr("prompt 7 of 9 was rejected: "));
  const Json results = Json::parse(result.out)["results"];
  ASSERT_EQ(results.size(), 9u);
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i]["text"], i == 6 ? "" : " the heaven and") << i;
  EXPECT_THAT(results[6]["error"].get<std::string>(), HasSubstr("the context holds 64"));
}

TEST(Generate, EndsAtTheTokenThatEndsAnAnswer) {
  const ProgramResult result = Coordinator(Generate({"-p", "LIBERTY, n.", "--output", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["tokens"].back(), 4093);
  EXPECT_THAT(json["text"].get<std::string>(), Not(HasSubstr("<|")));
}

TEST(Generate, GoesOnWhenTheEndIsIgnored) {
  const ProgramResult result =
      Coordinator(Generate({"-p", "LIBERTY, n.", "-n", "40", "--ignore-eos", "--output", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["finish_reason"], "length");
  ASSERT_EQ(json["tokens"].size(), 40u);
  for (const Json& token : json["tokens"]) EXPECT_LT(token.get<int>(), 4093);
}

TEST(Generate, EndsBeforeAStopStringThatSpansTokens) {
  const ProgramResult text =
      Coordinator(Generate({"--pp", "2", "-p", kPrompt, "--stop", "nowhere", "--stop", "earth. And the Sp"}));
  EXPECT_EQ(text.exit_code, 0) << text;
  EXPECT_EQ(text.out, " the heaven and the \n");
  const ProgramResult json = Coordinator(Generate({"--pp", "2", "-p", kPrompt, "--stop", "earth", "--output", "json"}));
  ASSERT_EQ(json.exit_code, 0) << json;
  EXPECT_EQ(Json::parse(json.out)["finish_reason"], "stop");
  EXPECT_EQ(Json::parse(json.out)["text"], " the heaven and the ");
}

TEST(Generate, ReadsThePromptFromStandardInputAndFromAFile) {
  const std::string expected = Coordinator(Generate({"-p", kPrompt, "-n", "10"})).out;
  EXPECT_EQ(Coordinator(Generate({"-n", "10"}), absl::StrCat(kPrompt, "\n")).out, expected);
  const TempDir directory;
  WriteFileOrDie(directory.File("p.txt"), absl::StrCat(kPrompt, "\n"));
  EXPECT_EQ(Coordinator(Generate({"-n", "10", "-f", directory.File("p.txt")})).out, expected);
}

TEST(Generate, DrawsTheSameTokensForTheSameSeed) {
  const Words sampled = {"--pp", "2", "-p", kPrompt, "-n", "30", "--temp", "1", "--top-k", "50"};
  const auto with_seed = [&](const char* seed) {
    Words words = sampled;
    words.insert(words.end(), {"--seed", seed});
    return Coordinator(Generate(words)).out;
  };
  EXPECT_EQ(with_seed("7"), with_seed("7"));
  EXPECT_NE(with_seed("7"), with_seed("8"));
}

TEST(Generate, PrintsTheSeedThatItDrew) {
  const ProgramResult first = Coordinator(
      {"generate", "-m", DemoModelPath(), "--raw", "-p", kPrompt, "-n", "20", "--temp", "1", "--output", "json"});
  ASSERT_EQ(first.exit_code, 0) << first;
  const Json json = Json::parse(first.out);
  const std::string seed = json["seed"].dump();
  EXPECT_THAT(first.err, HasSubstr(absl::StrCat("seed ", seed)));
  const ProgramResult again =
      Coordinator(Generate({"-p", kPrompt, "-n", "20", "--temp", "1", "--output", "json", "--seed", seed}));
  EXPECT_EQ(Json::parse(again.out)["tokens"], json["tokens"]);
}

TEST(Generate, RefusesAPromptThatCanNeverFitWithBothNumbers) {
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += " the";
  const ProgramResult result = Coordinator(Generate({"-p", prompt, "-c", "64"}));
  EXPECT_EQ(result.exit_code, 2) << result;
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, AllOf(HasSubstr("100"), HasSubstr("64")));
}

TEST(Generate, EndsAtTheContextsEnd) {
  const ProgramResult result =
      Coordinator(Generate({"-p", kPrompt, "-c", "32", "-n", "500", "--ignore-eos", "--output", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["tokens"].size(), 32u - 5u);
}

TEST(Generate, NamesTheStageThatCannotServe) {
  const ProgramResult result = Coordinator(Generate({"-p", "x", "--kv-cache-memory", "1K"}));
  EXPECT_EQ(result.exit_code, 2) << result;
  EXPECT_THAT(result.err, AllOf(HasSubstr("stage 0"), HasSubstr("--kv-cache-memory")));
  EXPECT_THAT(result.out, IsEmpty());
}

TEST(Generate, WritesAStepLog) {
  const TempDir directory;
  const std::string path = directory.File("steps.jsonl");
  const ProgramResult result = Coordinator(Generate({"--pp", "2", "-p", kPrompt, "-n", "6", "--step-log", path}));
  ASSERT_EQ(result.exit_code, 0) << result;
  const std::string log = ReadFileOrDie(path);
  const std::string first = log.substr(0, log.find('\n'));
  EXPECT_TRUE(Json::accept(first)) << first;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 6);
}

// A chunk is on its way before the result of the one before it is there: the log says when.
TEST(Generate, HasSeveralChunksOfOnePromptInFlight) {
  const TempDir directory;
  const std::string path = directory.File("steps.jsonl");
  std::string prompt;
  for (int i = 0; i < 600; ++i) prompt += " the";
  const ProgramResult result = Coordinator(Generate({"--pp", "2", "-p", prompt, "-n", "1", "--prefill-chunk", "150",
                                                     "--max-num-batched-tokens", "150", "--step-log", path}));
  ASSERT_EQ(result.exit_code, 0) << result;
  std::vector<Json> steps;
  const std::vector<std::string> lines = absl::StrSplit(ReadFileOrDie(path), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) steps.push_back(Json::parse(line));
  ASSERT_GE(steps.size(), 4u);
  for (size_t i = 0; i + 1 < 4; ++i) {
    EXPECT_EQ(steps[i]["slices"][0]["sequence"], steps[i + 1]["slices"][0]["sequence"]);
    EXPECT_LT(steps[i + 1]["submit_us"], steps[i]["confirm_us"]) << "chunk " << i + 1 << " was not sent ahead";
  }
}

TEST(Generate, DrainsByFinishingWhatRunsAndStartingNothingNew) {
  Words arguments = {"generate", "-m", DemoModelPath(),  "--raw", "-n",       "30",  "--ignore-eos", "--stage-delay-us",
                     "10000",    "-v", "--max-num-seqs", "1",     "--output", "json"};
  for (int i = 0; i < 5; ++i) arguments.insert(arguments.end(), {"-p", kPrompt});
  Subprocess process(CoordinatorProgram(), arguments);
  ASSERT_TRUE(process.WaitForOutput("ready after", 60));
  process.Kill(SIGUSR1);
  const ProgramResult result = process.Wait(60);
  EXPECT_EQ(result.exit_code, 130) << result;
  const Json results = Json::parse(result.out)["results"];
  ASSERT_EQ(results.size(), 5u);
  EXPECT_EQ(results[0]["tokens"].size(), 30u);
  EXPECT_EQ(results[1]["finish_reason"], "length") << "it was handed out already";
  for (int i = 2; i < 5; ++i) EXPECT_EQ(results[i]["tokens"].size(), 0u) << i;
}

TEST(Generate, ShowsProgressOnStandardErrorWhenAsked) {
  const ProgramResult result =
      Coordinator({"generate", "-m", DemoModelPath(), "--raw", "-p", kPrompt, "-n", "2", "--progress", "always"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.err, HasSubstr("\r"));
  EXPECT_EQ(result.out, " the heaven\n");
}

// 20 ms a step and stage: long enough to be interrupted.
const Words kSlow = {"generate", "-m",           DemoModelPath(),    "--raw", "--pp", "2", "-p", kPrompt, "-n",
                     "900",      "--ignore-eos", "--stage-delay-us", "20000"};

TEST(Generate, StreamsWhileItRunsAndEndsAtTheFirstInterruptWithStatistics) {
  Subprocess process(CoordinatorProgram(), kSlow);
  ASSERT_TRUE(process.WaitForOutput(" the heaven and the earth", 60));
  process.Kill(SIGINT);
  const ProgramResult result = process.Wait(30);
  EXPECT_EQ(result.exit_code, 130) << result;
  EXPECT_EQ(result.out.back(), '\n');
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("decode +[0-9]+ tokens"), ContainsRegex("stage +host"), HasSubstr("interrupted")));
}

TEST(Generate, AnInterruptedAnswerIsStillAJsonObject) {
  Words arguments = kSlow;
  arguments.insert(arguments.end(), {"--output", "json", "-v"});
  Subprocess process(CoordinatorProgram(), arguments);
  ASSERT_TRUE(process.WaitForOutput("ready after", 60));
  process.Kill(SIGTERM);
  const ProgramResult result = process.Wait(30);
  EXPECT_EQ(result.exit_code, 130) << result;
  EXPECT_EQ(Json::parse(result.out)["finish_reason"], "cancelled");
}

TEST(Generate, TheSecondInterruptEndsIt) {
  Words arguments = kSlow;
  arguments.back() = "5000000";  // the first step takes longer than anybody waits
  arguments.push_back("-v");
  Subprocess process(CoordinatorProgram(), arguments);
  ASSERT_TRUE(process.WaitForOutput("ready after", 60));
  process.Kill(SIGINT);
  process.Kill(SIGINT);
  const ProgramResult result = process.Wait(30);
  EXPECT_EQ(result.exit_code, 130) << result;
}

TEST(Generate, EndsWhenNobodyReadsItsOutput) {
  const ProgramResult result = RunProgram(
      "bash", {"-c", "\"$@\" | head -c 10; exit ${PIPESTATUS[0]}", "bash", CoordinatorProgram(), "generate", "-m",
               DemoModelPath(), "--raw", "-p", kPrompt, "-n", "900", "--ignore-eos", "--stage-delay-us", "3000"});
  EXPECT_EQ(result.exit_code, 3) << result;
  EXPECT_THAT(result.err, HasSubstr("cannot write to standard output"));
}

}  // namespace
}  // namespace stagecoach::testing
