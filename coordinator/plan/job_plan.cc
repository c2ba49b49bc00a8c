#include "coordinator/plan/job_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"
#include "common/step/sampling_limits.h"
#include "common/step/window_blocks.h"
#include "common/wire/bit_class.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/plan/cpu_plan.h"
#include "coordinator/plan/layer_split.h"
#include "coordinator/plan/pool_plan.h"
#include "coordinator/plan/saved_plan.h"

namespace stagecoach {
namespace {

constexpr int64_t kMinOpenTokens = 16384;

absl::Status CheckTogether(const JobSettings& settings, const ModelDescription& model) {
  if (settings.slo_itl_s > 0 && settings.policy != Policy::kThrottled) {
    return absl::InvalidArgumentError(absl::StrCat("`slo_itl_s` is what the throttled `policy` keeps to, but that is ",
                                                   PolicyName(settings.policy),
                                                   "; give throttled, or leave `slo_itl_s` out"));
  }
  if (settings.context > model.hyper.context) {
    return absl::InvalidArgumentError(absl::StrCat("`context` is ", settings.context,
                                                   ", but the model was trained for ", model.hyper.context,
                                                   " tokens; give at most that"));
  }
  if (settings.weights == WeightSource::kStream && !model.file->has_files()) {
    return absl::InvalidArgumentError(absl::StrCat("`weights` is stream, but '", model.file->path(),
                                                   "' has no file to send: every stage makes it itself; leave "
                                                   "`weights` out"));
  }
  if (settings.weights == WeightSource::kFile && !settings.weights_cache.empty()) {
    return absl::InvalidArgumentError("`weights_cache` is for streamed weights; give `weights` stream too");
  }
  return absl::OkStatus();
}

void SetContext(int64_t context, JobPlan* plan) {
  plan->context = context;
  plan->max_open_tokens = std::max(context, kMinOpenTokens);
  for (pb::StageAssignment& stage : plan->stages) {
    stage.set_context(context);
    stage.set_max_open_tokens(plan->max_open_tokens);
  }
}

// Sizes the pools of the stages, whose assignments are complete but for them, with the largest context; sets both.
absl::Status SizePool(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos, const ModelDescription& model,
                      JobPlan* plan) {
  const int64_t wanted_context = plan->context;
  ASSIGN_OR_RETURN(const int32_t blocks, PlanBlocks(job, hellos, model, plan->stages, wanted_context));
  plan->group_blocks = PoolSizes(job, model.hyper).Blocks(static_cast<uint64_t>(blocks));
  const int64_t pool_tokens = int64_t{blocks} * job.block_tokens();
  if (pool_tokens < job.min_kv_tokens()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the KV cache has room for ", pool_tokens, " tokens (", blocks, " blocks of ", job.block_tokens(),
                     "), what an earlier job accepted needs ", job.min_kv_tokens(),
                     "; end other programs on the stages' hosts, or give `kv_cache_bytes`"));
  }
  if (job.context() == 0) SetContext(std::min(wanted_context, pool_tokens), plan);
  for (pb::StageAssignment& stage : plan->stages) {
    stage.mutable_group_blocks()->Add(plan->group_blocks.begin(), plan->group_blocks.end());
  }
  return absl::OkStatus();
}

void FillCommon(const pb::ConfigureJob& job, const ModelDescription& model, const JobEpoch& epoch, int32_t in_flight,
                pb::StageAssignment* stage) {
  stage->set_run_id(epoch.run_id);
  stage->set_epoch(epoch.epoch);
  stage->set_q2_layout(job.q2_layout());
  stage->set_allow_damaged(job.allow_damaged());
  if (job.weights() == pb::WEIGHT_SOURCE_STREAM) {
    stage->set_weights(job.weights());
    for (const uint64_t bytes : model.file->opened_bytes()) stage->add_opened_bytes(bytes);
    // A stage that opens only what it was sent cannot look at any tensor's blocks to find it.
    stage->set_q2_layout(Q2LayoutName(model.file->q2_layout()));
    stage->set_weights_cache(job.weights_cache());
    stage->set_weights_timeout_us(static_cast<uint64_t>(job.stage_timeout_s() * 1e6));
  }
  *stage->mutable_fingerprints() = ToProto(model.file->fingerprints());
  stage->set_block_tokens(job.block_tokens());
  const std::vector<int64_t> windows = ReleaseWindows(model.hyper);
  stage->mutable_group_windows()->Add(windows.begin(), windows.end());
  stage->set_kv_type(job.kv_type());
  stage->set_wire_type(job.wire_type());
  stage->set_max_rows(job.max_num_batched_tokens());
  stage->set_max_slices(job.max_num_seqs());
  stage->set_max_prompt_logprobs(job.max_prompt_logprobs());
  stage->set_in_flight(in_flight);
  stage->set_stage_delay_us(job.stage_delay_us());
  if (job.layer_checksums()) stage->set_checksum_layers(static_cast<int32_t>(model.hyper.layer_count()));
  if (job.has_emulated_link()) *stage->mutable_emulated_link() = job.emulated_link();
}

}  // namespace

size_t JobPlan::full_group() const {
  size_t group = 0;
  while (WindowOf(group_windows, group) > 0) ++group;
  return group;
}

absl::StatusOr<JobPlan> PlanJob(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                const ModelDescription& model, const JobEpoch& epoch, const PartitionInput* costs) {
  ASSIGN_OR_RETURN(const JobSettings settings, JobSettingsOf(job));
  RETURN_IF_ERROR(CheckJobField({"max_prompt_logprobs", kPromptLogprobsRange}, job.max_prompt_logprobs()));
  RETURN_IF_ERROR(CheckTogether(settings, model));
  const int stages = static_cast<int>(hellos.size());
  RETURN_IF_ERROR(CheckJobField(JobLimits::kStages, stages));
  if (job.stages() > 0 && job.stages() != stages) {
    return absl::InvalidArgumentError(absl::StrCat("`stages` asks for ", job.stages(), " stages, but this world has ",
                                                   stages,
                                                   "; start as many stage_workers as `stages` says, or leave it out"));
  }
  // A relaunch, which knows the file's fingerprints, may be over other hosts than those of the plan.
  if (job.has_planned_for() && job.fingerprints_size() == 0) {
    RETURN_IF_ERROR(CheckPlanned(job.planned_for(), hellos, model));
  }
  ASSIGN_OR_RETURN(const StageIsas isas, ChooseIsas(hellos, WantedIsaOf(job)));
  const std::vector<StageCpus> cpus = PlanCpus(hellos, job.threads(), job.cpu_bind() != pb::CPU_BIND_NONE);
  JobPlan plan;
  plan.bf16_dot = isas.bf16_dot;
  plan.group_windows = ReleaseWindows(model.hyper);
  plan.micro_batches = job.micro_batches() > 0 ? job.micro_batches() : stages;
  // One group more than stages hides the way from the last stage back to the first.
  const auto most = static_cast<int32_t>(std::min<int64_t>(stages + 1, JobLimits::kDecodeGroups.range.max));
  plan.most_groups = job.micro_batches() > 0 ? job.micro_batches() : std::max(most, job.decode_groups());
  if (job.decode_groups() > plan.most_groups) {
    return absl::InvalidArgumentError(absl::StrCat("`decode_groups` is ", job.decode_groups(), ", but only ",
                                                   plan.micro_batches, " micro-batches are in flight; give at most ",
                                                   "that, or more `micro_batches`, or leave these out"));
  }
  for (int i = 0; i < stages; ++i) {
    pb::StageAssignment stage;
    stage.set_stage(i);
    stage.set_stages(stages);
    stage.set_rank(hellos[i].rank());
    stage.set_previous_rank(i == 0 ? kCoordinatorRank : hellos[i - 1].rank());
    stage.set_next_rank(i + 1 == stages ? kCoordinatorRank : hellos[i + 1].rank());
    stage.set_owns_embedding(i == 0);
    stage.set_owns_head(i + 1 == stages);
    stage.set_threads(cpus[i].threads);
    stage.mutable_cpus()->Add(cpus[i].cpus.begin(), cpus[i].cpus.end());
    stage.set_contended(cpus[i].contended);
    stage.set_isa(ToProto(isas.isas[i]));
    stage.set_model_path(hellos[i].model_path().empty() ? model.file->path() : hellos[i].model_path());
    FillCommon(job, model, epoch, plan.most_groups, &stage);
    plan.stages.push_back(std::move(stage));
  }
  SetContext(job.context() > 0 ? job.context() : model.hyper.context, &plan);
  ASSIGN_OR_RETURN(const LayerSplit split, SplitLayers(job, hellos, model, plan.stages, costs));
  for (int i = 0; i < stages; ++i) {
    plan.stages[i].set_first_layer(split.layers[i].begin);
    plan.stages[i].set_last_layer(split.layers[i].end);
  }
  const absl::Status sized = SizePool(job, hellos, model, &plan);
  // Which of the splits that do not fit was tried says less than that none does.
  if (absl::IsResourceExhausted(sized) && !split.lack.ok()) return split.lack;
  RETURN_IF_ERROR(sized);
  return plan;
}

}  // namespace stagecoach
