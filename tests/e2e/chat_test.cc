// chat: a conversation with a model, through a pipe and at a terminal.

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/process_tree.h"
#include "tests/testing/terminal.h"
#include "tests/testing/tiny_model.h"

namespace stagecoach::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

Words ChatWords(const Words& more) { return Joined({"chat", "-m", DemoModelPath(), "-t", "1"}, more); }

ProgramResult Chat(const std::string& input, const Words& more = {"-q"}) { return Coordinator(ChatWords(more), input); }

// So that an answer takes a second at least.
Words Slow(const Words& more) { return Joined({"--pp", "2", "--stage-delay-us", "20000"}, more); }

// The tokens that the model is given of these messages, counted by another verb.
size_t PromptTokens(const Json& messages) {
  const ProgramResult result = Coordinator({"apply-template", "-m", DemoModelPath(), "--tokens", "-"}, messages.dump());
  EXPECT_EQ(result.exit_code, 0) << result;
  return std::vector<std::string>(absl::StrSplit(result.out, absl::ByAnyChar(" \n"), absl::SkipEmpty())).size();
}

TEST(Chat, AnswersEachLineAndKnowsWhatWasSaid) {
  const ProgramResult result = Chat("Hello\nGenesis 1:1\n/stats\n", {"-q", "--pp", "2", "--system", "Be brief."});
  ASSERT_EQ(result.exit_code, 0) << result;
  const std::vector<std::string> answers = Lines(result.out);
  ASSERT_THAT(answers, SizeIs(2));
  const Json messages = {{{"role", "system"}, {"content", "Be brief."}},
                         {{"role", "user"}, {"content", "Hello"}},
                         {{"role", "assistant"}, {"content", answers[0]}},
                         {{"role", "user"}, {"content", "Genesis 1:1"}}};
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("last prompt   ", PromptTokens(messages), " tokens")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("conversation  5 messages"), HasSubstr("2 stages, context 1024")));
}

TEST(Chat, SendsThePromptThatTheModelsTemplateWrites) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl");
  WriteFileOrDie(
      in, BatchInputLine("a", {{"prompt", "<|im_start|>user\nHello\nagain<|im_end|>\n<|im_start|>assistant\n"}}));
  ASSERT_EQ(Coordinator(Batch(in, out)).exit_code, 0);
  const Json answer = ReadBatchOutput(out)["a"]["response"]["body"]["choices"][0]["text"];
  const std::string expected = answer.get<std::string>() + "\n";
  EXPECT_EQ(Chat("Hello\\\nagain\n").out, expected);
  EXPECT_EQ(Chat("\"\"\"\nHello\nagain\n\"\"\"\n").out, expected);
  EXPECT_EQ(Chat("\"\"\"Hello\nagain").out, expected);
}

TEST(Chat, SaysOfEachAnswerHowLongItTook) {
  const ProgramResult result = Chat("Hello\n", {"-n", "3"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.err, AllOf(HasSubstr("3 tokens, "), HasSubstr(" tokens/s, the first after 0."),
                                HasSubstr("; cut at its length\n")));
  EXPECT_EQ(result.out, "Hello\n");
}

TEST(Chat, RegeneratesOtherAnswersThatTheSeedRepeats) {
  const std::string input = "Define peace.\n/regenerate\n/set temp 0\n/regenerate\n/regenerate\n";
  const ProgramResult result = Chat(input, {"-q", "--temp", "1.5", "--seed", "7", "-n", "24"});
  EXPECT_EQ(result.exit_code, 0) << result;
  const std::vector<std::string> answers = Lines(result.out);
  ASSERT_THAT(answers, SizeIs(4)) << result;
  EXPECT_NE(answers[0], answers[1]);
  EXPECT_EQ(answers[2], answers[3]);
  EXPECT_EQ(Chat(input, {"-q", "--temp", "1.5", "--seed", "7", "-n", "24", "--pp", "2"}).out, result.out);
}

TEST(Chat, SavesAConversationThatApplyTemplateAndChatRead) {
  const TempDir directory;
  const std::string path = directory.File("c.json");
  const ProgramResult first = Chat(absl::StrCat("Hello\n/save ", path, "\nGenesis 1:1\n"));
  ASSERT_EQ(first.exit_code, 0) << first;
  EXPECT_EQ(Coordinator({"apply-template", "-m", DemoModelPath(), path}).exit_code, 0);
  const ProgramResult second = Chat(absl::StrCat("/load ", path, "\nGenesis 1:1\n"));
  EXPECT_EQ(second.exit_code, 0) << second;
  EXPECT_EQ(second.out, Lines(first.out).back() + "\n");
}

TEST(Chat, RefusesWhatTheContextCannotHoldAndGoesOn) {
  const ProgramResult result = Chat("Hello\nGenesis 1:1\nTell me about gold.\n/clear\nHello\n", {"-q", "-c", "64"});
  EXPECT_EQ(result.exit_code, 2) << result;
  EXPECT_THAT(result.err, AllOf(HasSubstr("the conversation is too long: with this message it has "),
                                HasSubstr("there is room for 64"), HasSubstr("/undo"), HasSubstr("/clear"),
                                HasSubstr("2 lines were refused")));
  const std::vector<std::string> answers = Lines(result.out);
  ASSERT_THAT(answers, SizeIs(2)) << result;
  EXPECT_EQ(answers[0], answers[1]);
}

TEST(Chat, RefusesAMessageThatIsLongerThanAnyContext) {
  const ProgramResult result = Chat(absl::StrCat(std::string(9 << 20, 'x'), "\nHello\n"));
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("more than 8 MiB"));
  EXPECT_THAT(Lines(result.out), SizeIs(1));
}

TEST(Chat, TellsAWrongLineAndTakesTheNext) {
  const ProgramResult result = Chat("/frob\n/set temp hot\n/load /nowhere\n\xFF\nHello\n");
  EXPECT_EQ(result.exit_code, 2) << result;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("no command '/frob'"), HasSubstr("/set: temp: "), HasSubstr("cannot read '/nowhere'"),
                    HasSubstr("no UTF-8"), HasSubstr("4 lines were refused")));
  EXPECT_THAT(Lines(result.out), SizeIs(1));
}

TEST(Chat, TakesBackAMessageThatTheTemplateRefuses) {
  const TempDir directory;
  WriteFileOrDie(directory.File("strict.jinja"),
                 "{% if messages[-1].content == 'no' %}{{ raise_exception('not this') }}{% endif %}"
                 "{% for m in messages %}{{ m.content }} {% endfor %}");
  const ProgramResult result =
      Chat("no\nIn the beginning\n/stats\n", {"-q", "-n", "4", "--chat-template-file", directory.File("strict.jinja")});
  EXPECT_EQ(result.exit_code, 2) << result;
  EXPECT_THAT(result.err, AllOf(HasSubstr("not this"), HasSubstr("conversation  2 messages")));
}

TEST(Chat, LeavesTheAnswersOfAPipeUnchanged) {
  const ProgramResult result = Chat("");
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, Not(HasSubstr("> ")));
}

TEST(Chat, RunsInAWorldThatIsStartedForIt) {
  const ProgramResult result = World(ChatWords({"-q"}), 2, "Hello\nGenesis 1:1\n");
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, Chat("Hello\nGenesis 1:1\n").out);
}

TEST(Chat, GoesOnWhenAStageIsLostInTheMiddleOfAnAnswer) {
  const std::string input = "Hello\nTell me about gold.\n";
  const ProgramResult whole = Chat(input);
  Subprocess chat(CoordinatorProgram(), ChatWords(Slow({})));
  chat.Write(input);
  ASSERT_TRUE(chat.WaitForOutput("Hello! I", 60)) << chat.err();
  const std::vector<ProcessInfo> stages = AwaitDescendants(chat.pid(), "stage_worker", 2, 10);
  ASSERT_FALSE(stages.empty());
  ASSERT_TRUE(chat.WaitForOutput("Symbol", 60)) << chat.err();  // of the second answer
  ASSERT_LT(chat.out().size(), whole.out.size());
  ASSERT_EQ(kill(stages.back().pid, SIGKILL), 0);
  const ProgramResult result = chat.Wait(120);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, whole.out);
  EXPECT_THAT(result.err, HasSubstr("launching it again"));
}

TEST(Chat, EndsAtASignalWithWhatCame) {
  Subprocess chat(CoordinatorProgram(), ChatWords(Slow({"-q"})));
  chat.Write("Hello\nGenesis 1:1\n");
  ASSERT_TRUE(chat.WaitForOutput("Hello! I", 60)) << chat.err();
  chat.Kill(SIGINT);
  const ProgramResult result = chat.Wait();
  EXPECT_EQ(result.exit_code, 130) << result;
  EXPECT_THAT(Lines(result.out), SizeIs(1));
}

TEST(Chat, FinishesItsAnswerWhenItIsToDrain) {
  Subprocess chat(CoordinatorProgram(), ChatWords(Slow({"-q"})));
  chat.Write("Hello\nGenesis 1:1\n");
  ASSERT_TRUE(chat.WaitForOutput("Hello! I", 60)) << chat.err();
  chat.Kill(SIGUSR1);
  const ProgramResult result = chat.Wait();
  EXPECT_EQ(result.exit_code, 130) << result;
  EXPECT_EQ(result.out, Chat("Hello\n").out);
}

// At a terminal, with a state directory of its own.
class ChatAtATerminal : public ::testing::Test {
 protected:
  Terminal Start(const Words& more) {
    return Terminal(CoordinatorProgram(), ChatWords(more),
                    {{"TERM", "xterm"}, {"XDG_STATE_HOME", state_.path()}, {"NO_COLOR", ""}});
  }
  std::string HistoryPath() const { return state_.File("stagecoach/chat_history"); }

  const TempDir state_;
};

TEST_F(ChatAtATerminal, EditsLinesStreamsAnswersAndLeavesAtCtrlD) {
  Terminal terminal = Start({"--pp", "2"});
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("Helxx\x7f\x7flo\r");
  ASSERT_TRUE(terminal.Shows("Hello! I am a small demonstration model.")) << terminal.shown();
  ASSERT_TRUE(terminal.Shows("\x1b[2m38 tokens, ")) << terminal.shown();
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("\x1b[A\r");  // the line before
  ASSERT_TRUE(terminal.Shows("Hello! I am a small demonstration model.")) << terminal.shown();
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("/stats\r");
  ASSERT_TRUE(terminal.Shows("conversation  4 messages")) << terminal.shown();
  terminal.Type("\x04");
  EXPECT_EQ(terminal.Wait(), 0) << terminal.shown();
}

TEST_F(ChatAtATerminal, StopsAnAnswerAtCtrlCKeepsWhatCameAndLeavesAtTheSecond) {
  Terminal terminal = Start(Slow({"--ignore-eos"}));
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("Hello\r");
  ASSERT_TRUE(terminal.Shows("Hello! I am")) << terminal.shown();
  terminal.Type("\x03");
  ASSERT_TRUE(terminal.Shows("; stopped")) << terminal.shown();
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type(absl::StrCat("/save ", state_.File("c.json"), "\r"));
  ASSERT_TRUE(terminal.Shows("2 messages in")) << terminal.shown();
  const Json messages = Json::parse(ReadFileOrDie(state_.File("c.json")));
  EXPECT_THAT(messages[1]["content"].get<std::string>(), StartsWith("Hello! I am"));
  terminal.Type("Hello\r");
  ASSERT_TRUE(terminal.Shows("Hello! I am")) << terminal.shown();
  terminal.Type("\x03");
  ASSERT_TRUE(terminal.Shows("; stopped")) << terminal.shown();
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("\x03");
  EXPECT_EQ(terminal.Wait(), 130) << terminal.shown();
}

TEST_F(ChatAtATerminal, TakesWhatIsTypedDuringAnAnswerAfterIt) {
  Terminal terminal = Start(Slow({}));
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("Hello\r");
  ASSERT_TRUE(terminal.Shows("Hello! I")) << terminal.shown();
  terminal.Type("/stats\r\x04");
  EXPECT_EQ(terminal.Wait(), 0) << terminal.shown();
  EXPECT_THAT(terminal.shown(), HasSubstr("conversation  2 messages"));
}

TEST_F(ChatAtATerminal, ForgetsALineAtCtrlC) {
  Terminal terminal = Start({});
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  for (int i = 0; i < 2; ++i) {
    terminal.Type("Wrong");
    ASSERT_TRUE(terminal.Shows("Wrong")) << terminal.shown();
    terminal.Type("\x03");
    ASSERT_TRUE(terminal.Shows("Ctrl-C again or Ctrl-D leaves")) << terminal.shown();
    ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  }
  terminal.Type("\x03");
  EXPECT_EQ(terminal.Wait(), 130) << terminal.shown();
}

TEST_F(ChatAtATerminal, KeepsItsHistoryForTheUserAlone) {
  for (const char* line : {"Gr\xC3\xBC\xC3\x9F"
                           "e",
                           "/help"}) {
    Terminal terminal = Start({"-n", "1"});
    ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
    terminal.Type(absl::StrCat(line, "\r"));
    ASSERT_TRUE(terminal.Shows("\n> ")) << terminal.shown();
    terminal.Type("\x1b[A\x1b[A");
    EXPECT_TRUE(
        terminal.Shows("Gr\xC3\xBC\xC3\x9F"
                       "e"))
        << terminal.shown();
    terminal.Type("\x15\x04");  // nothing of it
    EXPECT_EQ(terminal.Wait(), 0) << terminal.shown();
  }
  EXPECT_EQ(ReadFileOrDie(HistoryPath()),
            "Gr\xC3\xBC\xC3\x9F"
            "e\n/help\n");
  struct stat file, directory;
  ASSERT_EQ(stat(HistoryPath().c_str(), &file), 0);
  ASSERT_EQ(stat(state_.File("stagecoach").c_str(), &directory), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_EQ(directory.st_mode & 0777, 0700u);
}

TEST_F(ChatAtATerminal, KeepsNoHistoryWhenItIsNotTo) {
  Terminal terminal = Start({"--no-history"});
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("/exit\r");
  EXPECT_EQ(terminal.Wait(), 0) << terminal.shown();
  struct stat file;
  EXPECT_NE(stat(state_.File("stagecoach").c_str(), &file), 0);
}

TEST_F(ChatAtATerminal, WarnsOnceWhenItCannotKeepAHistory) {
  WriteFileOrDie(state_.File("stagecoach"), "a file in the way");
  Terminal terminal = Start({"-n", "1"});
  ASSERT_TRUE(terminal.Shows("--no-history goes without")) << terminal.shown();
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("Hello\r");
  ASSERT_TRUE(terminal.Shows("1 token")) << terminal.shown();
  terminal.Type("/exit\r");
  EXPECT_EQ(terminal.Wait(), 0) << terminal.shown();
  EXPECT_EQ(terminal.shown().find("--no-history"), terminal.shown().rfind("--no-history"));
}

TEST_F(ChatAtATerminal, ShowsControlCharactersInPlaceOfObeyingThem) {
  Terminal terminal = Start({"--system", "a\x1b]0;owned\x07z"});
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("/system\r");
  EXPECT_TRUE(terminal.Shows("a\xE2\x90\x9B]0;owned\xE2\x90\x87z")) << terminal.shown();
  terminal.Type("/exit\r");
  EXPECT_EQ(terminal.Wait(), 0) << terminal.shown();
  EXPECT_THAT(terminal.shown(), Not(HasSubstr("\x1b]")));
}

TEST_F(ChatAtATerminal, NoticesALostStageWhileNobodyTypes) {
  Terminal terminal = Start({"--pp", "2"});
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  const std::vector<ProcessInfo> stages = AwaitDescendants(terminal.pid(), "stage_worker", 2, 10);
  ASSERT_FALSE(stages.empty());
  terminal.Type("Hel");
  ASSERT_EQ(kill(stages.back().pid, SIGKILL), 0);
  ASSERT_TRUE(terminal.Shows("launching it again")) << terminal.shown();
  ASSERT_TRUE(terminal.Shows("> Hel")) << terminal.shown();
  terminal.Type("lo\r");
  ASSERT_TRUE(terminal.Shows("Hello! I am a small demonstration model.")) << terminal.shown();
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("\x04");
  EXPECT_EQ(terminal.Wait(), 0) << terminal.shown();
}

TEST_F(ChatAtATerminal, EditsOnAfterBeingStopped) {
  Terminal terminal = Start({});
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("Hel");
  ASSERT_TRUE(terminal.Shows("Hel")) << terminal.shown();
  ASSERT_EQ(kill(terminal.pid(), SIGSTOP), 0);
  terminal.Resize(10, 40);
  ASSERT_EQ(kill(terminal.pid(), SIGCONT), 0);
  ASSERT_TRUE(terminal.Shows("Hel")) << terminal.shown();  // again
  terminal.Type("xx\x7f\x7flo\r");
  ASSERT_TRUE(terminal.Shows("Hello! I am a small demonstration model.")) << terminal.shown();
  ASSERT_TRUE(terminal.Shows("> ")) << terminal.shown();
  terminal.Type("\x04");
  EXPECT_EQ(terminal.Wait(), 0) << terminal.shown();
}

struct WrongChat {
  const char* name;
  Words arguments;  // DIR stands for a directory
  int exit_code;
  const char* message;
};

std::ostream& operator<<(std::ostream& stream, const WrongChat& wrong) { return stream << wrong.name; }

class WrongChatTest : public ::testing::TestWithParam<WrongChat> {};

TEST_P(WrongChatTest, EndsWithAMessageAndItsExitCode) {
  const TempDir directory;
  WriteTinyModel(directory.File("plain.gguf"));  // without a chat template
  WriteFileOrDie(directory.File("open.jinja"), "{% if x %}\n");
  Words words = {"chat", "-q"};
  for (const std::string& word : GetParam().arguments) {
    words.push_back(absl::StrReplaceAll(word, {{"DIR", directory.path()}, {"DEMO", DemoModelPath()}}));
  }
  const ProgramResult result = Coordinator(words, "Hello\n");
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result;
  EXPECT_THAT(result.err, AllOf(HasSubstr(GetParam().message), StartsWith("coordinator: ")));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Usage, WrongChatTest,
    ::testing::Values(
        WrongChat{"TwoSystemMessages", {"-m", "DEMO", "--system", "a", "--system-file", "b"}, 2, "--system-file"},
        WrongChat{"NoSuchSystemFile", {"-m", "DEMO", "--system-file", "/nowhere"}, 3, "cannot read '/nowhere'"},
        WrongChat{"NoLength", {"-m", "DEMO", "-n", "0"}, 2, "0 is out of range, expected 1"},
        WrongChat{"NoTemplate", {"-m", "DIR/plain.gguf"}, 3, "--chat-template"},
        WrongChat{"ATornTemplate", {"-m", "DEMO", "--chat-template-file", "DIR/open.jinja"}, 3, "open.jinja"},
        WrongChat{"NoModel", {"-m", "/nowhere.gguf"}, 3, "/nowhere.gguf"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Chat, TalksToAModelWithoutATemplateByABuiltInOne) {
  const TempDir directory;
  WriteTinyModel(directory.File("plain.gguf"));
  const ProgramResult result = Coordinator(
      {"chat", "-q", "-m", directory.File("plain.gguf"), "--chat-template", "chatml", "-t", "1", "-n", "4"}, "Hello\n");
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, Not(IsEmpty()));
}

}  // namespace
}  // namespace stagecoach::testing
