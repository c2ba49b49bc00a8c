#include "tests/testing/cluster/preempting_pipeline.h"

#include "common/base/status_macros.h"

namespace stagecoach::testing {

absl::Status PreemptingPipeline::Submit(const MicroBatch& batch) {
  for (const OpenSequence& open : batch.open) {
    preempt_at_.emplace(open.sequence, static_cast<int64_t>(open.prompt.size()) + at_output_ - 1);
  }
  return pipeline_->Submit(batch);
}

absl::StatusOr<std::optional<StepResult>> PreemptingPipeline::Poll() {
  ASSIGN_OR_RETURN(std::optional<StepResult> result, pipeline_->Poll());
  if (!result.has_value()) return result;
  for (const SampledToken& token : result->sampled) {
    int64_t& preempt_at = preempt_at_[token.sequence];
    if (token.position != preempt_at) continue;
    preempt_at = -1;
    const absl::Status preempted = scheduler_->Preempt(token.sequence);
    // It may have been preempted or cancelled just now.
    if (!absl::IsFailedPrecondition(preempted) && !absl::IsNotFound(preempted)) RETURN_IF_ERROR(preempted);
  }
  return result;
}

}  // namespace stagecoach::testing
