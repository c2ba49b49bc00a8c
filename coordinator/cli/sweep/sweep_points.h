#ifndef STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_POINTS_H_
#define STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_POINTS_H_

// What `sweep` and `simulate` share of the points they record: what is predicted of one, where it comes from, their
// file, and policies side by side.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/emulated_link.h"
#include "common/job/job_choices.h"
#include "common/model/model_description.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/bench/sweep_point.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/plan/host_profile.h"

namespace stagecoach {

// Adds an emulated link behind every link of the profile.
void AddEmulatedLink(const EmulatedLink& emulated, HostProfile* profile);

// Mean lengths, which the planner reckons with.
PlanLoad MeanLoad(const std::vector<ArrivingRequest>& requests);

// What a point's record says of a plan, but for where its facts come from.
SweepPrediction PredictionOf(const ClusterPlan& plan);

// What the planner expects of a point: `options` and `launch` are those of its job, `requests` those of its load;
// layers are split as in the job. An open loop is taken for a closed one of max_num_seqs, which gives the most that the
// pipeline can carry, and no more comes out than if the last one to arrive were alone. Where a profile has fewer slots
// than the point has stages, its hosts are taken to have more. Errors are those of FindPlaces and PlanCluster: there is
// no prediction then.
absl::StatusOr<SweepPrediction> PredictPoint(const SweepConfig& point, const std::vector<ArrivingRequest>& requests,
                                             ClusterOptions options, const PlaceSources& sources,
                                             const LaunchOptions& launch,
                                             const std::shared_ptr<const ModelDescription>& model);

// This program, this host and the model.
SweepOrigin OriginHere(const ModelDescription& model);

// The file of a directory of -o, which is made where it is missing. ExitCode::kInputFile.
absl::StatusOr<std::unique_ptr<SweepFile>> OpenSweepFile(const std::string& directory);

// The policies of comma lists, in their order, each once; "all" is every one that there is. `none` where none is given.
// kInvalidArgument: an unknown name, with the choices.
absl::StatusOr<std::vector<Policy>> ParsePolicies(const std::vector<std::string>& given, Policy none);

// A table with a row for each policy, in the order in which they come: the median of its points, which succeeded and
// have one load on one job but for the policy (and the repetition). The best of a column has a star, where one is
// better. With the share of good requests where the points have bounds for them.
std::string PolicyTable(const std::vector<SweepPoint>& points);

// Such a table for each load and job that has points of two policies at least, under a line that names it. Points that
// failed are left out.
std::string PolicyTables(const std::vector<SweepPoint>& points);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_POINTS_H_
