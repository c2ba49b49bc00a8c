// Conversations at a terminal: what its modes are, and what Ctrl-C means, at any moment.

#include "coordinator/cli/chat/line_editor.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "common/base/status_macros.h"
#include "coordinator/cli/chat/chat_repl.h"
#include "coordinator/front/signals.h"
#include "tests/testing/matchers.h"
#include "tests/testing/terminal.h"

namespace stagecoach::testing {
useconds_t tcsetattr_delay_us = 0;
}  // namespace stagecoach::testing

// In place of libc's, also for libedit: with a delay, keys meet the modes from before.
extern "C" int tcsetattr(int descriptor, int actions, const termios* modes) noexcept {
  using Function = int (*)(int, int, const termios*);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "tcsetattr"));
  if (stagecoach::testing::tcsetattr_delay_us > 0) usleep(stagecoach::testing::tcsetattr_delay_us);
  return next(descriptor, actions, modes);
}

namespace stagecoach {
namespace {

using testing::Terminal;

absl::Status Print(absl::string_view text) {
  return write(STDOUT_FILENO, text.data(), text.size()) < 0 ? absl::UnavailableError("stdout") : absl::OkStatus();
}

void AwaitReadable(int descriptor) {
  pollfd wait = {descriptor, POLLIN, 0};
  while (poll(&wait, 1, -1) <= 0) {
  }
}

// Answers "heard TEXT", and before it what the message asks for.
class ListeningBackend : public ChatBackend {
 public:
  absl::Status Prepare() override { return absl::OkStatus(); }
  absl::StatusOr<Awaited> AwaitInput(int descriptor) override {
    SignalWatch& signals = SignalWatch::Get();
    if (signals.stops() > 0) return Awaited::kSignal;
    pollfd waits[] = {{descriptor, POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
    if (poll(waits, 2, 100) <= 0) return Awaited::kNothing;
    if (waits[1].revents == 0) return Awaited::kReadable;
    signals.Clear();
    return Awaited::kNothing;
  }
  absl::StatusOr<ChatAnswer> Answer(const ChatTurn& turn, const TakeText& take) override {
    const std::string text = turn.messages->back()["content"].get<std::string>();
    SignalWatch& signals = SignalWatch::Get();
    signals.Clear();
    if (text == "abort") std::abort();
    if (text == "wait for keys") {
      RETURN_IF_ERROR(take(AnswerPart::kContent, "waiting\n"));
      AwaitReadable(STDIN_FILENO);
    }
    // As slow to stop as it says.
    const int awaited = text == "one signal" ? 1 : text == "two signals" ? 2 : text == "deaf" ? 1000 : 0;
    for (int i = 0; i < awaited; ++i) {
      RETURN_IF_ERROR(take(AnswerPart::kContent, absl::StrCat("signals: ", i, "\n")));
      AwaitReadable(signals.descriptor());
      signals.Clear();
    }
    ChatAnswer answer = {.content = "heard " + text, .finish_reason = "stop"};
    RETURN_IF_ERROR(take(AnswerPart::kContent, answer.content));
    return answer;
  }
  absl::Status Set(absl::string_view, absl::string_view) override { return absl::OkStatus(); }
  std::string Settings() const override { return ""; }
  bool AlwaysAnswersAlike() const override { return false; }
  std::string Name() const override { return "listener"; }
  int64_t context_tokens() const override { return 100; }
  std::string Describe() const override { return ""; }
};

// A program: its exit code is that of chat.
int Talk() {
  const rlimit no_core = {};
  setrlimit(RLIMIT_CORE, &no_core);
  setenv("TERM", "xterm", 1);
  char byte;
  while (read(SignalWatch::Get().descriptor(), &byte, 1) > 0) {  // of the process that this one was forked from
  }
  SignalWatch::Get().ForgetStops();
  ListeningBackend backend;
  ChatScreen screen({.terminal = true}, Print, [](absl::string_view) {});
  LineHistory history;
  absl::StatusOr<std::unique_ptr<LineEditor>> lines = LineEditor::Open(&history);
  if (!lines.ok()) return 1;
  const absl::Status talked = ChatRepl(&backend, lines->get(), &screen, nullptr).Run();
  lines->reset();
  return talked.ok() ? 0 : absl::IsCancelled(talked) ? 130 : 1;
}

// The same as a job of a shell that leaves the terminal's modes alone. It obeys "fg" and "bg".
int TalkInAShell() {
  signal(SIGTTOU, SIG_IGN);
  const pid_t job = fork();
  setpgid(job, job);
  tcsetpgrp(STDIN_FILENO, job == 0 ? getpid() : job);
  if (job == 0) {
    signal(SIGTTOU, SIG_DFL);
    _exit(Talk());
  }
  int status = 0;
  while (waitpid(job, &status, WUNTRACED) == job && WIFSTOPPED(status)) {
    tcsetpgrp(STDIN_FILENO, getpgrp());
    Print("stopped\n").IgnoreError();
    char line[16] = {};
    while (read(STDIN_FILENO, line, sizeof(line)) > 0 && line[0] == 'b') {
      kill(-job, SIGCONT);
      Print("in the background\n").IgnoreError();
    }
    tcsetpgrp(STDIN_FILENO, job);
    kill(-job, SIGCONT);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define EXPECT_SHOWS(terminal, text) ASSERT_TRUE((terminal).Shows(text)) << (terminal).shown()

// Whether the terminal comes to have its own modes, or to have them no more.
bool Becomes(const Terminal& terminal, bool own) {
  for (int i = 0; i < 1000 && terminal.HasItsOwnModes() != own; ++i) usleep(10000);
  return terminal.HasItsOwnModes() == own;
}

void ExpectEnd(Terminal* terminal, int exit_code) {
  EXPECT_EQ(terminal->Wait(), exit_code) << terminal->shown();
  EXPECT_TRUE(terminal->HasItsOwnModes());
}

TEST(ChatTerminal, ForgetsALineAtCtrlCAlsoWhereModesAreSetSlowly) {
  testing::tcsetattr_delay_us = 30000;
  Terminal terminal(Talk);
  testing::tcsetattr_delay_us = 0;
  EXPECT_SHOWS(terminal, "> ");
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(terminal.HasItsOwnModes());
    terminal.Type("Wrong");
    EXPECT_SHOWS(terminal, "Wrong");
    terminal.Type("\x03");
    EXPECT_SHOWS(terminal, "Ctrl-C again or Ctrl-D leaves");
    EXPECT_SHOWS(terminal, "> ");
  }
  terminal.Type("\x03");
  ExpectEnd(&terminal, 130);
  EXPECT_THAT(terminal.shown(), Not(HasSubstr("^C")));
}

TEST(ChatTerminal, HasItsOwnModesWhileTheProgramIsStopped) {
  Terminal terminal(TalkInAShell);
  EXPECT_SHOWS(terminal, "> ");
  terminal.Type("ri");
  EXPECT_SHOWS(terminal, "ri");
  terminal.Type("\x1a");
  EXPECT_SHOWS(terminal, "stopped");
  EXPECT_TRUE(terminal.HasItsOwnModes());
  terminal.Type("fg\r");
  EXPECT_SHOWS(terminal, "> ri");
  EXPECT_FALSE(terminal.HasItsOwnModes());
  terminal.Type("ght\r");
  EXPECT_SHOWS(terminal, "heard right");
  terminal.Type("one signal\r");
  EXPECT_SHOWS(terminal, "signals: 0");
  terminal.Type("\x1a");
  EXPECT_SHOWS(terminal, "stopped");
  EXPECT_TRUE(terminal.HasItsOwnModes());
  terminal.Type("bg\r");
  EXPECT_SHOWS(terminal, "in the background");
  EXPECT_TRUE(terminal.HasItsOwnModes());
  terminal.Type("fg\r");
  EXPECT_TRUE(Becomes(terminal, /*own=*/false));
  terminal.Type("\x03");
  EXPECT_SHOWS(terminal, "heard one signal");
  EXPECT_SHOWS(terminal, "> ");
  terminal.Type("\x03");
  ExpectEnd(&terminal, 130);
}

struct Talked {
  const char* name;
  std::vector<std::pair<const char*, const char*>> steps;  // what is shown, and what is typed then
  int exit_code;
  ::testing::Matcher<std::string> shown = ::testing::_;  // all in all
};
std::ostream& operator<<(std::ostream& stream, const Talked& talked) { return stream << talked.name; }
class TalkedAtATerminal : public ::testing::TestWithParam<Talked> {};

TEST_P(TalkedAtATerminal, GivesTheTerminalItsOwnModesAtTheEndAlone) {
  Terminal terminal(Talk);
  for (const auto& [shown, typed] : GetParam().steps) {
    EXPECT_SHOWS(terminal, shown);
    if (*typed == '\0') continue;
    EXPECT_FALSE(terminal.HasItsOwnModes());
    terminal.Type(typed);
  }
  ExpectEnd(&terminal, GetParam().exit_code);
  EXPECT_THAT(terminal.shown(), GetParam().shown);
}

constexpr char kOnceMore[] = "Ctrl-C again or Ctrl-D leaves";

INSTANTIATE_TEST_SUITE_P(
    All, TalkedAtATerminal,
    ::testing::Values(Talked{"ForgetsALineThatNobodyHasReadYet",
                             {{"> ", "Wrong\x03"},
                              {kOnceMore, ""},
                              {"> ", "Wrong\x03"},
                              {kOnceMore, ""},
                              {"> ", "Wrong\x03"},
                              {kOnceMore, ""},
                              {"> ", "right\r"},
                              {"heard right", ""},
                              {"> ", "\x04"}},
                             0},
                      Talked{"TakesACtrlCAfterTypingForAFirstOneAlsoWhileAnAnswerStops",
                             {{"> ", "two signals\r"},
                              {"signals: 0", "\x03"},
                              {"signals: 1", "Wrong\x03"},
                              {"heard two signals", ""},
                              {"> ", "\x03"}},
                             130},
                      Talked{"ShowsWhatIsTypedDuringAnAnswerAtThePrompt",
                             {{"> ", "wait for keys\r"},
                              {"waiting", "first\rsec\x7f\x7f\x7fthird\r\x04"},
                              {"heard wait for keys", ""},
                              {"heard first", ""},
                              {"heard third", ""}},
                             0,
                             HasSubstr("> wait for keys\r\nwaiting\r\nheard wait for keys\r\n")},
                      Talked{"DropsAtCtrlCWhatWasTypedDuringTheAnswer",
                             {{"> ", "one signal\rahead\r"},
                              {"signals: 0", "more\r\x03"},
                              {"heard one signal", ""},
                              {"> ", "next\r"},
                              {"heard next", "\x04"}},
                             0,
                             AllOf(Not(HasSubstr("ahead")), Not(HasSubstr("more")))},
                      Talked{"Exit", {{"> ", "/exit\r"}}, 0}, Talked{"TwoCtrlC", {{"> ", "\x03"}, {"> ", "\x03"}}, 130},
                      Talked{"ADeafAnswer",
                             {{"> ", "deaf\r"}, {"signals: 0", "\x03"}, {"signals: 1", "\x03"}, {"signals: 2", "\x03"}},
                             130},
                      Talked{"Quit", {{"> ", "deaf\r"}, {"signals: 0", "\x1c"}}, 128 + SIGQUIT},
                      Talked{"Abort", {{"> ", "abort\r"}}, 128 + SIGABRT}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ChatTerminal, HasItsOwnModesAfterSigterm) {
  Terminal terminal(Talk);
  EXPECT_SHOWS(terminal, "> ");
  ASSERT_EQ(kill(terminal.pid(), SIGTERM), 0);
  ExpectEnd(&terminal, 130);
}

}  // namespace
}  // namespace stagecoach
