#include "coordinator/launch/launch_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "common/base/clock.h"
#include "common/base/private_dir.h"
#include "coordinator/launch/process_group.h"

namespace stagecoach {
namespace {

constexpr int kLifeDescriptor = 3;
constexpr int kPollWithoutHandleMs = 50;
constexpr int kCannotExec = 127;
constexpr long kClearingPauseNs = 10000000;

// Descriptors 0 to 2 for the launcher, 3 for the life socket, and nothing of the front's: a pipe that it feeds must see
// its end when it ends.
void ArrangeDescriptors(const GuardedLaunch& launch) {
  const int output = fcntl(launch.output, F_DUPFD, 10);
  const int life = fcntl(launch.life, F_DUPFD, 10);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  dup2(life, kLifeDescriptor);
  fcntl(kLifeDescriptor, F_SETFD, FD_CLOEXEC);
  closefrom(kLifeDescriptor + 1);  // unlike close_range, also on kernels before 5.9: the front's end of `life` is here
}

void ResetSignals() {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
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

}  // namespace

void RunLaunchGuard(const GuardedLaunch& launch) {
  setsid();
  prctl(PR_SET_NAME, "launch-guard");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  ResetSignals();
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

}  // namespace stagecoach
