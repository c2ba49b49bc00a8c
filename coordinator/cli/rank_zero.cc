// The life of rank 0 in an MPI world: as the engine of a job that a front launched (the verb `engine`, not for users),
// or with a verb beside it.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/host/private_dir.h"
#include "common/transport/mpi/mpi_endpoint.h"
#include "common/wire/handshake.h"
#include "coordinator/channel/engine_channel.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/signals.h"
#include "coordinator/job/run_engine.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kHelloDeadline = absl::Seconds(60);

// MPI_Init, then every rank's hello, then the check of the world. kFailedPrecondition with one clear message for a
// wrong world. `world` is set as soon as it exists, also when an error is returned, so that the caller can abort it.
// Everything in it happens on the thread that called this.
absl::Status JoinWorld(int* argc, char*** argv, std::unique_ptr<MpiWorld>* world, std::vector<pb::Hello>* hellos) {
  ASSIGN_OR_RETURN(*world, MpiWorld::Init(argc, argv));
  const pb::Hello mine = MakeHello(pb::Hello::ROLE_COORDINATOR, {});
  ASSIGN_OR_RETURN(const std::vector<std::string> all, (*world)->AllGather(mine.SerializeAsString(), kHelloDeadline));
  ASSIGN_OR_RETURN(*hellos, ParseHellos(all));
  absl::Status checked = CheckWorld(*hellos);
  if (checked.ok() || hellos->size() > 1) return checked;
  return absl::Status(checked.code(), absl::StrCat(checked.message(), "; where nobody starts it as a rank, unset ",
                                                   absl::StrJoin(WorldVariables(), " "),
                                                   ", which another program left, and it starts the ranks itself"));
}

absl::Status RunEngineIn(MpiWorld* world, const std::vector<pb::Hello>& hellos, EngineChannel* front) {
  const std::unique_ptr<Endpoint> endpoint = world->MakeEndpoint();
  return RunEngine(endpoint.get(), hellos, front);
}

bool FrontIsGone(int descriptor, int wait_ms) {
  pollfd watched{.fd = descriptor, .events = POLLRDHUP, .revents = 0};
  return poll(&watched, 1, wait_ms) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

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
      if (FrontIsGone(descriptor, /*wait_ms=*/20)) {
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
  EngineVerb()
      : Verb("engine", "rank 0 of a launched job (started by the other verbs)",
             "mpirun -n 1 coordinator engine --connect SOCKET : -n 2 stage_worker") {}
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
      status = JoinWorld(&argc, &argv, &world, &hellos);
    }
    if (status.ok()) {
      status = RunEngineIn(world.get(), hellos, &front);
    } else {
      ReportFailure(status, &front);
    }
    if (status.ok()) return status;  // the world ends with MPI_Finalize
    LogVerbose(absl::StrCat("engine: ", status.message()));
    if (FrontIsGone(front.descriptor(), /*wait_ms=*/0)) RemovePrivateDirectories(directories_);
    if (world == nullptr) return WithExitCode(status, ExitCode::kLaunch);
    world->Abort(static_cast<int>(ExitCode::kLaunch));
  }

 private:
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

int RunInWorld(int* argc, char*** argv, const std::function<int(int descriptor)>& verb) {
  SignalWatch::NoteDrain();  // a launcher's user may ask for it while the ranks still come up
  std::unique_ptr<MpiWorld> world;
  std::vector<pb::Hello> hellos;
  if (absl::Status joined = JoinWorld(argc, argv, &world, &hellos); !joined.ok()) {
    const int code = static_cast<int>(ExitCode::kLaunch);
    if (world == nullptr) {
      LogError(joined.message());
      return code;
    }
    // Every rank finds the same; rank 0 says it and ends the job. The others give it a moment.
    if (world->rank() != 0) absl::SleepFor(absl::Seconds(5));
    LogError(joined.message());
    world->Abort(code);
  }
  int ends[2];
  int front_again = -1;  // the front's end once more
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 ||
      (front_again = fcntl(ends[0], F_DUPFD_CLOEXEC, 0)) < 0) {
    LogError(absl::StrCat("cannot make a socket to the engine: ", std::strerror(errno)));
    world->Abort(static_cast<int>(ExitCode::kLaunch));
  }
  int exit_code = 0;
  std::thread front([&verb, &exit_code, descriptor = ends[0], front_again] {
    exit_code = verb(descriptor);
    // Also a verb that failed before it spoke to the engine tells it that there is no more to come.
    shutdown(front_again, SHUT_RDWR);
    close(front_again);
  });
  absl::Status engine;
  {
    EngineChannel channel(ends[1]);
    engine = RunEngineIn(world.get(), hellos, &channel);
  }  // the channel closes: a front that still waits learns that the engine is gone
  front.join();
  if (engine.ok()) return exit_code;  // MPI_Finalize with `world`
  LogVerbose(absl::StrCat("engine: ", engine.message()));
  // A launcher that is being terminated drops a rank's last output if the rank ends before it is read.
  if (SignalWatch::Get().terminated()) absl::SleepFor(absl::Milliseconds(500));
  // MPI ends a job with codes of 1 to 125 only.
  world->Abort(std::clamp(exit_code == 0 ? static_cast<int>(ExitCode::kLaunch) : exit_code, 1, 125));
}

std::unique_ptr<Verb> MakeEngineVerb() { return std::make_unique<EngineVerb>(); }

}  // namespace stagecoach
