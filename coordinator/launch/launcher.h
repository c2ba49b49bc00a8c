#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_H_

// One run of the launcher (mpirun or srun), from its private directories to the last process of its session.
//
//   front ── fork ──> guard (leader of a session of its own, reaper of its orphans) ── fork, exec ──> mpirun ──> ranks
//
// The guard is a copy of the front that only waits: for the launcher, whose exit code it takes over, and for the end of
// a socket that the front holds open. When the front closes it, or dies in whatever way, the guard kills every
// process of the session on this host and removes the directories. If somebody kills the guard, the front does the same
// in its place. Other hosts are cleared of what the job left there by the front (host_pool.h), or, when that died, by
// the guard; so is this host of ranks that are not of the session.

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
#include "coordinator/launch/process_group.h"

namespace stagecoach {

// Not thread-safe.
class Launcher {
 public:
  // Makes directories, socket, pipes and processes. Errors are the system's: kFailedPrecondition, kInternal,
  // kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Launcher>> Start(const LaunchPlan& plan, const Placement& placement);

  // Kills what is left on this host and removes the directories.
  ~Launcher();
  Launcher(const Launcher&) = delete;

  // What every process of this launch has on its command line or in its environment (LaunchPlaces::name).
  const std::string& name() const { return name_; }
  const Placement& placement() const { return placement_; }

  // The engine's connection, once it is there. The caller owns the descriptor.
  std::optional<int> Accept();

  // For poll(); readable when there is something to Accept, to read, or when the launcher has ended. -1: none (any
  // more).
  int listener() const { return listener_; }
  int output_descriptor() const { return output_; }
  int end_descriptor() const { return guard_handle_; }

  // Reads what was printed and shows it on stderr (nothing with LogLevel::kQuiet, the launcher's own words only
  // with kVerbose).
  void RelayOutput();
  const LauncherOutput& output() const { return printed_; }

  // The launcher's exit code once it has ended (128 + signal when a signal ended it).
  std::optional<int> ExitCode() const;

  // What lives on this host.
  std::vector<SessionProcess> Processes() const { return ListSession(guard_); }
  const std::vector<std::string>& directories() const { return directories_; }

 private:
  Launcher(const Placement& placement, std::unique_ptr<LauncherWords> words)
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
