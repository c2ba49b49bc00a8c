#include "coordinator/job/scheduler_setup.h"

#include "common/base/status_macros.h"
#include "common/model/part_work.h"
#include "common/wire/job_proto.h"

namespace stagecoach {
namespace {

ReadCurve ReadsOf(const ModelDescription& model) {
  const absl::StatusOr<ModelParts> parts = PartsOf(model, KvType::kF32, /*bf16_dot=*/false);  // bytes depend on neither
  const PartWork bytes = parts.ok() ? parts->Bytes() : PartWork{};
  if (bytes.expert_bytes == 0) return {};
  return {.experts = bytes.expert_bytes / bytes.bytes_kept, .chosen = bytes.expert_share};
}

}  // namespace

absl::StatusOr<SchedulerOptions> SchedulerOptionsOf(const pb::ConfigureJob& job, const JobPlan& plan,
                                                    const ModelDescription& model) {
  ASSIGN_OR_RETURN(const JobSettings settings, JobSettingsOf(job));
  SchedulerOptions options;
  options.max_num_seqs = settings.max_num_seqs;
  options.max_num_batched_tokens = settings.max_num_batched_tokens;
  options.prefill_chunk = settings.prefill_chunk;
  options.policy = settings.policy;
  options.chunking = settings.chunking;
  options.slo_itl_us = settings.slo_itl_s * 1e6;
  options.reads = ReadsOf(model);
  options.block_tokens = static_cast<int32_t>(settings.block_tokens);
  options.group_blocks = plan.group_blocks;
  options.group_windows = plan.group_windows;
  options.context = plan.context;
  options.micro_batches = plan.micro_batches;
  options.most_groups = plan.most_groups;
  options.max_open_tokens = plan.max_open_tokens;
  options.prefix_caching = settings.prefix_caching;
  options.max_prompt_logprobs = job.max_prompt_logprobs();
  RETURN_IF_ERROR(ValidateSchedulerOptions(options));
  return options;
}

}  // namespace stagecoach
