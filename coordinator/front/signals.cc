#include "coordinator/front/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "common/base/check.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {
namespace {

// What a handler may touch: lock-free atomics and the descriptor of a pipe.
std::atomic<int> g_stops{0};  // Stops in one word: the count, and kAfterTyping
constexpr int kAfterTyping = 1 << 16;
std::atomic<const SignalWatch::Terminal*> g_terminal{nullptr};
std::atomic<bool> g_terminated{false};
std::atomic<bool> g_hung_up{false};
std::atomic<int> g_drains{0};
std::atomic<int> g_stops_that_end{3};
std::atomic<int> g_write_end{-1};
std::atomic<bool> g_written{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
static_assert(std::atomic<const SignalWatch::Terminal*>::is_always_lock_free);

int CountOf(int stops) { return stops % kAfterTyping; }

void WriteByte() {
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = write(g_write_end.load(), &byte, 1);  // a full pipe wakes as well
  g_written.store(true);  // after the byte: a Clear in between leaves both for the next one
}

void CountStop(int signal) {
  const SignalWatch::Terminal* terminal = g_terminal.load();
  if (signal == SIGINT && terminal != nullptr && terminal->drop_typed() && !g_terminated.load()) {
    g_stops.store(kAfterTyping + 1);
    return;
  }
  if (signal != SIGINT) g_terminated.store(true);
  if (CountOf(g_stops.fetch_add(1) + 1) < g_stops_that_end.load()) return;
  if (terminal != nullptr) terminal->give_back();
  _exit(static_cast<int>(ExitCode::kInterrupted));
}

void OnSignal(int signal) {
  const int saved_errno = errno;
  if (signal == SIGUSR1) {
    g_drains.fetch_add(1);
  } else if (signal != SIGHUP || !g_hung_up.exchange(true)) {  // a shell that goes says it, and the kernel once more
    CountStop(signal);
  }
  WriteByte();
  errno = saved_errno;
}

void Catch(int signal) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  CHECK_EQ(sigaction(signal, &action, nullptr), 0);
}

}  // namespace

void SignalWatch::NoteDrain() { Catch(SIGUSR1); }

SignalWatch& SignalWatch::Get() {
  static SignalWatch watch;
  return watch;
}

SignalWatch::SignalWatch() {
  int ends[2];
  CHECK_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  read_end_ = ends[0];
  g_write_end.store(ends[1]);
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) Catch(signal);
  struct sigaction hangup = {};
  CHECK_EQ(sigaction(SIGHUP, nullptr, &hangup), 0);
  if (hangup.sa_handler != SIG_IGN) Catch(SIGHUP);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  CHECK_EQ(sigaction(SIGPIPE, &ignore, nullptr), 0);
}

void SignalWatch::Clear() {
  if (!g_written.exchange(false)) return;  // it is called for every event
  char bytes[64];
  while (read(read_end_, bytes, sizeof(bytes)) > 0) {
  }
}

void SignalWatch::Wake() { WriteByte(); }
int SignalWatch::stops() const { return CountOf(g_stops.load()); }

SignalWatch::Stops SignalWatch::ForgetStops() {
  const int stops = terminated() ? g_stops.load() : g_stops.exchange(0);
  return {CountOf(stops), stops >= kAfterTyping};
}

bool SignalWatch::terminated() const { return g_terminated.load(); }
int SignalWatch::drains() const { return g_drains.load(); }
void SignalWatch::EndAtSecondStop() { g_stops_that_end.store(2); }
void SignalWatch::SetTerminal(const Terminal* terminal) { g_terminal.store(terminal); }

}  // namespace stagecoach
