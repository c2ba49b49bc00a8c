#ifndef STAGECOACH_TESTS_TESTING_CLUSTER_PREEMPTING_PIPELINE_H_
#define STAGECOACH_TESTS_TESTING_CLUSTER_PREEMPTING_PIPELINE_H_

// Preempts every sequence once, when the result with its n-th output token passes: that token still counts, and
// everything is computed again.

#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach::testing {

class PreemptingPipeline : public Pipeline {
 public:
  PreemptingPipeline(int64_t at_output, Pipeline* pipeline, Scheduler* scheduler)
      : at_output_(at_output), pipeline_(pipeline), scheduler_(scheduler) {}

  int stages() const override { return pipeline_->stages(); }
  absl::Status Submit(const MicroBatch& batch) override;
  absl::StatusOr<std::optional<StepResult>> Poll() override;

 private:
  const int64_t at_output_;
  Pipeline* const pipeline_;
  Scheduler* const scheduler_;
  absl::flat_hash_map<SequenceId, int64_t> preempt_at_;  // the position of the token; -1: done
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_CLUSTER_PREEMPTING_PIPELINE_H_
