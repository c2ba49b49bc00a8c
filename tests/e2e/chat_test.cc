// chat: a conversation with a model, through a pipe and at a terminal.

#include <signal.h>
#include <sys/stat.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/terminal.h"

namespace stagecoach::testing {
namespace {

Words ChatWords(const Words& more) { return Joined({"chat", "-m", DemoModelPath(), "-t", "1"}, more); }

ProgramResult Chat(const std::string& input, const Words& more = {"-q"}) { return Coordinator(ChatWords(more), input); }

// So that an answer takes a second at least.
Words Slow(const Words& more) { return Joined({"--pp", "2", "--stage-delay-us", "20000"}, more); }

// The tokens that the model is given of these messages, counted by another verb.
size_t PromptTokens(const Json& messages) {
  const std::string result =
      CoordinatorOut({"apply-template", "-m", DemoModelPath(), "--tokens", "-"}, messages.dump());
  return std::vector<std::string>(absl::StrSplit(result, absl::ByAnyChar(" \n"), absl::SkipEmpty())).size();
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
  EXPECT_THAT(result, EndsWithCode(0, AllOf(HasSubstr("3 tokens, "), HasSubstr(" tokens/s, the first after 0."),
                                            HasSubstr("; cut at its length\n"))));
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
  EXPECT_THAT(Chat(absl::StrCat("/load ", path, "\nGenesis 1:1\n")), Prints(Lines(first.out).back() + "\n"));
}

TEST(Chat, RefusesWhatTheContextCannotHoldAndGoesOn) {
  const ProgramResult result = Chat("Hello\nGenesis 1:1\nTell me about gold.\n/clear\nHello\n", {"-q", "-c", "64"});
  EXPECT_THAT(result, EndsWithCode(2, AllOf(HasSubstr("the conversation is too long: with this message it has "),
                                            HasSubstr("there is room for 64"), HasSubstr("/undo"), HasSubstr("/clear"),
                                            HasSubstr("2 lines were refused"))));
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
  EXPECT_THAT(result, EndsWithCode(2, AllOf(HasSubstr("no command '/frob'"), HasSubstr("/set: temp: "),
                                            HasSubstr("cannot read '/nowhere'"), HasSubstr("no UTF-8"),
                                            HasSubstr("4 lines were refused"))));
  EXPECT_THAT(Lines(result.out), SizeIs(1));
}

TEST(Chat, TakesBackAMessageThatTheTemplateRefuses) {
  const TempDir directory;
  WriteFileOrDie(directory.File("strict.jinja"),
                 "{% if messages[-1].content == 'no' %}{{ raise_exception('not this') }}{% endif %}"
                 "{% for m in messages %}{{ m.content }} {% endfor %}");
  const ProgramResult result =
      Chat("no\nIn the beginning\n/stats\n", {"-q", "-n", "4", "--chat-template-file", directory.File("strict.jinja")});
  EXPECT_THAT(result, EndsWithCode(2, AllOf(HasSubstr("not this"), HasSubstr("conversation  2 messages"))));
}

TEST(Chat, LeavesTheAnswersOfAPipeUnchanged) {
  const ProgramResult result = Chat("");
  EXPECT_THAT(result, Prints(IsEmpty()));
  EXPECT_THAT(result.err, Not(HasSubstr("> ")));
}

TEST(Chat, RunsInAWorldThatIsStartedForIt) {
  EXPECT_THAT(World(ChatWords({"-q"}), 2, "Hello\nGenesis 1:1\n"), Prints(Chat("Hello\nGenesis 1:1\n").out));
}

TEST(Chat, GoesOnWhenAStageIsLostInTheMiddleOfAnAnswer) {
  const std::string input = "Hello\nTell me about gold.\n";
  const ProgramResult whole = Chat(input);
  Subprocess chat(CoordinatorProgram(), ChatWords(Slow({})));
  chat.Write(input);
  ASSERT_TRUE(chat.WaitForOutput("Hello! I", 60)) << chat.err();
  const std::vector<pid_t> stages = StagesOf(chat.pid());
  ASSERT_FALSE(stages.empty());
  ASSERT_TRUE(chat.WaitForOutput("Symbol", 60)) << chat.err();  // of the second answer
  ASSERT_LT(chat.out().size(), whole.out.size());
  ASSERT_EQ(kill(stages.back(), SIGKILL), 0);
  const ProgramResult result = chat.Wait(120);
  EXPECT_THAT(result, Prints(whole.out));
  EXPECT_THAT(result.err, HasSubstr("launching it again"));
}

TEST(Chat, EndsAtASignalWithWhatCameOrWithTheWholeAnswerWhenItIsToDrain) {
  for (const int signal : {SIGINT, SIGUSR1}) {
    Subprocess chat(CoordinatorProgram(), ChatWords(Slow({"-q"})));
    chat.Write("Hello\nGenesis 1:1\n");
    ASSERT_TRUE(chat.WaitForOutput("Hello! I", 60)) << chat.err();
    chat.Kill(signal);
    const ProgramResult result = chat.Wait();
    EXPECT_EQ(result.exit_code, 130) << result;
    EXPECT_THAT(Lines(result.out), SizeIs(1));
    if (signal == SIGUSR1) {
      EXPECT_EQ(result.out, Chat("Hello\n").out);
    }
  }
}

// At a terminal, with a state directory of its own.
class ChatAtATerminal : public ::testing::Test {
 protected:
  void Start(const Words& more) {
    const std::string state = state_.path();
    terminal_ = std::make_unique<Terminal>(CoordinatorProgram(), ChatWords(more),
                                           std::vector<std::pair<std::string, std::string>>{
                                               {"TERM", "xterm"}, {"XDG_STATE_HOME", state}, {"NO_COLOR", ""}});
  }
  // Waits until it shows the text, behind what was waited for before. Nothing more is waited for after a failure.
  void Await(const std::string& text) {
    if (HasFatalFailure()) return;
    ASSERT_TRUE(terminal_->Shows(text)) << terminal_->shown();
  }
  // Types when that is shown.
  void After(const std::string& text, const std::string& keys) {
    Await(text);
    terminal_->Type(keys);
  }
  void ExpectEnd(int exit_code) { EXPECT_EQ(terminal_->Wait(), exit_code) << terminal_->shown(); }
  std::string HistoryPath() const { return state_.File("stagecoach/chat_history"); }

  const TempDir state_;
  std::unique_ptr<Terminal> terminal_;
};

TEST_F(ChatAtATerminal, EditsLinesStreamsAnswersAndLeavesAtCtrlD) {
  Start({"--pp", "2"});
  After("> ", "Helxx\x7f\x7flo\r");
  Await("Hello! I am a small demonstration model.");
  Await("\x1b[2m38 tokens, ");
  After("> ", "\x1b[A\r");  // the line before
  Await("Hello! I am a small demonstration model.");
  After("> ", "/stats\r");
  After("conversation  4 messages", "\x04");
  ExpectEnd(0);
}

TEST_F(ChatAtATerminal, StopsAnAnswerAtCtrlCKeepsWhatCameAndLeavesAtTheSecond) {
  Start(Slow({"--ignore-eos"}));
  After("> ", "Hello\r");
  After("Hello! I am", "\x03");
  Await("; stopped");
  After("> ", absl::StrCat("/save ", state_.File("c.json"), "\r"));
  Await("2 messages in");
  if (HasFatalFailure()) return;
  const Json messages = Json::parse(ReadFileOrDie(state_.File("c.json")));
  EXPECT_THAT(messages[1]["content"].get<std::string>(), StartsWith("Hello! I am"));
  terminal_->Type("Hello\r");
  After("Hello! I am", "\x03");
  Await("; stopped");
  After("> ", "\x03");
  ExpectEnd(130);
}

TEST_F(ChatAtATerminal, TakesWhatIsTypedDuringAnAnswerAfterIt) {
  Start(Slow({}));
  After("> ", "Hello\r");
  After("Hello! I", "/stats\r\x04");
  ExpectEnd(0);
  EXPECT_THAT(terminal_->shown(), HasSubstr("conversation  2 messages"));
}

TEST_F(ChatAtATerminal, ForgetsALineAtCtrlC) {
  Start({});
  Await("> ");
  for (int i = 0; i < 2; ++i) {
    terminal_->Type("Wrong");
    After("Wrong", "\x03");
    Await("Ctrl-C again or Ctrl-D leaves");
    Await("> ");
  }
  terminal_->Type("\x03");
  ExpectEnd(130);
}

TEST_F(ChatAtATerminal, KeepsItsHistoryForTheUserAlone) {
  for (const char* line : {"Gr\xC3\xBC\xC3\x9F"
                           "e",
                           "/help"}) {
    Start({"-n", "1"});
    After("> ", absl::StrCat(line, "\r"));
    After("\n> ", "\x1b[A\x1b[A");
    After(
        "Gr\xC3\xBC\xC3\x9F"
        "e",
        "\x15\x04");  // nothing of it
    ExpectEnd(0);
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
  Start({"--no-history"});
  After("> ", "/exit\r");
  ExpectEnd(0);
  struct stat file;
  EXPECT_NE(stat(state_.File("stagecoach").c_str(), &file), 0);
}

TEST_F(ChatAtATerminal, WarnsOnceWhenItCannotKeepAHistory) {
  WriteFileOrDie(state_.File("stagecoach"), "a file in the way");
  Start({"-n", "1"});
  Await("--no-history goes without");
  After("> ", "Hello\r");
  After("1 token", "/exit\r");
  ExpectEnd(0);
  EXPECT_EQ(terminal_->shown().find("--no-history"), terminal_->shown().rfind("--no-history"));
}

TEST_F(ChatAtATerminal, ShowsControlCharactersInPlaceOfObeyingThem) {
  Start({"--system", "a\x1b]0;owned\x07z"});
  After("> ", "/system\r");
  Await("a\xE2\x90\x9B]0;owned\xE2\x90\x87z");
  terminal_->Type("/exit\r");
  ExpectEnd(0);
  EXPECT_THAT(terminal_->shown(), Not(HasSubstr("\x1b]")));
}

TEST_F(ChatAtATerminal, NoticesALostStageWhileNobodyTypes) {
  Start({"--pp", "2"});
  Await("> ");
  const std::vector<ProcessInfo> stages = AwaitDescendants(terminal_->pid(), "stage_worker", 2, 10);
  ASSERT_FALSE(stages.empty());
  terminal_->Type("Hel");
  ASSERT_EQ(kill(stages.back().pid, SIGKILL), 0);
  Await("launching it again");
  After("> Hel", "lo\r");
  Await("Hello! I am a small demonstration model.");
  After("> ", "\x04");
  ExpectEnd(0);
}

TEST_F(ChatAtATerminal, EditsOnAfterBeingStopped) {
  Start({});
  After("> ", "Hel");
  Await("Hel");
  ASSERT_EQ(kill(terminal_->pid(), SIGSTOP), 0);
  terminal_->Resize(10, 40);
  ASSERT_EQ(kill(terminal_->pid(), SIGCONT), 0);
  After("Hel", "xx\x7f\x7flo\r");  // again
  Await("Hello! I am a small demonstration model.");
  After("> ", "\x04");
  ExpectEnd(0);
}

TEST(Chat, OfWrongInputEndsWithOneSentence) {
  const TempDir directory;
  WriteTinyModel(directory.File("plain.gguf"));  // without a chat template
  WriteFileOrDie(directory.File("open.jinja"), "{% if x %}\n");
  ExpectRefused({"chat", "-q"},
                {
                    {"-m MODEL --system a --system-file b", 2, "--system-file", "Hello\n"},
                    {"-m MODEL --system-file /nowhere", 3, "cannot read '/nowhere'", "Hello\n"},
                    {"-m MODEL -n 0", 2, "0 is out of range, expected 1", "Hello\n"},
                    {"-m DIR/plain.gguf", 3, "--chat-template", "Hello\n"},
                    {"-m MODEL --chat-template-file DIR/open.jinja", 3, "open.jinja", "Hello\n"},
                    {"-m /nowhere.gguf", 3, "/nowhere.gguf", "Hello\n"},
                },
                Refusal::kOneLine, directory.path());
}

TEST(Chat, TalksToAModelWithoutATemplateByABuiltInOne) {
  const TempDir directory;
  WriteTinyModel(directory.File("plain.gguf"));
  const std::string result = CoordinatorOut(
      {"chat", "-q", "-m", directory.File("plain.gguf"), "--chat-template", "chatml", "-t", "1", "-n", "4"}, "Hello\n");
  EXPECT_THAT(result, Not(IsEmpty()));
}

}  // namespace
}  // namespace stagecoach::testing
