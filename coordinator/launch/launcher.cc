#include "coordinator/launch/launcher.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/host/private_dir.h"
#include "common/wire/host_report.h"
#include "coordinator/channel/engine_channel.h"
#include "coordinator/launch/hosts/host_survey.h"
#include "coordinator/launch/launch_check.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

// --- the processes of a session --------------------------------------------------------------------------------------

// A descriptor of a process that becomes readable when it ends; -1 with errno set where the process or the kernel's
// support is missing. (The header of Debian 12's C library declares pidfd_open without C linkage.)
int OpenProcess(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0u)); }

constexpr int64_t kKillForUs = 2000000;
constexpr int64_t kReapForUs = 200000;
constexpr long kKillPauseNs = 2000000;

std::string ReadProcFile(pid_t pid, const char* name) {
  std::string text;
  const int file = open(absl::StrCat("/proc/", pid, "/", name).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  ReadAvailable(file, &text);
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

// The process when it lives in the session. stat: pid (name) state ppid pgrp session ...; name may hold anything.
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

// --- the guard: the process between the front and the launcher -------------------------------------------------------

struct GuardedLaunch {
  std::vector<char*> arguments;    // of the launcher, ending with nullptr
  std::vector<char*> environment;  // likewise
  std::vector<std::string> directories;
  std::vector<std::vector<char*>> clearing;  // what clears the hosts if the front dies, each ending with nullptr
  int output = -1;                           // becomes stdout and stderr of the launcher
  int life = -1;                             // the guard's end of a socket; the front says a byte there unless it dies
};

// The commands that clear other hosts run all at once, and are killed when they take longer: a host that cannot be
// reached now is cleared before it is used again.
constexpr int64_t kHostsClearedWithinUs = 10000000;

constexpr int kLifeDescriptor = 3;
constexpr int kPollWithoutHandleMs = 50;
constexpr int kCannotExec = 127;
constexpr long kClearingPauseNs = 10000000;

// Descriptors 0 to 2 for the launcher, 3 for the life socket, and nothing of the front's: its pipes must end with it.
void ArrangeDescriptors(const GuardedLaunch& launch) {
  const int output = fcntl(launch.output, F_DUPFD, 10);
  const int life = fcntl(launch.life, F_DUPFD, 10);
  BecomeProgram(output);
  dup2(life, kLifeDescriptor);
  fcntl(kLifeDescriptor, F_SETFD, FD_CLOEXEC);
  closefrom(kLifeDescriptor + 1);  // unlike close_range, also on kernels before 5.9: the front's end of `life` is here
}

[[noreturn]] void ExecLauncher(const GuardedLaunch& launch) {
  execve(launch.arguments[0], launch.arguments.data(), launch.environment.data());
  const char* reason = std::strerror(errno);
  for (const char* part : {"cannot run '", static_cast<const char*>(launch.arguments[0]), "': ", reason, "\n"}) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, part, std::strlen(part));
  }
  _exit(kCannotExec);
}

// Waits until the launcher or the front is gone; the launcher's exit code, or 0 when the front went first.
int AwaitEnd(pid_t launcher) {
  const int handle = OpenProcess(launcher);
  while (true) {
    int status = 0;
    if (waitpid(launcher, &status, WNOHANG) == launcher) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    pollfd waits[2] = {{kLifeDescriptor, POLLIN, 0}, {handle, POLLIN, 0}};
    const int ready = poll(waits, handle >= 0 ? 2 : 1, handle >= 0 ? -1 : kPollWithoutHandleMs);
    if (ready > 0 && waits[0].revents != 0) return 0;
  }
}

// A front that lives says a byte before it closes its end, and clears the other hosts itself.
bool FrontHasDied() {
  pollfd wait = {kLifeDescriptor, POLLIN, 0};
  char byte = 0;
  return poll(&wait, 1, 0) > 0 && read(kLifeDescriptor, &byte, 1) == 0;
}

// Starts all, and waits for their ends.
void ClearOtherHosts(const GuardedLaunch& launch) {
  size_t running = 0;
  for (const std::vector<char*>& command : launch.clearing) {
    const pid_t child = fork();
    if (child == 0) {
      execvpe(command[0], command.data(), launch.environment.data());
      _exit(kCannotExec);
    }
    running += child > 0;
  }
  const int64_t give_up_us = MonotonicUs() + kHostsClearedWithinUs;
  while (running > 0 && MonotonicUs() < give_up_us) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended > 0) --running;
    if (ended < 0 && errno == ECHILD) return;
    const timespec pause = {0, kClearingPauseNs};
    if (ended == 0) nanosleep(&pause, nullptr);
  }
}

// Runs in the child of a fork: starts the launcher and never returns. Uses no lock of ours, and of the C library only
// what stays usable after the fork of a process with threads (glibc's allocator does).
[[noreturn]] void RunLaunchGuard(const GuardedLaunch& launch) {
  setsid();
  prctl(PR_SET_NAME, "launch-guard");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  ArrangeDescriptors(launch);
  const pid_t launcher = fork();
  if (launcher == 0) ExecLauncher(launch);
  signal(SIGUSR1, SIG_IGN);  // a drain sent to every process of our name; the front heeds it
  // From here on the end of the output is the launcher's end.
  dup2(STDIN_FILENO, STDOUT_FILENO);
  dup2(STDIN_FILENO, STDERR_FILENO);
  const int code = launcher > 0 ? AwaitEnd(launcher) : kCannotExec;
  // Removed first as well: whoever kills us in between must not find files and nobody left to remove them.
  RemovePrivateDirectories(launch.directories);
  KillSession(getpid(), getpid(), /*reap=*/true);
  RemovePrivateDirectories(launch.directories);
  if (FrontHasDied()) {
    ClearOtherHosts(launch);
    KillSession(getpid(), getpid(), /*reap=*/true);
  }
  _exit(code);
}

// --- the front -------------------------------------------------------------------------------------------------------

constexpr char kSharedMemory[] = "/dev/shm";
constexpr int64_t kGuardEndsWithinUs = 3000000;
constexpr absl::Duration kThisHostCleared = absl::Seconds(5);

absl::Status SystemError(absl::string_view what) {
  return absl::InternalError(absl::StrCat("cannot ", what, ": ", std::strerror(errno)));
}

void CloseAndForget(int* descriptor) {
  if (*descriptor >= 0) close(*descriptor);
  *descriptor = -1;
}

// How a child ended, or that somebody else took its end; it stays to be waited for. Nothing while it runs.
std::optional<int> ExitCodeOf(pid_t child) {
  siginfo_t info;
  std::memset(&info, 0, sizeof(info));
  if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return 255;
  if (info.si_pid != child) return std::nullopt;
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

}  // namespace

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
  // The dead may reach us one after the other, as parents end. A child that left the session is not waited for long.
  const int64_t reaped_by_us = MonotonicUs() + kReapForUs;
  while (reap && MonotonicUs() < reaped_by_us) {
    const pid_t reaped = waitpid(-1, nullptr, WNOHANG);
    if (reaped < 0 && errno == ECHILD) return;
    if (reaped == 0) nanosleep(&pause, nullptr);
  }
}

absl::StatusOr<std::unique_ptr<Launcher>> Launcher::Start(const LaunchPlan& plan, const Placement& placement) {
  std::unique_ptr<Launcher> launcher(new Launcher(placement, plan.backend->MakeParser()));
  LaunchPlaces places;
  RETURN_IF_ERROR(launcher->MakePlaces(&places));
  ASSIGN_OR_RETURN(launcher->listener_, ListenLocal(places.socket()));
  RETURN_IF_ERROR(plan.backend->WriteFiles(placement, places));
  RETURN_IF_ERROR(launcher->Spawn(plan, places));
  return launcher;
}

Launcher::~Launcher() {
  Kill();
  if (!clear_here_.empty()) AskAndWait({{"localhost", clear_here_}}, kThisHostCleared);
  RemovePrivateDirectories(directories_);
  CloseAndForget(&listener_);
  CloseAndForget(&output_);
  CloseAndForget(&guard_handle_);
}

absl::Status Launcher::MakePlaces(LaunchPlaces* places) {
  ASSIGN_OR_RETURN(places->directory, MakePrivateDirectory(TemporaryDirectoryOf(placement_)));
  directories_.push_back(places->directory);
  name_ = places->name();
  // Where there is no shared memory file system, an ordinary directory does.
  const std::string shared = absl::StrCat(kSharedMemory, "/", name_);
  places->shared_directory = MakePrivateDirectoryAt(shared).ok() ? shared : places->directory;
  if (places->shared_directory == shared) directories_.push_back(shared);
  return absl::OkStatus();
}

absl::Status Launcher::Spawn(const LaunchPlan& plan, const LaunchPlaces& places) {
  int output[2], life[2];
  if (pipe2(output, O_CLOEXEC) != 0) return SystemError("make a pipe");
  output_ = output[0];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, life) != 0) {
    close(output[1]);
    return SystemError("make a socket");
  }
  life_ = life[1];
  fcntl(output_, F_SETFL, O_NONBLOCK);

  std::vector<std::string> arguments = plan.backend->Arguments(plan.programs, placement_, places);
  std::vector<std::string> environment = LaunchEnvironment(OwnEnvironment());
  plan.backend->SetEnvironment(placement_, places, &environment);
  LogVerbose(absl::StrCat("launching: ", JoinShellWords(arguments)));
  std::vector<HostQuestion> clearing;
  for (const PlacedStages& placed : placement_.hosts) {
    if (!placed.here) clearing.push_back(AskHost(*plan.backend, plan.programs, placed.host, {name_}));
  }
  if (!plan.backend->RanksInItsSession()) {
    clear_here_ = {plan.programs.stage_worker, kHostReportFlag, kClearFlag, name_};
    clearing.push_back({"localhost", clear_here_});
  }
  GuardedLaunch launch;
  for (HostQuestion& question : clearing) launch.clearing.push_back(WordPointers(question.command));
  launch.arguments = WordPointers(arguments);
  launch.environment = WordPointers(environment);
  launch.directories = directories_;
  launch.output = output[1];
  launch.life = life[0];

  guard_ = fork();
  if (guard_ == 0) RunLaunchGuard(launch);
  const int error = errno;
  close(output[1]);
  close(life[0]);
  if (guard_ < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a process: ", std::strerror(error)));
  }
  guard_handle_ = OpenProcess(guard_);
  return absl::OkStatus();
}

void Launcher::Kill() {
  // We live, and clear the other hosts ourselves.
  if (life_ >= 0) send(life_, "x", 1, MSG_NOSIGNAL);
  CloseAndForget(&life_);
  if (guard_ <= 0) return;
  const int64_t give_up_us = MonotonicUs() + kGuardEndsWithinUs;
  while (!ExitCodeOf(guard_).has_value() && MonotonicUs() < give_up_us) {
    pollfd end = {guard_handle_, POLLIN, 0};
    poll(&end, guard_handle_ >= 0 ? 1 : 0, guard_handle_ >= 0 ? 100 : 2);
  }
  // Finds nothing unless the guard itself was killed or stopped. Waited for last: its pid still names the session.
  KillSession(guard_, /*except=*/0, /*reap=*/false);
  while (waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
  }
  guard_ = -1;
}

std::optional<int> Launcher::Accept() {
  const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  CloseAndForget(&listener_);  // one engine, one connection
  return descriptor;
}

void Launcher::RelayOutput() {
  if (output_ < 0) return;
  std::string bytes;
  const bool open = ReadAvailable(output_, &bytes);
  std::vector<std::string> lines = printed_.Feed(bytes);
  if (!open) {
    CloseAndForget(&output_);
    for (std::string& line : printed_.FeedEnd()) lines.push_back(std::move(line));
  }
  if (GetLogLevel() == LogLevel::kQuiet) return;
  if (GetLogLevel() != LogLevel::kVerbose) bytes = absl::StrCat(absl::StrJoin(lines, "\n"), lines.empty() ? "" : "\n");
  for (absl::string_view rest = bytes; !rest.empty();) {
    const ssize_t written = write(STDERR_FILENO, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN) return;  // nobody reads what ranks say
    pollfd room = {STDERR_FILENO, POLLOUT, 0};
    if (written < 0 && poll(&room, 1, 1000) == 0) return;  // nor waits the job for a reader who sleeps
    rest.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
}

std::optional<int> Launcher::ExitCode() const { return ExitCodeOf(guard_); }

}  // namespace stagecoach
