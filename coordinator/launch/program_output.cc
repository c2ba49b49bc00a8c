#include "coordinator/launch/program_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "coordinator/launch/launch_environment.h"

namespace stagecoach {
namespace {

constexpr size_t kMostOutputBytes = 1 << 20;
constexpr int kCannotStart = 127;

bool IsProgram(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

// Until the end of the output; false when the time is over before.
bool Collect(int descriptor, int64_t deadline_us, std::string* text) {
  char buffer[4096];
  while (true) {
    const int64_t left_us = deadline_us - MonotonicUs();
    if (left_us <= 0) return false;
    pollfd wait = {descriptor, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(left_us / 1000 + 1)) <= 0) continue;
    const ssize_t n = read(descriptor, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    if (text->size() < kMostOutputBytes) text->append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

std::vector<char*> WordPointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  if (absl::StrContains(name, "/")) {
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(name, error);
    if (!error && IsProgram(name)) return absolute.lexically_normal().string();
    return absl::NotFoundError(absl::StrCat("'", name, "' is no program that can be run"));
  }
  const char* path = std::getenv("PATH");
  for (const absl::string_view directory : absl::StrSplit(path != nullptr ? path : "", ':', absl::SkipEmpty())) {
    const std::string candidate = absl::StrCat(directory, "/", name);
    if (IsProgram(candidate)) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("no '", name, "' in PATH"));
}

absl::StatusOr<StartedProgram> StartProgram(const std::vector<std::string>& arguments,
                                            std::vector<std::string> environment) {
  ASSIGN_OR_RETURN(const std::string program, FindProgram(arguments.front()));
  std::vector<std::string> words = arguments;
  const std::vector<char*> argv = WordPointers(words), variables = WordPointers(environment);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kCannotStart);
    for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    closefrom(STDERR_FILENO + 1);
    execve(program.c_str(), argv.data(), variables.data());
    _exit(kCannotStart);
  }
  const int error = errno;
  close(ends[1]);
  if (child > 0) return StartedProgram{child, ends[0]};
  close(ends[0]);
  return absl::ResourceExhaustedError(absl::StrCat("cannot start '", program, "': ", std::strerror(error)));
}

void KillProgram(pid_t process) {
  kill(-process, SIGKILL);
  kill(process, SIGKILL);  // that has not come to lead a group yet
}

int AwaitProgramEnd(pid_t process, absl::Duration most) {
  const int64_t deadline_us = MonotonicUs() + absl::ToInt64Microseconds(most);
  int status = 0;
  while (MonotonicUs() < deadline_us) {
    const pid_t ended = waitpid(process, &status, WNOHANG);
    if (ended == process || (ended < 0 && errno != EINTR)) return status;
    absl::SleepFor(absl::Milliseconds(2));
  }
  KillProgram(process);
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

absl::StatusOr<ProgramOutput> RunForOutput(const std::vector<std::string>& arguments, absl::Duration deadline) {
  const int64_t deadline_us = MonotonicUs() + absl::ToInt64Microseconds(deadline);
  ASSIGN_OR_RETURN(const StartedProgram started, StartProgram(arguments, OwnEnvironment()));
  ProgramOutput output;
  const bool ended = Collect(started.output, deadline_us, &output.text);
  close(started.output);
  const int status =
      AwaitProgramEnd(started.process, absl::Microseconds(std::max<int64_t>(deadline_us - MonotonicUs(), 0)));
  if (!ended) {
    return absl::DeadlineExceededError(
        absl::StrCat("'", arguments.front(), "' did not end within ", absl::FormatDuration(deadline)));
  }
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

}  // namespace stagecoach
