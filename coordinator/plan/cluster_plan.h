#ifndef STAGECOACH_COORDINATOR_PLAN_CLUSTER_PLAN_H_
#define STAGECOACH_COORDINATOR_PLAN_CLUSTER_PLAN_H_

// How a model would run on a cluster, before it does: the job that the engine would make of these hosts (job_plan.h),
// with its layers split by what each stage takes for the load in question, and how fast that will be (prediction.h).
// Pure.

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

// What the predictions rest on: the pipeline with its layers given out, and what its steps cost.
struct PlannedPipeline {
  ModelParts parts;
  std::optional<PartWork> measured_layer;  // that the profile's steps are of
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

// The job of hosts that introduced themselves and of which nothing was measured: its layers are split as PlanCluster
// would split them for the same hosts with assumed speeds (host_profile.h), by their cores and the instruction sets
// that the job takes, and requests of the default load, as far as they fit the context. `hellos` as for PlanJob, whose
// errors these are.
absl::StatusOr<JobPlan> PlanJobUnmeasured(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                          std::shared_ptr<const ModelDescription> model, const JobEpoch& epoch);

// Gives the question's job, unless it has a split already, the layers of a run without a plan: PlanJobUnmeasured's. So
// what is predicted is what will run, though the profile may know of a better split.
absl::Status SplitAsRun(ClusterQuestion* question);

// Whether the profile's step times are of this very model.
bool ProfileIsOf(const HostProfile& profile, const ModelDescription& model);

// The stages as they would introduce themselves. A host whose instruction sets are not known has the one that is
// wanted.
std::vector<pb::Hello> HellosOf(const HostProfile& profile, const std::vector<int>& stage_hosts,
                                pb::InstructionSet wanted = pb::INSTRUCTION_SET_UNSPECIFIED);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_CLUSTER_PLAN_H_
