#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_OPTIONS_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_OPTIONS_H_

// What a front decides about the jobs that it launches.

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/value_range.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Which program starts the ranks; kAuto: launch_plan.h says which.
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
  // How long another host may take to answer before a launch, and to end what an earlier job left on it. One that takes
  // longer is left out of that launch.
  absl::Duration host_timeout = absl::Seconds(30);
  // The engine speaks at least once a second; after so long without a word it is lost.
  absl::Duration silence_timeout = absl::Seconds(8);
  // A job is given up after so many losses in a row without a new token when, too, so long has passed since the last
  // token or new loading progress. One that never was ready has only the count.
  int max_losses = 3;
  absl::Duration relaunch_timeout = absl::Minutes(10);
  // What a user reads for a message that names fields in backquotes, where losses are logged; nullptr: the message.
  std::string (*wording)(absl::string_view) = nullptr;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_OPTIONS_H_
