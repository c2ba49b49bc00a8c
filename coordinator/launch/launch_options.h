#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_OPTIONS_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_OPTIONS_H_

// What a front decides about the jobs that it launches.

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/engine.pb.h"

namespace stagecoach {

struct LaunchOptions {
  pb::ConfigureJob job;                // everything the engine is told
  int stages = 0;                      // 0: the slots of the hosts, else 1
  std::string hostfile;                // Open MPI's format; without it and `hosts` all stages are on this host
  std::string hosts;                   // the same as a list: "node1:2,node2"
  std::string mpirun_args;             // split as a shell would, put before the programs
  std::string coordinator_path;        // this program; empty: found out
  std::string stage_worker_path;       // empty: beside the coordinator, then ../stage_worker/
  std::string mpirun_path = "mpirun";  // a name is sought in PATH
  // From launch to the engine's first word; loading is bounded by the job's stage_timeout_s without progress.
  absl::Duration startup_timeout = absl::Seconds(60);
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
