#ifndef STAGECOACH_COORDINATOR_CLI_SWEEP_PREDICTION_H_
#define STAGECOACH_COORDINATOR_CLI_SWEEP_PREDICTION_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/emulated_link.h"
#include "common/model/model_description.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/bench/sweep_point.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/plan_places.h"
#include "coordinator/launch/launch_options.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/plan/host_profile.h"

namespace stagecoach {

// Adds an emulated link behind every link of the profile.
void AddEmulatedLink(const EmulatedLink& emulated, HostProfile* profile);

// What a point's record says of a plan, but for where its facts come from.
SweepPrediction PredictionOf(const ClusterPlan& plan);

// What the planner expects of a point: `options` and `launch` are those of its job, `requests` those of its load, whose
// mean lengths it reckons with; layers are split as in the job. An open loop is taken for a closed one of max_num_seqs,
// which gives the most that the pipeline can carry, and no more comes out than if the last one to arrive were alone. Where a profile has fewer slots
// than the point has stages, its hosts are taken to have more. Errors are those of FindPlaces and PlanCluster: there is
// no prediction then.
absl::StatusOr<SweepPrediction> PredictPoint(const SweepConfig& point, const std::vector<ArrivingRequest>& requests,
                                             ClusterOptions options, const PlaceSources& sources,
                                             const LaunchOptions& launch,
                                             const std::shared_ptr<const ModelDescription>& model);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_SWEEP_PREDICTION_H_
