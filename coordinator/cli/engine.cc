// engine: rank 0 of a job that a front launched. Not for users.

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/private_dir.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/rank_zero.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {
namespace {

// While MPI starts up nothing looks at the front's socket, and start-up can hang for good. This does, until it is
// destroyed; when the front goes it removes the job's directories and ends the process.
class StartupGuard {
 public:
  StartupGuard(int descriptor, std::vector<std::string> directories)
      : thread_([this, descriptor, directories = std::move(directories)] { Watch(descriptor, directories); }) {}
  ~StartupGuard() {
    done_.store(true);
    thread_.join();
  }

 private:
  void Watch(int descriptor, const std::vector<std::string>& directories) {
    while (!done_.load()) {
      pollfd watched{.fd = descriptor, .events = POLLRDHUP, .revents = 0};
      if (poll(&watched, 1, 20) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
        RemovePrivateDirectories(directories);
        _exit(static_cast<int>(ExitCode::kLaunch));
      }
    }
  }
  std::atomic<bool> done_{false};
  std::thread thread_;
};

std::atomic<pid_t> g_front{0};

// A launcher passes a signal on to its ranks: the drain (SIGUSR1) that its user asks for is the front's to decide. That
// is the process at the other end of the socket, on this host.
void PassDrainOn(int descriptor) {
  ucred front = {};
  socklen_t size = sizeof(front);
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &front, &size) == 0) g_front.store(front.pid);
  struct sigaction action = {};
  action.sa_handler = [](int) {
    if (const pid_t pid = g_front.load(); pid > 0) kill(pid, SIGUSR1);
  };
  action.sa_flags = SA_RESTART;
  CHECK_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
}

class EngineVerb : public Verb {
 public:
  const char* name() const override { return "engine"; }
  const char* summary() const override { return "rank 0 of a launched job (started by the other verbs)"; }
  const char* example() const override { return "mpirun -n 1 coordinator engine --connect SOCKET : -n 2 stage_worker"; }
  bool hidden() const override { return true; }
  bool NeedsCluster() const override { return true; }

  void AddOptions(CLI::App* app) override {
    AddRequiredText(app, "--connect", &socket_, "PATH", "the front's socket");
    AddTexts(app, "--cleanup", &directories_, "DIR", "a private directory of the job, removed when the front is gone");
  }

  absl::Status Run(const RunContext&) override {
    absl::StatusOr<int> descriptor = ConnectLocal(socket_);
    if (!descriptor.ok()) {
      RemovePrivateDirectories(directories_);
      return WithExitCode(descriptor.status(), ExitCode::kLaunch);
    }
    PassDrainOn(*descriptor);
    EngineChannel front(*descriptor);
    std::unique_ptr<MpiWorld> world;
    std::vector<pb::Hello> hellos;
    absl::Status status;
    {
      StartupGuard guard(front.descriptor(), directories_);
      int argc = 0;
      char** argv = nullptr;
      status = RankZero::Join(&argc, &argv, &world, &hellos);
    }
    if (status.ok()) {
      status = RankZero::Run(world.get(), hellos, &front);
    } else {
      ReportFailure(status, &front);
    }
    if (status.ok()) return status;  // the world ends with MPI_Finalize
    LogVerbose(absl::StrCat("engine: ", status.message()));
    if (FrontIsGone(front.descriptor())) RemovePrivateDirectories(directories_);
    if (world == nullptr) return WithExitCode(status, ExitCode::kLaunch);
    world->Abort(static_cast<int>(ExitCode::kLaunch));
  }

 private:
  static bool FrontIsGone(int descriptor) {
    pollfd watched{.fd = descriptor, .events = POLLRDHUP, .revents = 0};
    return poll(&watched, 1, 0) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }

  // RunEngine reports its own failures; this is for those before it.
  static void ReportFailure(const absl::Status& status, EngineChannel* front) {
    pb::EngineMessage message;
    message.mutable_failed()->set_code(static_cast<int>(status.code()));
    message.mutable_failed()->set_message(std::string(status.message()));
    // Ranks that did not answer in time, or MPI's own trouble: a new job may do better.
    message.mutable_failed()->set_lost(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status));
    if (absl::Status sent = front->Send(message); !sent.ok()) LogVerbose(sent.message());
  }

  std::string socket_;
  std::vector<std::string> directories_;
};

}  // namespace

std::unique_ptr<Verb> MakeEngineVerb() { return std::make_unique<EngineVerb>(); }

}  // namespace stagecoach
