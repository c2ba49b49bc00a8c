#include "coordinator/cli/chat/terminal_hold.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "coordinator/front/signals.h"

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

}  // namespace

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

}  // namespace stagecoach
