#include "coordinator/cli/rank_zero.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/wire/handshake.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/signals.h"
#include "coordinator/job/run_engine.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kHelloDeadline = absl::Seconds(60);

// MPI ends a job with codes of 1 to 125 only.
int AbortCode(int exit_code) { return std::clamp(exit_code, 1, 125); }

}  // namespace

absl::Status RankZero::Join(int* argc, char*** argv, std::unique_ptr<MpiWorld>* world, std::vector<pb::Hello>* hellos) {
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

absl::Status RankZero::Run(MpiWorld* world, const std::vector<pb::Hello>& hellos, EngineChannel* front) {
  const std::unique_ptr<Endpoint> endpoint = world->MakeEndpoint();
  return RunEngine(endpoint.get(), hellos, front);
}

int RunInWorld(int* argc, char*** argv, const std::function<int(int descriptor)>& verb) {
  SignalWatch::NoteDrain();  // a launcher's user may ask for it while the ranks still come up
  std::unique_ptr<MpiWorld> world;
  std::vector<pb::Hello> hellos;
  if (absl::Status joined = RankZero::Join(argc, argv, &world, &hellos); !joined.ok()) {
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
    engine = RankZero::Run(world.get(), hellos, &channel);
  }  // the channel closes: a front that still waits learns that the engine is gone
  front.join();
  if (engine.ok()) return exit_code;  // MPI_Finalize with `world`
  LogVerbose(absl::StrCat("engine: ", engine.message()));
  // A launcher that is told to end drops what a rank printed last, if that rank ends before it was read.
  if (SignalWatch::Get().terminated()) absl::SleepFor(absl::Milliseconds(500));
  world->Abort(AbortCode(exit_code == 0 ? static_cast<int>(ExitCode::kLaunch) : exit_code));
}

}  // namespace stagecoach
