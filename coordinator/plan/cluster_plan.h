#ifndef STAGECOACH_COORDINATOR_PLAN_CLUSTER_PLAN_H_
#define STAGECOACH_COORDINATOR_PLAN_CLUSTER_PLAN_H_

// Plans a model on a cluster: the job that the engine would make of these hosts (job_plan.h), with layers split by the
// stages' times for a given load, and its predicted speed (prediction.h). Pure.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "coordinator/plan/host_profile.h"
#include "coordinator/plan/job_plan.h"
#include "coordinator/plan/prediction.h"
#include "coordinator/plan/stage_memory.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Requests of one shape, job.max_num_seqs() at once.
struct PlanLoad {
  int64_t prompt_tokens = 512;
  int64_t output_tokens = 128;

  // That an output token attends to, on average.
  double decode_context() const { return static_cast<double>(prompt_tokens) + static_cast<double>(output_tokens) / 2; }
};

struct ClusterQuestion {
  std::shared_ptr<const ModelDescription> model;
  HostProfile profile;
  std::vector<int> stage_hosts;  // [stages] indices into profile.hosts, each with speeds
  // As for the engine, but that a `prefill_chunk` or `micro_batches` of 0 asks for the best ones.
  pb::ConfigureJob job;
  PlanLoad load;
  double coordinator_us = kAssumedTurnUs, wake_us = kAssumedWakeUs;  // PipelineModel::turn_s and wake_s
};

// The basis of the predictions: the pipeline with its layers assigned, and the costs of its steps.
struct PlannedPipeline {
  ModelParts parts;
  std::optional<PartWork> measured_layer;  // that the profile's steps are of
  std::deque<HostFacts> hosts;             // [stages] with the rates of their instruction sets
  std::deque<StageCosts> costs;            // [stages]
  PipelineModel model;                     // of these costs
};

struct ClusterPlan {
  JobPlan job;                      // with its stages, pools and context
  std::vector<StageMemory> memory;  // [stages]
  std::vector<double> stage_share;  // [stages] of the slowest stage's time for the load; 1: that one
  int64_t sequences = 0;            // that run at once: what is asked for, as far as the KV pools hold them
  bool measured = false;            // whether every stage's time rests on measured steps of this very model
  DecodePrediction decode;
  PrefillPrediction prefill;
  double output_tokens_per_s = 0;                   // of the whole load, prompts included
  std::shared_ptr<const PlannedPipeline> pipeline;  // while the question's profile is there

  int stages() const { return static_cast<int>(job.stages.size()); }
};

// kInvalidArgument: a host without speeds or a link that is not known; what PlanJob and ValidateQuestion say.
// kResourceExhausted: it does not fit, or its KV cache does not hold one request.
absl::StatusOr<ClusterPlan> PlanCluster(const ClusterQuestion& question);

// The job of hosts that were not measured. Layers are split as PlanCluster would for the same hosts with assumed speeds
// (host_profile.h), by their cores and the job's instruction sets, for requests of the default load as far as they fit
// the context. `hellos` and errors as for PlanJob.
absl::StatusOr<JobPlan> PlanJobUnmeasured(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                          std::shared_ptr<const ModelDescription> model, const JobEpoch& epoch);

// What a token of a lone sequence takes, from the coordinator and back, where the question's one host runs all layers:
// kInvalidArgument as of PlanCluster. The load may be longer than the model's context.
absl::StatusOr<double> LoneTokenSeconds(const ClusterQuestion& question);

// Gives the question's job the layer split of a run without a plan (PlanJobUnmeasured), unless it has one. The
// prediction is then of what will run, even if the profile suggests a better split.
absl::Status UseDefaultSplit(ClusterQuestion* question);

// Whether the profile's step times are of this very model.
bool ProfileIsOf(const HostProfile& profile, const ModelDescription& model);

// The stages as they would introduce themselves. A host of unknown instruction sets has the one that the job asks for.
std::vector<pb::Hello> HellosOf(const ClusterQuestion& question);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_CLUSTER_PLAN_H_
