#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_PLAN_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_PLAN_H_

// What is decided once for all launches of a session: programs, hosts, and which launcher starts the ranks.
// Thread-safe.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/launch/launch_options.h"
#include "coordinator/launch/launcher_backend.h"
#include "coordinator/launch/placement.h"

namespace stagecoach {

// All paths absolute.
struct LaunchPlan {
  std::string launcher;  // the program
  std::shared_ptr<const LauncherBackend> backend;
  JobPrograms programs;
  std::vector<LaunchHost> hosts;  // in order; this one alone when none were given
  int stages = 1;                 // that were asked for
  bool AllHere() const;           // no other host can take part, so that there is none to ask
};

// The stage program: as given, or found beside this one. kNotFound with what was tried.
absl::StatusOr<std::string> FindStageWorker(const LaunchOptions& options);

// The hosts that the options name, else those of an allocation, else this one, and how many stages they are to run.
// Errors are those of ResolveLaunch for these.
struct LaunchHosts {
  std::vector<LaunchHost> hosts;
  int stages = 1;
};
absl::StatusOr<LaunchHosts> ResolveHosts(const LaunchOptions& options);

// Looks everything up. kNotFound: no launcher, stage_worker or host file, with what was tried. kInvalidArgument: bad
// launcher_args, hosts given twice, a bad file or list of them, more stages than there are slots or than a job may
// have. kFailedPrecondition: inside a Slurm allocation that this host is not part of.
//
// The launcher is the one that was asked for, otherwise srun inside a Slurm allocation where it offers PMIx, else
// mpirun. Without hosts, those of an allocation are taken (allocation.h).
absl::StatusOr<LaunchPlan> ResolveLaunch(const LaunchOptions& options);

// The exact launch line, for --dry-run: one shell-quoted line, with the variables that it needs in front.
absl::StatusOr<std::string> DescribeLaunch(const LaunchOptions& options);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_PLAN_H_
