#include "coordinator/cli/chat/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "coordinator/front/signals.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

// What handlers read. The modes are written before the flag that says so.
int g_terminal_descriptor = -1;
pid_t g_holder = -1;  // its children have the handlers until they execute another program, and no business with them
termios g_own_modes = {};
termios g_held_modes = {};
std::atomic<bool> g_begun{false};  // g_own_modes
std::atomic<bool> g_held{false};   // g_held_modes
std::atomic<bool> g_continued{false};
std::atomic<bool> g_window_changed{false};

// From the background, setting modes would stop the process, and they are the shell's. A terminal that controls no
// process of ours knows no background.
bool InForeground() {
  if (getpid() != g_holder) return false;
  const pid_t group = tcgetpgrp(g_terminal_descriptor);
  return group < 0 || group == getpgrp();
}

// Async-signal-safe, as is all that follows; on Linux ioctl is, too.
void GiveBack() {
  if (g_begun.load() && InForeground()) tcsetattr(g_terminal_descriptor, TCSANOW, &g_own_modes);
}

void TakeAgain() {
  if (g_held.load() && InForeground()) tcsetattr(g_terminal_descriptor, TCSANOW, &g_held_modes);
}

bool DropTyped() {
  int bytes = 0;
  if (!InForeground() || ioctl(g_terminal_descriptor, FIONREAD, &bytes) != 0 || bytes == 0) return false;
  tcflush(g_terminal_descriptor, TCIFLUSH);
  return true;
}

void OnWindowChange(int) { g_window_changed.store(true); }

// As the default action, with the terminal given back before.
void OnStop(int signal) {
  const int saved_errno = errno;
  GiveBack();
  struct sigaction standard = {}, ours = {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, &ours);
  raise(signal);  // blocked until here
  sigset_t stop, mask;
  sigemptyset(&stop);
  sigaddset(&stop, signal);
  pthread_sigmask(SIG_UNBLOCK, &stop, &mask);  // stopped in here, and continued
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  sigaction(signal, &ours, nullptr);
  TakeAgain();  // where nobody would continue it, it was not stopped
  errno = saved_errno;
}

void OnContinue(int) {
  const int saved_errno = errno;
  TakeAgain();
  g_continued.store(true);
  errno = saved_errno;
}

// The default action is in force again, and follows.
void OnEnd(int signal) {
  GiveBack();
  raise(signal);
}

struct Caught {
  int signal;
  void (*handler)(int);
  int flags;
};
// Those of SignalWatch do not end the process, or tell it before.
constexpr Caught kCaught[] = {
    {SIGWINCH, OnWindowChange, SA_RESTART},
    {SIGTSTP, OnStop, SA_RESTART},
    {SIGCONT, OnContinue, SA_RESTART},
    {SIGQUIT, OnEnd, static_cast<int>(SA_RESETHAND)},
    {SIGABRT, OnEnd, static_cast<int>(SA_RESETHAND)},
    {SIGSEGV, OnEnd, static_cast<int>(SA_RESETHAND)},
    {SIGBUS, OnEnd, static_cast<int>(SA_RESETHAND)},
    {SIGFPE, OnEnd, static_cast<int>(SA_RESETHAND)},
    {SIGILL, OnEnd, static_cast<int>(SA_RESETHAND)},
};
std::array<struct sigaction, sizeof(kCaught) / sizeof(kCaught[0])> g_before;

void CatchTerminalSignals() {
  for (size_t i = 0; i < g_before.size(); ++i) {
    sigaction(kCaught[i].signal, nullptr, &g_before[i]);
    if (g_before[i].sa_handler == SIG_IGN) continue;  // who started the program wants it so
    struct sigaction action = {};
    action.sa_handler = kCaught[i].handler;
    action.sa_flags = kCaught[i].flags;
    sigemptyset(&action.sa_mask);
    sigaction(kCaught[i].signal, &action, nullptr);
  }
}

constexpr SignalWatch::Terminal kAtSignals = {DropTyped, GiveBack};

// Of what the conversation depends on. Reading a quoted key (Ctrl-V) has other modes.
bool SameHold(const termios& a, const termios& b) {
  constexpr tcflag_t kFlags = ICANON | ECHO | NOFLSH;
  return (a.c_lflag & kFlags) == (b.c_lflag & kFlags) && a.c_cc[VMIN] == b.c_cc[VMIN];
}

// wchar_t is a code point on Linux.
std::wstring ToWide(absl::string_view utf8) {
  std::wstring wide;
  for (size_t at = 0; at < utf8.size();) {
    const DecodedChar next = DecodeUtf8(utf8, at);
    wide += static_cast<wchar_t>(next.code_point);
    at += next.bytes;
  }
  return wide;
}

std::string ToUtf8(const wchar_t* begin, const wchar_t* end) {
  std::string utf8;
  for (; begin < end; ++begin) AppendUtf8(static_cast<uint32_t>(*begin), &utf8);
  return utf8;
}

}  // namespace

// One set of modes from the first line to the last, also between prompts. A terminal in its own modes between two lines
// would echo what is typed, and drop it at Ctrl-C unseen: a Ctrl-C that was to drop a line would look like a second one
// in a row.
//
//   Ctrl-C   SIGINT; unread input typed before it is dropped, and SignalWatch learns whether there was any.
//   Stops    the terminal has its own modes while the process is stopped (Ctrl-Z), and ours again when it continues in
//            the foreground. In the background its modes are never touched.
//   Ends     the terminal has its own modes again, however the process ends, except by SIGKILL.
//
// One at a time in a process; one thread.
class TerminalHold {
 public:
  // Saves the modes of the terminal `descriptor`. kUnavailable: it is no terminal, or gone.
  static absl::StatusOr<std::unique_ptr<TerminalHold>> Begin(int descriptor);
  // Also drops what was typed and not read: it was not meant for the shell.
  ~TerminalHold();
  TerminalHold(const TerminalHold&) = delete;

  // Holds the current modes from now on.
  void Hold();
  // Restores the held modes if they were changed. True if the screen may be stale: modes were restored, or the process
  // was stopped.
  bool Regain();
  bool TakeWindowChange();  // whether the window's size has changed since the last call

 private:
  TerminalHold() = default;
};

absl::StatusOr<std::unique_ptr<TerminalHold>> TerminalHold::Begin(int descriptor) {
  CHECK(!g_begun.load());
  g_terminal_descriptor = descriptor;
  g_holder = getpid();
  if (tcgetattr(descriptor, &g_own_modes) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot read the terminal's modes: ", std::strerror(errno)));
  }
  g_begun.store(true);
  CatchTerminalSignals();
  SignalWatch::SetTerminal(&kAtSignals);
  return std::unique_ptr<TerminalHold>(new TerminalHold());
}

TerminalHold::~TerminalHold() {
  if (InForeground()) tcflush(g_terminal_descriptor, TCIFLUSH);
  GiveBack();
  g_held.store(false);
  g_begun.store(false);
  SignalWatch::SetTerminal(nullptr);
  for (size_t i = 0; i < g_before.size(); ++i) sigaction(kCaught[i].signal, &g_before[i], nullptr);
}

void TerminalHold::Hold() {
  g_held.store(false);
  g_held.store(tcgetattr(g_terminal_descriptor, &g_held_modes) == 0);
}

bool TerminalHold::Regain() {
  bool changed = g_continued.exchange(false);
  termios now = {};
  if (InForeground() && tcgetattr(g_terminal_descriptor, &now) == 0 && !SameHold(now, g_held_modes)) {
    TakeAgain();
    changed = true;
  }
  return changed;
}

bool TerminalHold::TakeWindowChange() { return g_window_changed.exchange(false); }

struct LineEditor::State {
  ~State();

  std::unique_ptr<TerminalHold> hold;
  const LineHistory* history_lines = nullptr;
  EditLine* editor = nullptr;
  HistoryW* history = nullptr;
  std::string prompt;
  std::string last_line;  // of the history that libedit has
  std::string bytes;      // read, not yet taken by libedit

  // Of one Read.
  const AwaitInput* await = nullptr;
  absl::Status error;
  bool signal = false;
  bool typed = false;

  static State* Of(EditLine* editor) {
    void* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return static_cast<State*>(state);
  }
  static char* Prompt(EditLine* editor) { return Of(editor)->prompt.data(); }
  static int NextCharacter(EditLine* editor, wchar_t* character) { return Of(editor)->Next(character); }

  void SetModes();
  int Next(wchar_t* character);
  bool ReadBytes();
  bool TakeCharacter(wchar_t* character);
  void FollowTerminal();
  void UpdateHistory();
};

bool LineEditor::State::TakeCharacter(wchar_t* character) {
  std::string whole;
  // All but a character that is not there to its end; broken ones are U+FFFD by now.
  const size_t taken = AppendWholeUtf8(bytes, &whole);
  bytes = whole + bytes.substr(taken);
  if (whole.empty()) return false;
  const DecodedChar next = DecodeUtf8(bytes, 0);
  *character = static_cast<wchar_t>(next.code_point);
  bytes.erase(0, next.bytes);
  // A Ctrl-D from before the terminal was held has become a null in its buffer.
  const LineInfoW* line = el_wline(editor);
  if (*character == L'\0' && line->lastchar == line->buffer) *character = L'\x04';
  return true;
}

// Sets libedit's editing modes for the whole conversation: on its own it shows a prompt before it sets them, and
// restores the terminal after each line. At Ctrl-C the holder of the terminal decides what to drop, and a byte that was
// dropped between poll() and read() is not waited for.
void LineEditor::State::SetModes() {
  el_set(editor, EL_EDITMODE, 1);  // whatever ~/.editrc says: a line that the kernel edits is lost at Ctrl-C
  el_set(editor, EL_SETTY, "-d", "+noflsh", "min=\\000", "time=\\000", nullptr);
  el_set(editor, EL_SETTY, "-x", "+inlcr", "+noflsh", "-icanon", "-echo", "-echok", "-iexten", "min=\\000",
         "time=\\000", nullptr);
  el_set(editor, EL_PREP_TERM, 1);
  hold->Hold();
}

void LineEditor::State::FollowTerminal() {
  if (hold->TakeWindowChange()) el_resize(editor);
  if (hold->Regain()) el_set(editor, EL_REFRESH);
}

// False at the end.
bool LineEditor::State::ReadBytes() {
  char buffer[256];
  const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
  if (got > 0) bytes.append(buffer, static_cast<size_t>(got));
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  pollfd terminal = {STDIN_FILENO, POLLIN, 0};  // one that is gone is an end, too; one without a byte is none
  return got > 0 || poll(&terminal, 1, 0) <= 0 || (terminal.revents & (POLLHUP | POLLERR | POLLNVAL)) == 0;
}

// As libedit asks: how many characters were read; 0 at the end, -1 to end the reading.
int LineEditor::State::Next(wchar_t* character) {
  while (true) {
    if (TakeCharacter(character)) return 1;
    FollowTerminal();
    const absl::StatusOr<Awaited> awaited = (*await)(STDIN_FILENO);
    error = awaited.status();
    signal = awaited.ok() && *awaited == Awaited::kSignal;
    if (signal) {
      const LineInfoW* line = el_wline(editor);
      typed = line->lastchar > line->buffer || !bytes.empty();
      bytes.clear();
    }
    if (!error.ok() || signal) return -1;
    if (*awaited == Awaited::kSpoke) el_set(editor, EL_REFRESH);
    if (*awaited == Awaited::kReadable && !ReadBytes()) return 0;
  }
}

// Lines that were added since; the history shortens itself at its other end.
void LineEditor::State::UpdateHistory() {
  const std::vector<std::string>& lines = history_lines->lines();
  size_t from = lines.size();
  while (from > 0 && lines[from - 1] != last_line) --from;
  HistEventW event;
  for (; from < lines.size(); ++from) history_w(history, &event, H_ENTER, ToWide(lines[from]).c_str());
  if (!lines.empty()) last_line = lines.back();
}

LineEditor::State::~State() {
  if (editor != nullptr) {
    el_set(editor, EL_EDITMODE, 0);  // who holds the terminal gives it back
    el_end(editor);
  }
  if (history != nullptr) history_wend(history);
}

absl::StatusOr<std::unique_ptr<LineEditor>> LineEditor::Open(const LineHistory* history) {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
  auto state = std::make_unique<State>();
  state->history_lines = history;
  ASSIGN_OR_RETURN(state->hold, TerminalHold::Begin(STDIN_FILENO));
  state->history = history_winit();
  EditLine* editor = state->editor = el_init("coordinator", stdin, stdout, stderr);
  if (editor == nullptr || state->history == nullptr) {
    return absl::ResourceExhaustedError("the line editor cannot be started: there is no memory for it");
  }
  HistEventW event;
  history_w(state->history, &event, H_SETSIZE, static_cast<int>(LineHistory::kMostLines));
  el_set(editor, EL_CLIENTDATA, state.get());
  el_set(editor, EL_PROMPT, &State::Prompt);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_SIGNAL, 0);
  el_wset(editor, EL_HIST, history_w, state->history);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(editor, nullptr);
  el_set(editor, EL_GETCFN, &State::NextCharacter);
  state->SetModes();
  return std::unique_ptr<LineEditor>(new LineEditor(std::move(state)));
}

LineEditor::LineEditor(std::unique_ptr<State> state) : state_(std::move(state)) {}

LineEditor::~LineEditor() = default;

void LineEditor::Forget() { state_->bytes.clear(); }

absl::StatusOr<LineRead> LineEditor::Read(const std::string& prompt, const AwaitInput& await) {
  State& state = *state_;
  state.prompt = prompt;
  state.await = &await;
  state.signal = false;
  state.error = absl::OkStatus();
  state.UpdateHistory();
  el_resize(state.editor);
  int count = 0;
  const wchar_t* line = el_wgets(state.editor, &count);
  if (!state.error.ok()) return state.error;
  if (state.signal) return LineRead{.kind = LineRead::Kind::kSignal, .typed = state.typed};
  if (line == nullptr || count <= 0) return LineRead{.kind = LineRead::Kind::kEnd};
  std::string text = ToUtf8(line, line + count);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return LineRead{.kind = LineRead::Kind::kLine, .text = std::move(text)};
}

}  // namespace stagecoach
