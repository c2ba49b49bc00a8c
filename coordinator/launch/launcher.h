#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_H_

// One run of the launcher (mpirun or srun), from its private directories to the last process of its session.
//
//   front ── fork ──> guard (leader of a session of its own, reaper of its orphans) ── fork, exec ──> mpirun ──> ranks
//
// The guard is a copy of the front that waits for the launcher, whose exit code becomes its own, and for the end of a
// socket that the front holds open. When that closes it kills every process of the session on this host and removes the
// directories. If the guard is killed, the front does that. Other hosts, and ranks here outside the session, are
// cleared by the front (host_pool.h), or by the guard if the front died.

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/launch/launcher_output.h"
#include "coordinator/launch/placement.h"

namespace stagecoach {

// --- the processes of a launch ---------------------------------------------------------------------------------------

// A process of a Unix session (setsid), from /proc. A launch has its own session, which finds all that it started on
// this host, whatever the parent is by now. Callers must not have waited for the session's leader, or its id is free.
struct SessionProcess {
  pid_t pid = 0;
  char state = '?';  // of /proc/<pid>/stat: 'T' is stopped
  int rank = -1;     // in MPI_COMM_WORLD, from OMPI_COMM_WORLD_RANK; -1: none
};

// All live processes (no zombies) of the session, by ascending pid.
std::vector<SessionProcess> ListSession(pid_t session);

// SIGKILLs all processes of the session except `except` (0: none) until they are gone, for at most two seconds. `reap`:
// also waits for the caller's children; only for a process whose children all belong to the session.
void KillSession(pid_t session, pid_t except, bool reap);

// --- the launch ------------------------------------------------------------------------------------------------------

// Not thread-safe.
class Launcher {
 public:
  // Makes directories, socket, pipes and processes. System errors: kFailedPrecondition, kInternal, kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Launcher>> Start(const LaunchPlan& plan, const Placement& placement);

  ~Launcher();  // kills what is left on this host and removes the directories
  Launcher(const Launcher&) = delete;

  const std::string& name() const { return name_; }  // LaunchPlaces::name
  const Placement& placement() const { return placement_; }

  // The engine's connection, once it is there. The caller owns the descriptor.
  std::optional<int> Accept();

  // For poll(): something to Accept, something to read, the launcher's end. -1: none.
  int listener() const { return listener_; }
  int output_descriptor() const { return output_; }
  int end_descriptor() const { return guard_handle_; }

  // Relays the output to stderr: nothing with LogLevel::kQuiet, the launcher's own lines only with kVerbose.
  void RelayOutput();
  const LauncherOutput& output() const { return printed_; }

  std::optional<int> ExitCode() const;  // once the launcher has ended; 128 + signal when a signal ended it

  std::vector<SessionProcess> Processes() const { return ListSession(guard_); }  // on this host
  const std::vector<std::string>& directories() const { return directories_; }

 private:
  Launcher(const Placement& placement, std::unique_ptr<LauncherParser> words)
      : placement_(placement), printed_(std::move(words)) {}
  absl::Status MakePlaces(LaunchPlaces* places);
  absl::Status Spawn(const LaunchPlan& plan, const LaunchPlaces& places);
  void Kill();

  const Placement placement_;
  std::string name_;
  std::vector<std::string> clear_here_;  // argv that ends what is not of the session; empty: everything is
  std::vector<std::string> directories_;
  int listener_ = -1;
  int output_ = -1;        // read end of the launcher's stdout and stderr
  int life_ = -1;          // our end of a socket; the guard acts when it closes
  pid_t guard_ = -1;       // also the session's id
  int guard_handle_ = -1;  // pidfd; -1 where the kernel gives none
  LauncherOutput printed_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_H_
