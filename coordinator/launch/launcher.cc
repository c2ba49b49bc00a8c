#include "coordinator/launch/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/private_dir.h"
#include "common/base/status_macros.h"
#include "common/wire/host_report.h"
#include "coordinator/channel/engine_channel.h"
#include "coordinator/launch/host_survey.h"
#include "coordinator/launch/launch_check.h"
#include "coordinator/launch/launch_environment.h"
#include "coordinator/launch/launch_guard.h"
#include "coordinator/launch/program_output.h"
#include "coordinator/launch/shell_words.h"

namespace stagecoach {
namespace {

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

// How a child ended, while it stays to be waited for; nothing while it runs. Where somebody else took its end (the
// front ignores SIGCHLD), that it did.
std::optional<int> ExitCodeOf(pid_t child) {
  siginfo_t info;
  std::memset(&info, 0, sizeof(info));
  if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return 255;
  if (info.si_pid != child) return std::nullopt;
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

void ShowLines(const std::vector<std::string>& lines) {
  if (GetLogLevel() == LogLevel::kQuiet) return;
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  if (!text.empty()) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Launcher>> Launcher::Start(const LaunchPlan& plan, const Placement& placement) {
  std::unique_ptr<Launcher> launcher(new Launcher(placement, plan.backend->Words()));
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
  if (!plan.backend->RanksAreOfItsSession()) {
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
  // Finds nothing unless the guard itself was killed or stopped. It is waited for last, so its pid still names the
  // session.
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
  char buffer[16 << 10];
  while (output_ >= 0) {
    const ssize_t n = read(output_, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      CloseAndForget(&output_);
      const std::vector<std::string> lines = printed_.FeedEnd();
      if (GetLogLevel() != LogLevel::kVerbose) ShowLines(lines);
      return;
    }
    const absl::string_view bytes(buffer, static_cast<size_t>(n));
    const std::vector<std::string> lines = printed_.Feed(bytes);
    if (GetLogLevel() == LogLevel::kVerbose) {
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, bytes.data(), bytes.size());
    } else {
      ShowLines(lines);
    }
  }
}

std::optional<int> Launcher::ExitCode() const { return ExitCodeOf(guard_); }

}  // namespace stagecoach
