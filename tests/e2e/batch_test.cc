// batch: answers that survive being killed.

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/process_tree.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const Json& line) { return line["response"]["body"]["choices"][0]["text"].get<std::string>(); }

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

TEST(Batch, AnswersEveryLineAsGenerateDoes) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl");
  WriteFileOrDie(
      in, BatchInputLine("text", {{"prompt", "In the beginning God created"}, {"max_tokens", 12}, {"logprobs", 2}}) +
              BatchInputLine("ids", {{"prompt", {3784, 258, 2149, 390, 2841}}, {"max_tokens", 12}}) +
              BatchInputLine("stop", {{"prompt", "In the beginning God created"}, {"stop", {"earth"}}}) +
              BatchInputLine("default", {{"prompt", "In the beginning God created"}}));
  const ProgramResult result = Coordinator(Batch(in, out, {"--pp", "2", "-n", "6"}));
  ASSERT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, "");
  std::map<std::string, Json> lines = ReadBatchOutput(out);
  ASSERT_EQ(lines.size(), 4u);
  const std::string expected = Coordinator(Generate({"-p", "In the beginning God created", "-n", "12"})).out;
  EXPECT_EQ(TextOf(lines["text"]) + "\n", expected);
  EXPECT_EQ(TextOf(lines["ids"]) + "\n", expected);
  EXPECT_EQ(TextOf(lines["stop"]), " the heaven and the ");
  EXPECT_EQ(lines["stop"]["response"]["body"]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(lines["default"]["response"]["body"]["usage"]["completion_tokens"], 6);
  EXPECT_EQ(lines["text"]["response"]["body"]["choices"][0]["logprobs"]["tokens"].size(), 12u);
}

TEST(Batch, AnswersConversationsAsTheirTemplateWritesThem) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl");
  const Json said = {{{"role", "user"}, {"content", "In the beginning"}}};
  Json chat = Json::parse(BatchInputLine("chat", {{"messages", said}, {"max_tokens", 6}}));
  chat["url"] = "/v1/chat/completions";
  const std::string written = "<|im_start|>user\nIn the beginning<|im_end|>\n<|im_start|>assistant\n";
  WriteFileOrDie(in, chat.dump() + "\n" + BatchInputLine("text", {{"prompt", written}, {"max_tokens", 6}}));
  const ProgramResult result = Coordinator(Batch(in, out, {"--chat-template", "chatml"}));
  ASSERT_EQ(result.exit_code, 0) << result;
  std::map<std::string, Json> lines = ReadBatchOutput(out);
  const Json answer = lines["chat"]["response"]["body"];
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], TextOf(lines["text"]));
  EXPECT_EQ(answer["usage"]["prompt_tokens"], lines["text"]["response"]["body"]["usage"]["prompt_tokens"]);
}

TEST(Batch, AnsweredToTheEndHasNothingLeftToDo) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl");
  WriteFileOrDie(in, ManyLines(12));
  ASSERT_EQ(Coordinator(Batch(in, out)).exit_code, 0);
  const std::string first = ReadFileOrDie(out);
  EXPECT_EQ(ReadBatchOutput(out).size(), 13u);
  ASSERT_EQ(Coordinator(Batch(in, out)).exit_code, 0);
  EXPECT_EQ(ReadFileOrDie(out), first) << "failed lines are not retried";
}

TEST(Batch, OfErrorsAloneDoesNotEndAsIfItHadAnswers) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl");
  WriteFileOrDie(in, BatchInputLine("two", {{"prompt", "And"}, {"n", 2}}) + "{\"no\":\"id\"}\n");
  const ProgramResult result = Coordinator(Batch(in, out));
  EXPECT_EQ(result.exit_code, 3) << result;
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("no line has an answer: 2 have their errors in '", out, "'")));
  EXPECT_EQ(ReadBatchOutput(out).size(), 2u);
}

TEST(Batch, KilledAtAnyMomentAndRunAgainAnswersEveryLineOnce) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl"),
                    whole = directory.File("whole.jsonl");
  WriteFileOrDie(in, ManyLines(40));
  ASSERT_EQ(Coordinator(Batch(in, whole, {"--pp", "2"})).exit_code, 0);
  const Words slow = {"--pp", "2", "--stage-delay-us", "4000", "--max-num-seqs", "3", "-v"};
  for (int answers : {1, 7, 20}) {
    Words arguments = Batch(in, out, slow);
    arguments.erase(std::find(arguments.begin(), arguments.end(), "-q"));
    Subprocess process(CoordinatorProgram(), arguments);
    const int64_t wanted = answers;
    const auto lines = [&] {
      std::ifstream file(out);
      return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
    };
    for (int i = 0; i < 600 && lines() < wanted; ++i) process.WaitForOutput("never printed", 0.05);
    process.Kill(SIGKILL);
    EXPECT_EQ(process.Wait(30).exit_code, 128 + SIGKILL);
  }
  // A torn line, as a crash of the machine leaves it.
  const std::string kept = ReadFileOrDie(out);
  WriteFileOrDie(out, kept + "{\"id\":\"batch_req_7\",\"custom_id\":\"id-3");
  const ProgramResult last = Coordinator(Batch(in, out, {"--pp", "2"}));
  ASSERT_EQ(last.exit_code, 0) << last;
  EXPECT_EQ(ReadFileOrDie(out).substr(0, kept.size()), kept) << "what was answered stays as it is";
  std::map<std::string, Json> resumed = ReadBatchOutput(out), expected = ReadBatchOutput(whole);
  ASSERT_EQ(resumed.size(), 41u);
  for (auto& [id, line] : expected) {
    ASSERT_TRUE(resumed.contains(id)) << id;
    EXPECT_EQ(resumed[id]["error"], line["error"]) << id;
    if (line["error"].is_null()) {
      EXPECT_EQ(TextOf(resumed[id]), TextOf(line)) << id;
    }
  }
}

TEST(Batch, InterruptedLeavesWhatRanForTheNextRun) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl");
  WriteFileOrDie(in, ManyLines(30));
  Words arguments = Batch(in, out, {"--stage-delay-us", "30000", "-v"});
  arguments.erase(std::find(arguments.begin(), arguments.end(), "-q"));
  Subprocess process(CoordinatorProgram(), arguments);
  ASSERT_TRUE(process.WaitForOutput("ready after", 60));
  process.Kill(SIGINT);
  const ProgramResult result = process.Wait(30);
  EXPECT_EQ(result.exit_code, 130) << result;
  EXPECT_THAT(result.err, HasSubstr("run the same command again"));
  for (const auto& [id, line] : ReadBatchOutput(out)) {
    if (line["error"].is_null()) {
      EXPECT_NE(line["response"]["body"]["choices"][0]["finish_reason"], "cancelled") << id;
    }
  }
  ASSERT_EQ(Coordinator(Batch(in, out)).exit_code, 0);
  EXPECT_EQ(ReadBatchOutput(out).size(), 31u);
}

TEST(Batch, TakesLinesOfAPipeAsTheyCome) {
  const TempDir directory;
  const std::string out = directory.File("out.jsonl");
  Subprocess process(CoordinatorProgram(), Batch("-", out));
  const auto answered = [&](size_t count) {
    for (int i = 0; i < 1200; ++i) {
      std::ifstream file(out);
      if (static_cast<size_t>(
              std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n')) >= count) {
        return true;
      }
      process.WaitForOutput("never printed", 0.05);
    }
    return false;
  };
  process.Write(BatchInputLine("first", {{"prompt", "And"}, {"max_tokens", 3}}));
  EXPECT_TRUE(answered(1)) << "the pipe is still open";
  process.Write(BatchInputLine("second", {{"prompt", "And"}, {"max_tokens", 3}}).substr(0, 20));
  process.Write(BatchInputLine("second", {{"prompt", "And"}, {"max_tokens", 3}}).substr(20));
  EXPECT_TRUE(answered(2));
  EXPECT_EQ(process.Wait(60).exit_code, 0);
  EXPECT_EQ(ReadBatchOutput(out).size(), 2u);
}

TEST(Batch, DrainsWhenAskedTo) {
  const TempDir directory;
  const std::string out = directory.File("out.jsonl");
  Words arguments = Batch("-", out, {"--stage-delay-us", "20000", "-v"});
  arguments.erase(std::find(arguments.begin(), arguments.end(), "-q"));
  Subprocess process(CoordinatorProgram(), arguments);
  process.Write(BatchInputLine("runs", {{"prompt", "And"}, {"max_tokens", 40}, {"ignore_eos", true}}));
  ASSERT_TRUE(process.WaitForOutput("ready after", 60));
  process.Kill(SIGUSR1);
  // The input stays open: the end of what runs is the end of the program.
  ASSERT_TRUE(process.WaitForOutput("1 answered", 60));
  const ProgramResult result = process.Wait(30);
  EXPECT_EQ(result.exit_code, 130) << result;
  std::map<std::string, Json> lines = ReadBatchOutput(out);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines["runs"]["response"]["body"]["usage"]["completion_tokens"], 40);
}

// A launcher passes a signal on to its ranks, also in a job that the coordinator launched itself.
TEST(Batch, DrainsWhenItsRanksAreAskedTo) {
  const TempDir directory;
  const std::string out = directory.File("out.jsonl");
  Words arguments = Batch("-", out, {"--stage-delay-us", "20000", "-v"});
  arguments.erase(std::find(arguments.begin(), arguments.end(), "-q"));
  Subprocess process(CoordinatorProgram(), arguments);
  process.Write(BatchInputLine("runs", {{"prompt", "And"}, {"max_tokens", 40}, {"ignore_eos", true}}));
  ASSERT_TRUE(process.WaitForOutput("ready after", 60));
  int told = 0;
  for (const ProcessInfo& rank : Descendants(process.pid())) {
    const std::string program = rank.command.substr(0, rank.command.find(' '));
    if (!absl::EndsWith(program, "/coordinator") && !absl::EndsWith(program, "/stage_worker")) continue;
    told += kill(rank.pid, SIGUSR1) == 0 ? 1 : 0;
  }
  EXPECT_GE(told, 2) << "the engine and one stage, beside the launch guard";
  ASSERT_TRUE(process.WaitForOutput("1 answered", 60)) << process.err();
  const ProgramResult result = process.Wait(30);
  EXPECT_EQ(result.exit_code, 130) << result;
  EXPECT_THAT(result.err, Not(HasSubstr("lost"))) << result;
  EXPECT_EQ(ReadBatchOutput(out).size(), 1u);
}

TEST(Batch, InvalidUtf8BecomesTheReplacementCharacter) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl");
  // Token 0x9f of the byte alphabet alone is no text; a bias makes it the answer.
  const ProgramResult tokens = Coordinator({"tokenize", "-m", DemoModelPath()}, "\xff");
  const std::string id = tokens.out.substr(0, tokens.out.find('\n'));
  WriteFileOrDie(
      in, BatchInputLine("a", {{"prompt", "And"}, {"max_tokens", 2}, {"logit_bias", {{id, 1000}}}, {"logprobs", 0}}));
  ASSERT_EQ(Coordinator(Batch(in, out)).exit_code, 0);
  std::map<std::string, Json> lines = ReadBatchOutput(out);
  EXPECT_EQ(TextOf(lines["a"]), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(lines["a"]["response"]["body"]["choices"][0]["logprobs"]["tokens"][0], "bytes:\\xff");
}

}  // namespace
}  // namespace stagecoach::testing
