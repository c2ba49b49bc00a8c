#ifndef STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_PLACES_H_
#define STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_PLACES_H_

// Which hosts a plan puts stages on, and what is known of them.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/launch/launch_options.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/plan/host_profile.h"

namespace stagecoach {

// Where the stages are, and on what this rests.
struct PlanPlaces {
  HostProfile profile;
  std::vector<int> stage_hosts;          // [stages] indices into profile.hosts
  bool here = false;                     // all of them on this host, which needs no name
  std::vector<int> unseen;               // hosts whose cores and memory are assumed
  std::vector<std::string> assumptions;  // of what nobody measured or described; empty: none

  bool CoresKnown(int host) const { return std::find(unseen.begin(), unseen.end(), host) == unseen.end(); }
};

// The places of a job: the slots of the hosts that one of the files describes, else those that the options name, for
// which facts are assumed. Failures carry their exit code.
absl::StatusOr<PlanPlaces> FindPlaces(const ClusterOptions& options, const PlaceSources& sources,
                                      const LaunchOptions& launch);

// What the planner is asked about a model on these places, but for the load.
ClusterQuestion QuestionOf(std::shared_ptr<const ModelDescription> model, const PlanPlaces& places,
                           const LaunchOptions& launch);

// What ends the program when the planner refuses: ExitCode::kLaunch where the hosts have no room.
absl::Status PlanFailure(const absl::Status& status);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_PLACES_H_
