#ifndef STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_POINTS_H_
#define STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_POINTS_H_

// What `sweep` and `simulate` share of their points: predictions, origin, file, and the comparison of policies.

#include <memory>
#include <optional>
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

// The prediction of a point's record, without its source.
SweepPrediction PredictionOf(const ClusterPlan& plan);

// The planner's prediction of a point. `options` and `launch` are those of its job, `requests` its load; layers are
// split as in the job. An open loop is planned as a closed one of max_num_seqs, but yields at most what arrives,
// counted until the last request would end if it ran alone. Errors: those of FindPlaces and PlanCluster;
// kFailedPrecondition: the sources lack a host that has stages (hosts are compared by their names up to the first dot,
// then by their addresses). Stages fill the slots of the sources' hosts in their order where the launch names
// addresses, or with `own_probe`, which says that the sources were measured on the launch's hosts; if they have too few
// slots, these hosts get more.
absl::StatusOr<SweepPrediction> PredictPoint(const SweepConfig& point, const std::vector<ArrivingRequest>& requests,
                                             ClusterOptions options, const PlaceSources& sources, bool own_probe,
                                             const LaunchOptions& launch,
                                             const std::shared_ptr<const ModelDescription>& model);

// Whether hosts without limits of memory could run this job: this host with its instruction sets, others with those
// that `facts` names, else with any. Errors: those of PlanJob.
absl::Status CheckCanRun(const LaunchOptions& launch, const std::optional<HostProfile>& facts,
                         const ModelDescription& model);

// The hosts of a launch as a point's record has them. Errors: those of ResolveHosts, as usage errors.
absl::StatusOr<std::string> HostsText(const LaunchOptions& launch);

// The hosts of stages that ran, as HostsText has them, if one of them is a host of the launch whose turn another one
// had; else empty. Hosts that give themselves other names than the launch does are not compared.
std::string OtherHostsThatRan(const LaunchOptions& launch, const std::vector<SweepStage>& stages);

// Gives the timeline that a point's job left in `written` the name that is the record's `trace`, and returns that.
// Empty: there is none, or it has more than kMostSweepTraceBytes; it is deleted then, and `name`, the point's, logged.
std::string KeepTrace(const std::string& written, const std::string& directory, const SweepConfig& config,
                      const std::string& name);

// How a sweep of `all` points ends of which so many failed, and so many ran on `other_hosts` than it asked for.
absl::Status EndOfSweep(int64_t all, int64_t failed, int64_t other_hosts);

// Of a point: this program and the file of the model.
void SetProgramAndModel(const ModelDescription& model, SweepConfig* config);

// This host and the model.
SweepOrigin CurrentOrigin(const ModelDescription& model);

// Opens the points file of -o's directory, which is created if it is missing. ExitCode::kInputFile.
absl::StatusOr<std::unique_ptr<SweepFile>> OpenSweepFile(const std::string& directory);

// The policies of comma lists, in order, without duplicates; "all" means every one. `none`: the result of no list.
// kInvalidArgument: an unknown name, with the choices.
absl::StatusOr<std::vector<Policy>> ParsePolicies(const std::vector<std::string>& given, Policy none);

// A table with a row per policy, in order of appearance: the median of its points. The points succeeded and differ only
// in policy and repetition. A star marks the best value of a column. Includes the share of good requests if the points
// have SLO bounds.
std::string PolicyTable(const std::vector<SweepPoint>& points);

// Such a table, under a line that names it, for each load and job with points of at least two policies. Failed points
// are skipped.
std::string PolicyTables(const std::vector<SweepPoint>& points);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_POINTS_H_
