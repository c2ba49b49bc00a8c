// The main job: text from the pipeline, launched by the coordinator itself.

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/models/tiny_model.h"

namespace stagecoach::testing {
namespace {

TEST(Generate, PrintsTheAnswerAndThenTheStatistics) {
  const ProgramResult result =
      Coordinator({"generate", "-m", DemoModelPath(), "--raw", "--pp", "2", "-p", kPrompt, "-n", "24"});
  EXPECT_THAT(result, Prints(StartsWith(" the heaven and the earth.")));
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
  EXPECT_THAT(Coordinator(generate),
              EndsWithCode(3, HasSubstr("cannot tell the layout of tensor 'blk.3.ffn_up.weight'")));
  EXPECT_THAT(CoordinatorOut(Joined(generate, {"--q2-layout", "g128-oxi"})), Not(IsEmpty()));
}

TEST(Generate, IsQuietAndWritesAStepLogWhenAsked) {
  const TempDir directory;
  const std::string path = directory.File("steps.jsonl");
  const ProgramResult result = Coordinator(Generate({"--pp", "2", "-p", kPrompt, "-n", "4", "--step-log", path}));
  EXPECT_THAT(result, Prints(" the heaven and the\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("tokens/s")));
  const std::string log = ReadFileOrDie(path);
  EXPECT_TRUE(Json::accept(log.substr(0, log.find('\n')))) << log;
  EXPECT_EQ(LinesIn(path), 4);
}

TEST(Generate, PrintsOneJsonObject) {
  const Json json =
      CoordinatorJson(Generate({"--pp", "2", "-p", kPrompt, "-n", "12", "--output", "json", "--logprobs", "3"}));
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
  Words arguments = Joined({"generate", "-m", model}, WordsOf("--kv-type f32 --pp 2 -q -n 48 --output json --raw"));
  for (const Json& prompt : reference["prompts"]) {
    arguments = Joined(arguments, {"-p", prompt["text"].get<std::string>()});
  }
  const Json results = CoordinatorJson(arguments)["results"];
  ASSERT_EQ(results.size(), reference["prompts"].size());
  for (size_t i = 0; i < results.size(); ++i) {
    const Json& prompt = reference["prompts"][i];
    EXPECT_EQ(results[i]["prompt_tokens"], prompt["tokens"].size()) << prompt["name"];
    EXPECT_EQ(results[i]["tokens"], prompt["greedy"]) << prompt["name"];
  }
}

TEST(Generate, SharesWhatPromptsHaveInCommonUnlessToldNotTo) {
  const std::string prompt = Repeated(kPrompt, 12);
  const Words words = Joined(WordsOf("generate -m MODEL --pp 2 -t 1 -n 12 --block-size 16 --output json"),
                             {"-p", prompt, "-p", prompt, "-p", prompt + "And"});
  const ProgramResult shared = Coordinator(words),
                      computed = Coordinator(Joined(words, {"--no-enable-prefix-caching"}));
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
    together = Joined(together, {"-p", prompt});
  }
  EXPECT_EQ(CoordinatorOut(Generate(together)), expected);
}

TEST(Generate, OfMorePromptsThanFitAtOnceOneThatNeverFitsCostsTheOthersNothing) {
  Words arguments = WordsOf("--pp 2 -n 3 -c 64 --max-num-seqs 1 --output json");
  const std::string long_prompt = Repeated("word", 200);
  // The seventh is looked at when the job is ready and others are being answered.
  for (int i = 0; i < 9; ++i) arguments = Joined(arguments, {"-p", i == 6 ? long_prompt : std::string(kPrompt)});
  const ProgramResult result = Coordinator(Generate(arguments));
  EXPECT_THAT(result, EndsWithCode(2, HasSubstr("prompt 7 of 9 was rejected: ")));
  const Json results = Json::parse(result.out)["results"];
  ASSERT_EQ(results.size(), 9u);
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i]["text"], i == 6 ? "" : " the heaven and") << i;
  EXPECT_THAT(results[6]["error"].get<std::string>(), HasSubstr("the context holds 64"));
}

TEST(Generate, EndsAtTheTokenThatEndsAnAnswer) {
  const Json json = CoordinatorJson(Generate({"-p", "LIBERTY, n.", "--output", "json"}));
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["tokens"].back(), 4093);
  EXPECT_THAT(json["text"].get<std::string>(), Not(HasSubstr("<|")));
}

TEST(Generate, GoesOnWhenTheEndIsIgnored) {
  const Json json = CoordinatorJson(Generate({"-p", "LIBERTY, n.", "-n", "40", "--ignore-eos", "--output", "json"}));
  EXPECT_EQ(json["finish_reason"], "length");
  ASSERT_EQ(json["tokens"].size(), 40u);
  for (const Json& token : json["tokens"]) EXPECT_LT(token.get<int>(), 4093);
}

TEST(Generate, EndsBeforeAStopStringThatSpansTokens) {
  const Json json = CoordinatorJson(
      Generate({"--pp", "2", "-p", kPrompt, "--stop", "nowhere", "--stop", "earth. And the Sp", "--output", "json"}));
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["text"], " the heaven and the ");
}

TEST(Generate, ReadsThePromptFromStandardInputAndFromAFile) {
  const std::string expected = " the heaven\n";
  EXPECT_EQ(Coordinator(Generate({"-n", "2"}), absl::StrCat(kPrompt, "\n")).out, expected);
  const TempDir directory;
  WriteFileOrDie(directory.File("p.txt"), absl::StrCat(kPrompt, "\n"));
  EXPECT_EQ(Coordinator(Generate({"-n", "2", "-f", directory.File("p.txt")})).out, expected);
}

TEST(Generate, PrintsTheSeedThatItDrewWhichGivesTheSameTokensAgain) {
  const Words words =
      Joined(WordsOf("generate -m MODEL --raw -n 30 --temp 1 --top-k 50 --output json --pp 2"), {"-p", kPrompt});
  const ProgramResult first = Coordinator(words);
  ASSERT_EQ(first.exit_code, 0) << first;
  const Json json = Json::parse(first.out);
  const std::string seed = json["seed"].dump();
  EXPECT_THAT(first.err, HasSubstr(absl::StrCat("seed ", seed)));
  EXPECT_EQ(CoordinatorJson(Joined(words, {"--seed", seed}))["tokens"], json["tokens"]);
  const std::string other = absl::StrCat(json["seed"].get<uint64_t>() / 2 + 1);
  EXPECT_NE(CoordinatorJson(Joined(words, {"--seed", other}))["tokens"], json["tokens"]);
}

TEST(Generate, RefusesAPromptThatCanNeverFitWithBothNumbers) {
  const std::string prompt = absl::StrJoin(Words(100, " the"), "");
  const ProgramResult result = Coordinator(Generate({"-p", prompt, "-c", "64"}));
  EXPECT_EQ(result.exit_code, 2) << result;
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, AllOf(HasSubstr("100"), HasSubstr("64")));
}

TEST(Generate, EndsAtTheContextsEnd) {
  const Json json =
      CoordinatorJson(Generate({"-p", kPrompt, "-c", "32", "-n", "500", "--ignore-eos", "--output", "json"}));
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["tokens"].size(), 32u - 5u);
}

TEST(Generate, NamesTheStageThatCannotServe) {
  const ProgramResult result = Coordinator(Generate({"-p", "x", "--kv-cache-memory", "1K"}));
  EXPECT_THAT(result, EndsWithCode(2, AllOf(HasSubstr("stage 0"), HasSubstr("--kv-cache-memory"))));
  EXPECT_THAT(result.out, IsEmpty());
}

TEST(Generate, DrainsByFinishingWhatRunsAndStartingNothingNew) {
  Words arguments =
      WordsOf("generate -m MODEL --raw -n 30 --ignore-eos --stage-delay-us 10000 -v --max-num-seqs 1 --output json");
  for (int i = 0; i < 5; ++i) arguments = Joined(arguments, {"-p", kPrompt});
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
  EXPECT_THAT(result, EndsWithCode(0, HasSubstr("\r")));
  EXPECT_EQ(result.out, " the heaven\n");
}

TEST(Generate, AnInterruptedAnswerIsStillAJsonObject) {
  // 20 ms a step and stage: long enough to be interrupted.
  const Words slow = WordsOf("generate -m MODEL --raw --pp 2 -n 900 --ignore-eos --stage-delay-us 20000");
  Subprocess process(CoordinatorProgram(), Joined(slow, {"-p", kPrompt, "--output", "json", "-v"}));
  ASSERT_TRUE(process.WaitForOutput("ready after", 60));
  process.Kill(SIGTERM);
  const ProgramResult result = process.Wait(30);
  EXPECT_EQ(result.exit_code, 130) << result;
  EXPECT_EQ(Json::parse(result.out)["finish_reason"], "cancelled");
}

TEST(Generate, EndsWhenNobodyReadsItsOutput) {
  EXPECT_THAT(RunProgram("bash", {"-c", "\"$@\" | head -c 10; exit ${PIPESTATUS[0]}", "bash", CoordinatorProgram(),
                                  "generate", "-m", DemoModelPath(), "--raw", "-p", kPrompt, "-n", "900",
                                  "--ignore-eos", "--stage-delay-us", "3000"}),
              EndsWithCode(3, HasSubstr("cannot write to standard output")));
}

}  // namespace
}  // namespace stagecoach::testing
