// batch: answers that survive being killed.

#include <signal.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

std::string TextOf(const Json& line) { return line["response"]["body"]["choices"][0]["text"].get<std::string>(); }

// A job at work: the words without -q, so that it says when it is ready.
Words Loud(const std::string& in, const std::string& out, const Words& more) {
  return Joined({"batch", "-m", DemoModelPath(), "-i", in, "-o", out, "-t", "1", "-v"}, more);
}

// Lines with different prompts, lengths and sampling; a few are wrong.
std::string ManyLines(int count) {
  std::string input;
  for (int i = 0; i < count; ++i) {
    Json body = {{"prompt", absl::StrCat("Chapter ", i, ". And it came to pass")}, {"max_tokens", 5 + i % 7}};
    if (i % 3 == 0) body["temperature"] = 0.8;
    if (i % 3 == 0) body["seed"] = i;
    if (i % 10 == 9) body["n"] = 2;
    input += BatchInputLine(absl::StrCat("id-", i), body);
  }
  return input + "{\"no\":\"id\"}\n";
}

class BatchVerb : public ::testing::Test {
 protected:
  // The answers to these lines, which end well.
  std::map<std::string, Json> Answers(const std::string& lines, const Words& more = {}) const {
    WriteFileOrDie(in_, lines);
    EXPECT_EQ(CoordinatorOut(Batch(in_, out_, more)), "");
    return ReadBatchOutput(out_);
  }

  const TempDir directory_;
  const std::string in_ = directory_.File("in.jsonl"), out_ = directory_.File("out.jsonl");
};

TEST_F(BatchVerb, AnswersEveryLineAsGenerateDoes) {
  std::map<std::string, Json> lines =
      Answers(BatchInputLine("text", {{"prompt", kPrompt}, {"max_tokens", 12}, {"logprobs", 2}}) +
                  BatchInputLine("ids", {{"prompt", {3784, 258, 2149, 390, 2841}}, {"max_tokens", 12}}) +
                  BatchInputLine("stop", {{"prompt", kPrompt}, {"stop", {"earth"}}}) +
                  BatchInputLine("default", {{"prompt", kPrompt}}),
              {"--pp", "2", "-n", "6"});
  ASSERT_EQ(lines.size(), 4u);
  const std::string expected = Coordinator(Generate({"-p", kPrompt, "-n", "12"})).out;
  EXPECT_EQ(TextOf(lines["text"]) + "\n", expected);
  EXPECT_EQ(TextOf(lines["ids"]) + "\n", expected);
  EXPECT_EQ(TextOf(lines["stop"]), " the heaven and the ");
  EXPECT_EQ(lines["stop"]["response"]["body"]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(lines["default"]["response"]["body"]["usage"]["completion_tokens"], 6);
  EXPECT_EQ(lines["text"]["response"]["body"]["choices"][0]["logprobs"]["tokens"].size(), 12u);
}

TEST_F(BatchVerb, AnswersConversationsAsTheirTemplateWritesThem) {
  const Json said = {{{"role", "user"}, {"content", "In the beginning"}}};
  Json chat = Json::parse(BatchInputLine("chat", {{"messages", said}, {"max_tokens", 6}}));
  chat["url"] = "/v1/chat/completions";
  const std::string written = "<|im_start|>user\nIn the beginning<|im_end|>\n<|im_start|>assistant\n";
  std::map<std::string, Json> lines =
      Answers(chat.dump() + "\n" + BatchInputLine("text", {{"prompt", written}, {"max_tokens", 6}}),
              {"--chat-template", "chatml"});
  const Json answer = lines["chat"]["response"]["body"];
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], TextOf(lines["text"]));
  EXPECT_EQ(answer["usage"]["prompt_tokens"], lines["text"]["response"]["body"]["usage"]["prompt_tokens"]);
}

TEST_F(BatchVerb, AnsweredToTheEndHasNothingLeftToDo) {
  EXPECT_EQ(Answers(ManyLines(12)).size(), 13u);
  const std::string first = ReadFileOrDie(out_);
  CoordinatorOut(Batch(in_, out_));
  EXPECT_EQ(ReadFileOrDie(out_), first) << "failed lines are not retried";
}

TEST_F(BatchVerb, OfErrorsAloneDoesNotEndAsIfItHadAnswers) {
  WriteFileOrDie(in_, BatchInputLine("two", {{"prompt", "And"}, {"n", 2}}) + "{\"no\":\"id\"}\n");
  EXPECT_THAT(Coordinator(Batch(in_, out_)),
              EndsWithCode(3, HasSubstr(absl::StrCat("no line has an answer: 2 have their errors in '", out_, "'"))));
  EXPECT_EQ(ReadBatchOutput(out_).size(), 2u);
}

TEST_F(BatchVerb, KilledAtAnyMomentAndRunAgainAnswersEveryLineOnce) {
  const std::string whole = directory_.File("whole.jsonl");
  WriteFileOrDie(in_, ManyLines(40));
  CoordinatorOut(Batch(in_, whole, {"--pp", "2"}));
  const Words slow = WordsOf("--pp 2 --stage-delay-us 4000 --max-num-seqs 3");
  for (const int answers : {1, 7, 20}) {
    Subprocess process(CoordinatorProgram(), Loud(in_, out_, slow));
    process.WaitUntil([&] { return LinesIn(out_) >= answers; }, 30);
    process.Kill(SIGKILL);
    EXPECT_EQ(process.Wait(30).exit_code, 128 + SIGKILL);
  }
  // A torn line, as a crash of the machine leaves it.
  const std::string kept = ReadFileOrDie(out_);
  WriteFileOrDie(out_, kept + "{\"id\":\"batch_req_7\",\"custom_id\":\"id-3");
  CoordinatorOut(Batch(in_, out_, {"--pp", "2"}));
  EXPECT_EQ(ReadFileOrDie(out_).substr(0, kept.size()), kept) << "what was answered stays as it is";
  std::map<std::string, Json> resumed = ReadBatchOutput(out_), expected = ReadBatchOutput(whole);
  ASSERT_EQ(resumed.size(), 41u);
  for (auto& [id, line] : expected) {
    ASSERT_TRUE(resumed.contains(id)) << id;
    EXPECT_EQ(resumed[id]["error"], line["error"]) << id;
    if (line["error"].is_null()) {
      EXPECT_EQ(TextOf(resumed[id]), TextOf(line)) << id;
    }
  }
}

TEST_F(BatchVerb, InterruptedLeavesWhatRanForTheNextRun) {
  WriteFileOrDie(in_, ManyLines(30));
  Subprocess process(CoordinatorProgram(), Loud(in_, out_, {"--stage-delay-us", "30000"}));
  ASSERT_TRUE(process.WaitForOutput("ready after", 60));
  process.Kill(SIGINT);
  EXPECT_THAT(process.Wait(30), EndsWithCode(130, HasSubstr("run the same command again")));
  for (const auto& [id, line] : ReadBatchOutput(out_)) {
    if (line["error"].is_null()) {
      EXPECT_NE(line["response"]["body"]["choices"][0]["finish_reason"], "cancelled") << id;
    }
  }
  EXPECT_EQ(Answers(ManyLines(30)).size(), 31u);
}

TEST_F(BatchVerb, TakesLinesOfAPipeAsTheyCome) {
  Subprocess process(CoordinatorProgram(), Batch("-", out_));
  const auto answered = [&](int count) { return process.WaitUntil([&] { return LinesIn(out_) >= count; }, 60); };
  process.Write(BatchInputLine("first", {{"prompt", "And"}, {"max_tokens", 3}}));
  EXPECT_TRUE(answered(1)) << "the pipe is still open";
  process.Write(BatchInputLine("second", {{"prompt", "And"}, {"max_tokens", 3}}).substr(0, 20));
  process.Write(BatchInputLine("second", {{"prompt", "And"}, {"max_tokens", 3}}).substr(20));
  EXPECT_TRUE(answered(2));
  EXPECT_EQ(process.Wait(60).exit_code, 0);
  EXPECT_EQ(ReadBatchOutput(out_).size(), 2u);
}

// The front, or its ranks: a launcher passes a signal on to them, also in a job that the coordinator launched itself.
TEST_F(BatchVerb, DrainsWhenItOrItsRanksAreAskedTo) {
  for (const bool ranks : {false, true}) {
    std::filesystem::remove(out_);
    Subprocess process(CoordinatorProgram(), Loud("-", out_, {"--stage-delay-us", "20000"}));
    process.Write(BatchInputLine("runs", {{"prompt", "And"}, {"max_tokens", 40}, {"ignore_eos", true}}));
    ASSERT_TRUE(process.WaitForOutput("ready after", 60));
    if (ranks) {
      std::vector<pid_t> told = StagesOf(process.pid());
      for (const ProcessInfo& engine : DescendantsNamed(process.pid(), "coordinator engine"))
        told.push_back(engine.pid);
      ASSERT_GE(told.size(), 2u) << "the engine and one stage, beside the launch guard";
      for (const pid_t rank : told) EXPECT_EQ(kill(rank, SIGUSR1), 0);
    } else {
      process.Kill(SIGUSR1);
    }
    // The input stays open: the end of what runs is the end of the program.
    ASSERT_TRUE(process.WaitForOutput("1 answered", 60)) << process.err();
    const ProgramResult result = process.Wait(30);
    EXPECT_THAT(result, EndsWithCode(130, Not(HasSubstr("lost")))) << result;
    std::map<std::string, Json> lines = ReadBatchOutput(out_);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines["runs"]["response"]["body"]["usage"]["completion_tokens"], 40);
  }
}

TEST_F(BatchVerb, InvalidUtf8BecomesTheReplacementCharacter) {
  // Token 0x9f of the byte alphabet alone is no text; a bias makes it the answer.
  const ProgramResult tokens = Coordinator({"tokenize", "-m", DemoModelPath()}, "\xff");
  const std::string id = tokens.out.substr(0, tokens.out.find('\n'));
  std::map<std::string, Json> lines = Answers(
      BatchInputLine("a", {{"prompt", "And"}, {"max_tokens", 2}, {"logit_bias", {{id, 1000}}}, {"logprobs", 0}}));
  EXPECT_EQ(TextOf(lines["a"]), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(lines["a"]["response"]["body"]["choices"][0]["logprobs"]["tokens"][0], "bytes:\\xff");
}

}  // namespace
}  // namespace stagecoach::testing
