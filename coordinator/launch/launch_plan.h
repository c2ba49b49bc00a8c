#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_PLAN_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_PLAN_H_

// What a front asks for (LaunchOptions), and a session's programs, hosts and launcher. Thread-safe.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/value_range.h"
#include "coordinator/launch/launcher_backend.h"
#include "coordinator/launch/placement.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Which program starts the ranks; kAuto: see ResolveLaunch.
enum class LauncherKind { kAuto, kMpirun, kSrun };
inline constexpr NamedValue<LauncherKind> kLauncherKinds[] = {
    {LauncherKind::kAuto, "auto"}, {LauncherKind::kMpirun, "mpirun"}, {LauncherKind::kSrun, "srun"}};

struct LaunchOptions {
  pb::ConfigureJob job;  // everything the engine is told
  int stages = 0;        // 0: the slots of the hosts, else 1
  std::string hostfile;  // host_file.h; without it and `hosts` all stages are on this host
  std::string hosts;     // the same as a list: "node1:2,node2"
  LauncherKind launcher = LauncherKind::kAuto;
  std::string launcher_args;           // the launcher's own, split as a shell would, put before the programs
  std::string rsh_agent;               // the program that logs in to another host; empty: Open MPI's setting, else ssh
  std::string coordinator_path;        // this program; empty: found out
  std::string stage_worker_path;       // empty: beside the coordinator, then ../stage_worker/
  std::string mpirun_path = "mpirun";  // these are sought in PATH when they are names
  std::string srun_path = "srun";
  // From launch to the engine's first word; loading is bounded by the job's stage_timeout_s without progress.
  absl::Duration startup_timeout = absl::Seconds(60);
  // For another host to answer before a launch and to end what an earlier job left; slower ones are left out.
  absl::Duration host_timeout = absl::Seconds(30);
  // The engine speaks at least once a second; after so long without a word it is lost.
  absl::Duration silence_timeout = absl::Seconds(8);
  // A job is given up after so many losses in a row without a new token, and so long without a token or new loading
  // progress. Before the first ready job only the count matters.
  int max_losses = 3;
  absl::Duration relaunch_timeout = absl::Minutes(10);
  // What a user reads for a message that names fields in backquotes, where losses are logged; nullptr: the message.
  std::string (*wording)(absl::string_view) = nullptr;
};

// All paths absolute.
struct LaunchPlan {
  std::string launcher;  // the program
  std::shared_ptr<const LauncherBackend> backend;
  JobPrograms programs;
  std::vector<LaunchHost> hosts;  // in order; this one alone when none were given; one of the draft only with one
  int stages = 1;                 // that were asked for
  Placement PlaceAll() const;     // as if every host could be used
  bool AllHere() const;           // no other host can take part, so that there is none to ask
};

// The stage program: as given, or found beside this one. kNotFound with what was tried.
absl::StatusOr<std::string> FindStageWorker(const LaunchOptions& options);

// The hosts that the options name, else those of an allocation, else this one, and how many stages they are to run.
// With a draft, one of them is the draft's: this one, where none is named for it. Errors are those of ResolveLaunch for
// these.
struct LaunchHosts {
  std::vector<LaunchHost> hosts;
  int stages = 1;
};
absl::StatusOr<LaunchHosts> ResolveHosts(const LaunchOptions& options);

// kNotFound: no launcher, stage_worker or host file, with what was tried. kInvalidArgument: bad launcher_args, hosts
// given twice, a bad file or list of them, more stages than slots or than a job may have. kFailedPrecondition: inside a
// Slurm allocation without this host. kAuto is srun inside a Slurm allocation where it offers PMIx, else mpirun.
// Without hosts, an allocation's are taken (host_file.h).
absl::StatusOr<LaunchPlan> ResolveLaunch(const LaunchOptions& options);

// The exact launch line, for --dry-run: one shell-quoted line, with the variables that it needs in front.
absl::StatusOr<std::string> DescribeLaunch(const LaunchOptions& options);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_PLAN_H_
