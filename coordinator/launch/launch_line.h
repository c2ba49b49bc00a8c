#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_LINE_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_LINE_H_

// The command line of mpirun (Open MPI 4.1) for one job. Thread-safe.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/launch/launch_options.h"
#include "coordinator/launch/placement.h"

namespace stagecoach {

// What is the same for every launch of a session; all paths absolute.
struct LaunchPlan {
  std::string mpirun;
  std::string coordinator;
  std::string stage_worker;
  Placement placement;
  std::string networks;                  // towards the other hosts, for the TCP transports; empty: Open MPI chooses
  std::vector<std::string> mpirun_args;  // the user's
};

// The places of one launch.
struct LaunchPlaces {
  std::string directory;         // private; the socket and, with all stages here, MPI's session files
  std::string shared_directory;  // private, in shared memory: MPI's segments
  std::string socket() const { return directory + "/engine.sock"; }
};

// The stage program: as given, or found beside this one. kNotFound with what was tried.
absl::StatusOr<std::string> FindStageWorker(const LaunchOptions& options);

// Looks everything up. kNotFound: no mpirun, stage_worker or host file, with what was tried. kInvalidArgument: bad
// mpirun_args; also what PlaceStages says.
absl::StatusOr<LaunchPlan> ResolveLaunch(const LaunchOptions& options);

// argv of mpirun. A setting the user's own arguments make (--mca NAME, --bind-to) replaces ours.
std::vector<std::string> LaunchArguments(const LaunchPlan& plan, const LaunchPlaces& places);

// Splits as a shell would: blanks, '...', "..." and backslash. kInvalidArgument for an open quote.
absl::StatusOr<std::vector<std::string>> SplitShellWords(absl::string_view text);
// Joins with quotes where a shell needs them.
std::string JoinShellWords(const std::vector<std::string>& words);

// The exact launch line, for --dry-run: one shell-quoted line.
absl::StatusOr<std::string> DescribeLaunch(const LaunchOptions& options);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_LINE_H_
