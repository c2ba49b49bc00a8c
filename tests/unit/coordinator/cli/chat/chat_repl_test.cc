#include "coordinator/cli/chat/chat_repl.h"

#include <signal.h>

#include <deque>
#include <utility>

#include "common/json/json_value.h"
#include "coordinator/front/signals.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

constexpr char kCtrlC[] = "\x03";  // as a line: a SIGINT comes while the next one is typed

// Answers with "answer N", or as `next` says, and keeps what it was asked.
class FakeBackend : public ChatBackend {
 public:
  absl::Status Prepare() override { return absl::OkStatus(); }
  absl::StatusOr<Awaited> AwaitInput(int) override { return Awaited::kReadable; }
  absl::StatusOr<ChatAnswer> Answer(const ChatTurn& turn, const TakeText& take) override {
    asked.push_back(CompactJson(*turn.messages));
    attempts.push_back(turn.attempt);
    thinking.push_back(turn.thinking);
    ChatAnswer answer = {.content = absl::StrCat("answer ", asked.size()), .finish_reason = "stop", .tokens = 2};
    if (!next.empty()) {
      answer = next.front();
      next.pop_front();
    }
    for (int i = 0; i < interrupts; ++i) raise(SIGINT);
    if (interrupts > 0) answer.finish_reason = "cancelled";
    interrupts = 0;
    EXPECT_TRUE(take(AnswerPart::kContent, answer.content).ok());
    return answer;
  }
  absl::Status Set(absl::string_view name, absl::string_view value) override {
    if (name != "temp") return absl::InvalidArgumentError("there is no such");
    set = std::string(value);
    return absl::OkStatus();
  }
  std::string Settings() const override { return absl::StrCat("temp ", set, "\n"); }
  bool AlwaysAnswersAlike() const override { return set == "0"; }
  std::string Name() const override { return "fake"; }
  int64_t context_tokens() const override { return 100; }
  std::string Describe() const override { return ""; }

  std::vector<std::string> asked;
  std::vector<int> attempts;
  std::vector<std::optional<bool>> thinking;
  std::deque<ChatAnswer> next;
  int interrupts = 0;  // Ctrl-C so often in the middle of the next answer
  std::string set = "0";
};

class FakeLines : public LineSource {
 public:
  explicit FakeLines(std::vector<std::string> lines) : lines_(lines.begin(), lines.end()) {}
  absl::StatusOr<LineRead> Read(const std::string& prompt, const AwaitInput&) override {
    prompts.push_back(prompt);
    if (lines_.empty()) return LineRead{LineRead::Kind::kEnd, ""};
    std::string line = std::move(lines_.front());
    lines_.pop_front();
    if (line.empty() || line.back() != kCtrlC[0]) return LineRead{LineRead::Kind::kLine, std::move(line)};
    raise(SIGINT);
    line.pop_back();
    return LineRead{.kind = LineRead::Kind::kSignal, .typed = !line.empty()};
  }
  std::vector<std::string> prompts;

 private:
  std::deque<std::string> lines_;
};

struct Repl : ::testing::Test {
  Repl() { SignalWatch::Get().ForgetStops(); }

  absl::Status Run(std::vector<std::string> lines, bool terminal = true) {
    FakeLines source(std::move(lines));
    ChatScreen screen(
        {.terminal = terminal},
        [this](absl::string_view text) { return absl::StrAppend(&out_, text), absl::OkStatus(); },
        [this](absl::string_view text) { absl::StrAppend(&messages_, text); });
    ChatRepl repl(&backend_, &source, &screen, nullptr);
    repl.SetSystem(system_);
    const absl::Status status = repl.Run();
    prompts_ = source.prompts;
    return status;
  }

  FakeBackend backend_;
  std::string system_;
  std::string out_, messages_;
  std::vector<std::string> prompts_;
};

constexpr char kTwoTurns[] =
    R"([{"role":"user","content":"a"},{"role":"assistant","content":"answer 1"},{"role":"user","content":"b"}])";

TEST_F(Repl, SendsWhatWasSaidBefore) {
  EXPECT_TRUE(Run({"a", "", "b"}).ok());
  EXPECT_THAT(backend_.asked, ElementsAre(R"([{"role":"user","content":"a"}])", kTwoTurns));
  EXPECT_THAT(out_, AllOf(HasSubstr("answer 1\n2 tokens"), HasSubstr("answer 2\n")));
}

TEST_F(Repl, PrintsAnswersAloneWhereThereIsNoTerminal) {
  EXPECT_TRUE(Run({"a", "/stats", "b"}, /*terminal=*/false).ok());
  EXPECT_EQ(out_, "answer 1\nanswer 2\n");
  EXPECT_THAT(messages_, AllOf(HasSubstr("conversation  2 messages"), HasSubstr("context of 100")));
}

TEST_F(Repl, AsksOnWhileAMessageGoesOn) {
  EXPECT_TRUE(Run({"a\\", "b"}).ok());
  EXPECT_THAT(prompts_, ElementsAre("> ", "... ", "> "));
  EXPECT_THAT(backend_.asked, ElementsAre(R"([{"role":"user","content":"a\nb"}])"));
}

TEST_F(Repl, LeavesAtTheEndAndAtExit) {
  EXPECT_TRUE(Run({"/exit", "a"}).ok());
  EXPECT_TRUE(Run({"\"\"\"unfinished"}).ok());
  EXPECT_THAT(backend_.asked, IsEmpty());
  EXPECT_TRUE(Run({"\"\"\"unfinished"}, /*terminal=*/false).ok());
  EXPECT_THAT(backend_.asked, ElementsAre(HasSubstr("unfinished")));
}

TEST_F(Repl, UndoesAndClears) {
  system_ = "S";
  EXPECT_TRUE(Run({"a", "b", "/undo", "c", "/clear", "d", "/undo", "/undo"}).ok());
  ASSERT_EQ(backend_.asked.size(), 4u);
  EXPECT_EQ(backend_.asked[2], R"([{"role":"system","content":"S"},{"role":"user","content":"a"},)"
                               R"({"role":"assistant","content":"answer 1"},{"role":"user","content":"c"}])");
  EXPECT_EQ(backend_.asked[3], R"([{"role":"system","content":"S"},{"role":"user","content":"d"}])");
  EXPECT_THAT(out_, HasSubstr("there is no message to take back"));
}

TEST_F(Repl, RegeneratesWithOtherRandomNumbers) {
  EXPECT_TRUE(Run({"/regenerate", "/set temp 0.7", "a", "/regenerate", "/regenerate", "b"}).ok());
  EXPECT_THAT(out_, AllOf(HasSubstr("there is no message to answer"), Not(HasSubstr("will be the same"))));
  EXPECT_THAT(backend_.attempts, ElementsAre(0, 1, 2, 0));
  EXPECT_EQ(backend_.asked[1], backend_.asked[0]);
  EXPECT_EQ(backend_.asked[2], backend_.asked[0]);
  EXPECT_THAT(backend_.asked[3], AllOf(HasSubstr("answer 3"), Not(HasSubstr("answer 2"))));
}

TEST_F(Repl, SaysThatAGreedyAnswerStaysTheSame) {
  EXPECT_TRUE(Run({"a", "/regenerate"}).ok());
  EXPECT_THAT(out_, HasSubstr("the answer will be the same"));
}

TEST_F(Repl, SetsTheSystemMessageThinkingAndSampling) {
  EXPECT_TRUE(Run({"/system Be brief.", "/system", "/think on", "a", "/system \"\"", "/think off", "/system", "b",
                   "/set", "/set temp", "/set heat 1", "/think perhaps"})
                  .ok());
  EXPECT_THAT(backend_.asked[0], HasSubstr(R"({"role":"system","content":"Be brief."})"));
  EXPECT_THAT(backend_.asked[1], Not(HasSubstr("system")));
  EXPECT_THAT(backend_.thinking, ElementsAre(true, false));
  EXPECT_THAT(out_, AllOf(HasSubstr("\nBe brief.\n"), HasSubstr("there is no system message;"), HasSubstr("temp 0\n"),
                          HasSubstr("'temp' lacks a value"), HasSubstr("/set: there is no such"),
                          HasSubstr("expected on or off, found 'perhaps'")));
}

TEST_F(Repl, SavesAndLoads) {
  const testing::TempDir directory;
  const std::string path = directory.File("c.json"), no_json = directory.File("no.json");
  testing::WriteFileOrDie(no_json, std::string("\x7f\0ELF", 5));
  EXPECT_TRUE(Run({"/save " + path, "a", "/save " + path, "/clear", "/load " + path, "b", "/save /nowhere/c.json",
                   "/load /nowhere/c.json", "/load " + no_json})
                  .ok());
  EXPECT_THAT(backend_.asked[1], kTwoTurns);
  EXPECT_EQ(Json::parse(testing::ReadFileOrDie(path)).size(), 2u);
  EXPECT_THAT(out_, AllOf(HasSubstr("no message yet"), HasSubstr("2 messages in '"), HasSubstr("2 messages from '"),
                          HasSubstr("/save: cannot write '/nowhere/c.json'"), HasSubstr("/load: cannot"),
                          HasSubstr("/load: '" + no_json + "': ")));
}

TEST_F(Repl, TakesAMessageBackThatCannotBeAnswered) {
  backend_.next = {ChatAnswer{.refusal = "the conversation is too long"}};
  EXPECT_TRUE(Run({"far too long", "a"}).ok());
  EXPECT_EQ(backend_.asked[1], R"([{"role":"user","content":"a"}])");
  EXPECT_THAT(out_, HasSubstr("the conversation is too long\n"));
}

TEST_F(Repl, KeepsTheAnswerThatCouldNotBeRegenerated) {
  backend_.next = {ChatAnswer{.content = "first", .tokens = 1}, ChatAnswer{.refusal = "no"}};
  EXPECT_TRUE(Run({"a", "/regenerate", "b"}).ok());
  EXPECT_THAT(backend_.asked[2], HasSubstr(R"({"role":"assistant","content":"first"})"));
}

TEST_F(Repl, TellsAPipeAtTheEndThatSomethingWasRefused) {
  const absl::Status wrong = Run({"/frob", "/undo", "a"}, /*terminal=*/false);
  EXPECT_TRUE(absl::IsInvalidArgument(wrong)) << wrong;
  EXPECT_THAT(wrong.message(), HasSubstr("2 lines were refused"));
  EXPECT_THAT(messages_, HasSubstr("there is no command '/frob'"));
  EXPECT_EQ(out_, "answer 1\n");
  backend_.next = {ChatAnswer{.refusal = "it crashed", .failed = true}};
  EXPECT_TRUE(absl::IsUnavailable(Run({"a"}, /*terminal=*/false)));
  EXPECT_TRUE(Run({"/frob"}).ok());
}

TEST_F(Repl, StopsAnAnswerAtCtrlCAndKeepsWhatCame) {
  backend_.interrupts = 1;
  EXPECT_TRUE(Run({"a", "b"}).ok());
  EXPECT_THAT(backend_.asked, ElementsAre(HasSubstr("a"), kTwoTurns));
  EXPECT_THAT(out_, HasSubstr("; stopped"));
  EXPECT_EQ(SignalWatch::Get().stops(), 0);
}

TEST_F(Repl, TakesAMessageBackThatWasStoppedBeforeAnythingCame) {
  backend_.interrupts = 1;
  backend_.next = {ChatAnswer()};
  EXPECT_TRUE(Run({"a", "b"}).ok());
  EXPECT_THAT(backend_.asked[1], R"([{"role":"user","content":"b"}])");
}

TEST_F(Repl, SaysWhereNobodyCountedTheTokens) {
  ChatAnswer answer = {.content = "some text", .tokens = 3, .counted = false};
  backend_.next = {answer};
  EXPECT_TRUE(Run({"a", "b", "/stats"}).ok());
  EXPECT_THAT(out_, AllOf(HasSubstr("some text\n~3 tokens"), HasSubstr("answers       2, ~5 tokens")));
  backend_.next = {answer};
  EXPECT_TRUE(Run({"a", "/stats"}).ok());
  EXPECT_THAT(out_, HasSubstr("last prompt   not counted\nlast answer   ~3 tokens"));
}

TEST_F(Repl, LeavesAtTwoCtrlCInARow) {
  backend_.interrupts = 2;
  EXPECT_TRUE(absl::IsCancelled(Run({"a", "b"})));
  EXPECT_EQ(backend_.asked.size(), 1u);
  EXPECT_TRUE(absl::IsCancelled(Run({kCtrlC, kCtrlC, "a"})));
  EXPECT_EQ(backend_.asked.size(), 1u);
  backend_.interrupts = 1;
  EXPECT_TRUE(absl::IsCancelled(Run({"a", kCtrlC, "b"})));
  EXPECT_EQ(backend_.asked.size(), 2u);
}

TEST_F(Repl, GoesOnAfterACtrlCThatHadALineToForget) {
  EXPECT_TRUE(Run({kCtrlC, "a", kCtrlC, absl::StrCat("wrong", kCtrlC), "\"\"\"wrong", kCtrlC, "b"}).ok());
  EXPECT_THAT(backend_.asked, ElementsAre(HasSubstr("a"), kTwoTurns));
  EXPECT_THAT(out_, HasSubstr("Ctrl-C again or Ctrl-D leaves"));
}

TEST_F(Repl, LeavesAtTheFirstSignalWhereThereIsNoTerminal) {
  backend_.interrupts = 1;
  EXPECT_TRUE(absl::IsCancelled(Run({"a", "b"}, /*terminal=*/false)));
  EXPECT_EQ(out_, "answer 1\n");
  EXPECT_TRUE(absl::IsCancelled(Run({kCtrlC, "b"}, /*terminal=*/false)));
  EXPECT_EQ(backend_.asked.size(), 1u);
}

}  // namespace
}  // namespace stagecoach
