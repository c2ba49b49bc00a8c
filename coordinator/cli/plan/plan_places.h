#ifndef STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_PLACES_H_
#define STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_PLACES_H_

// The hosts that a plan puts stages on, and what is known of them.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/plan/host_profile.h"

namespace stagecoach {

// Where the stages are, and on what this rests.
struct PlanPlaces {
  HostProfile profile;
  std::vector<int> stage_hosts;          // [stages] indices into profile.hosts
  int draft_host = 0;                    // likewise; means nothing without a draft
  bool here = false;                     // all of them on this host, which needs no name
  std::vector<int> unseen;               // hosts whose cores and memory are assumed
  std::vector<std::string> assumptions;  // facts that are neither measured nor described

  bool CoresKnown(int host) const { return std::find(unseen.begin(), unseen.end(), host) == unseen.end(); }
};

// The places of a job: the slots of the hosts in one of the files, else of the hosts that the options name, whose
// speeds are assumed. Its draft is on the host that these name for it, else where the coordinator is. Failures carry
// their exit code.
absl::StatusOr<PlanPlaces> FindPlaces(const ClusterOptions& options, const PlaceSources& sources,
                                      const LaunchOptions& launch);

// The planner's question about a model on these places, without its load.
ClusterQuestion QuestionOf(std::shared_ptr<const ModelDescription> model, const PlanPlaces& places,
                           const LaunchOptions& launch);

// The error of a refused plan: ExitCode::kLaunch if the hosts have no room.
absl::Status PlanFailure(const absl::Status& status);

// Launches a job that measures hosts and links, or joins the one that this process is part of (RunProbeJob). Measures
// speeds, and the steps of `model`, which is that of `options.job`; nullptr: none. Errors carry their exit code.
// kCancelled: a signal came. Hosts that cannot be reached or have another model file are named.
absl::StatusOr<HostProfile> MeasureProfile(LaunchOptions options, int engine_descriptor,
                                           const std::shared_ptr<const ModelDescription>& model, bool show_progress);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_PLACES_H_
