#include "coordinator/launch/process_group.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"

namespace stagecoach {
namespace {

constexpr int64_t kKillForUs = 2000000;
constexpr int64_t kReapForUs = 200000;
constexpr long kKillPauseNs = 2000000;
constexpr size_t kMaxProcFileBytes = 1 << 20;

std::string ReadProcFile(pid_t pid, const char* name) {
  std::string text;
  const int file = open(absl::StrCat("/proc/", pid, "/", name).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  char buffer[4096];
  ssize_t n = 0;
  while (text.size() < kMaxProcFileBytes &&
         ((n = read(file, buffer, sizeof(buffer))) > 0 || (n < 0 && errno == EINTR))) {
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
  }
  close(file);
  return text;
}

int RankOf(pid_t pid) {
  const std::string environment = ReadProcFile(pid, "environ");
  for (const absl::string_view variable : absl::StrSplit(environment, '\0')) {
    int rank = -1;
    if (absl::StartsWith(variable, "OMPI_COMM_WORLD_RANK=") &&
        absl::SimpleAtoi(variable.substr(variable.find('=') + 1), &rank)) {
      return rank;
    }
  }
  return -1;
}

// The process when it lives in the session. Format of stat: pid (name) state ppid pgrp session ..., name may hold
// anything.
std::optional<SessionProcess> Inspect(pid_t pid, pid_t session) {
  const std::string stat = ReadProcFile(pid, "stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  char state = '?';
  int parent = 0, group = 0, found_session = 0;
  if (std::sscanf(stat.c_str() + name_end + 1, " %c %d %d %d", &state, &parent, &group, &found_session) != 4) {
    return std::nullopt;
  }
  if (found_session != session || state == 'Z' || state == 'X') return std::nullopt;
  return SessionProcess{pid, state, -1};
}

std::vector<SessionProcess> Scan(pid_t session) {
  std::vector<SessionProcess> processes;
  DIR* directory = opendir("/proc");
  if (directory == nullptr) return processes;
  while (const dirent* entry = readdir(directory)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid)) continue;
    if (const auto process = Inspect(pid, session)) processes.push_back(*process);
  }
  closedir(directory);
  std::sort(processes.begin(), processes.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return processes;
}

// By a descriptor of the process, looked at once more, so that a pid that changed hands in between is never hit.
void KillVerified(pid_t pid, pid_t session) {
  const int handle = OpenProcess(pid);
  if (handle < 0) {
    // Some containers forbid the call.
    if (errno != ESRCH && Inspect(pid, session).has_value()) kill(pid, SIGKILL);
    return;
  }
  if (Inspect(pid, session).has_value()) syscall(SYS_pidfd_send_signal, handle, SIGKILL, nullptr, 0u);
  close(handle);
}

}  // namespace

int OpenProcess(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0u)); }

std::vector<SessionProcess> ListSession(pid_t session) {
  std::vector<SessionProcess> processes = Scan(session);
  for (SessionProcess& process : processes) process.rank = RankOf(process.pid);
  return processes;
}

void KillSession(pid_t session, pid_t except, bool reap) {
  const timespec pause = {0, kKillPauseNs};
  const int64_t give_up_us = MonotonicUs() + kKillForUs;
  // Two empty scans in a row: a process that is being forked during the first one may have escaped it.
  for (int empty_scans = 0; empty_scans < 2 && MonotonicUs() < give_up_us;) {
    bool any = false;
    for (const SessionProcess& process : Scan(session)) {
      if (process.pid == except) continue;
      any = true;
      KillVerified(process.pid, session);
    }
    while (reap && waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    empty_scans = any ? 0 : empty_scans + 1;
    if (any) nanosleep(&pause, nullptr);
  }
  // The dead may reach us one after the other, as their parents end. A child that left the session is not waited for
  // long.
  const int64_t reaped_by_us = MonotonicUs() + kReapForUs;
  while (reap && MonotonicUs() < reaped_by_us) {
    const pid_t reaped = waitpid(-1, nullptr, WNOHANG);
    if (reaped < 0 && errno == ECHILD) return;
    if (reaped == 0) nanosleep(&pause, nullptr);
  }
}

}  // namespace stagecoach
