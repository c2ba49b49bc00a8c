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

#include "coordinator/launch/private_dir.h"
#include "coordinator/launch/process_group.h"

namespace stagecoach {
namespace {

constexpr int kLifeDescriptor = 3;
constexpr int kPollWithoutHandleMs = 50;
constexpr int kCannotExec = 127;

// Descriptors 0 to 2 for mpirun, 3 for the life pipe, and nothing of the front's: a pipe that it feeds must see its end
// when it ends.
void ArrangeDescriptors(const GuardedLaunch& launch) {
  const int output = fcntl(launch.output, F_DUPFD, 10);
  const int life = fcntl(launch.life, F_DUPFD, 10);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  dup2(life, kLifeDescriptor);
  fcntl(kLifeDescriptor, F_SETFD, FD_CLOEXEC);
  close_range(kLifeDescriptor + 1, ~0u, 0);
}

void ResetSignals() {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void ExecMpirun(const GuardedLaunch& launch) {
  execve(launch.arguments[0], launch.arguments.data(), launch.environment.data());
  const char* reason = std::strerror(errno);
  for (const char* part : {"cannot run '", static_cast<const char*>(launch.arguments[0]), "': ", reason, "\n"}) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, part, std::strlen(part));
  }
  _exit(kCannotExec);
}

// Waits until mpirun or the front is gone; mpirun's exit code, or 0 when the front went first.
int AwaitEnd(pid_t mpirun) {
  const int handle = OpenProcess(mpirun);
  while (true) {
    int status = 0;
    if (waitpid(mpirun, &status, WNOHANG) == mpirun) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    pollfd waits[2] = {{kLifeDescriptor, POLLIN, 0}, {handle, POLLIN, 0}};
    const int ready = poll(waits, handle >= 0 ? 2 : 1, handle >= 0 ? -1 : kPollWithoutHandleMs);
    if (ready > 0 && waits[0].revents != 0) return 0;
  }
}

}  // namespace

void RunLaunchGuard(const GuardedLaunch& launch) {
  setsid();
  prctl(PR_SET_NAME, "launch-guard");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  ResetSignals();
  ArrangeDescriptors(launch);
  const pid_t mpirun = fork();
  if (mpirun == 0) ExecMpirun(launch);
  // From here on the end of the output is mpirun's end.
  dup2(STDIN_FILENO, STDOUT_FILENO);
  dup2(STDIN_FILENO, STDERR_FILENO);
  const int code = mpirun > 0 ? AwaitEnd(mpirun) : kCannotExec;
  // Removed first as well: whoever kills us in between must not find files and nobody left to remove them.
  RemovePrivateDirectories(launch.directories);
  KillSession(getpid(), getpid(), /*reap=*/true);
  RemovePrivateDirectories(launch.directories);
  _exit(code);
}

}  // namespace stagecoach
