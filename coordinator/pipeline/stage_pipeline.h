#ifndef STAGECOACH_COORDINATOR_PIPELINE_STAGE_PIPELINE_H_
#define STAGECOACH_COORDINATOR_PIPELINE_STAGE_PIPELINE_H_

// The Pipeline over real stages: one frame per micro-batch to the first stage, one frame per result from the last,
// heartbeats from all.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/transport/endpoint.h"
#include "common/wire/frame.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/pipeline/roster.h"
#include "coordinator/pipeline/weight_service.h"
#include "proto/control.pb.h"

namespace stagecoach {

class StagePipeline : public Pipeline {
 public:
  // Opens the receives and sends every stage its assignment; the stages load. `hellos`: of the stages, by stage.
  // `now_us`: the clock that losses are judged by. `weights`: serves the stages' requests, where the assignments say
  // that weights are streamed; else nullptr.
  static absl::StatusOr<std::unique_ptr<StagePipeline>> Start(Endpoint* endpoint,
                                                              const std::vector<pb::StageAssignment>& assignments,
                                                              const std::vector<pb::Hello>& hellos,
                                                              const FrameLimits& limits, int64_t progress_timeout_us,
                                                              std::function<int64_t()> now_us = MonotonicUs,
                                                              std::unique_ptr<WeightService> weights = nullptr);

  int stages() const override { return roster_.stages(); }
  absl::Status Submit(const MicroBatch& batch) override;
  absl::StatusOr<std::optional<StepResult>> Poll() override;

  const Roster& roster() const { return roster_; }
  bool SendsPending() const { return endpoint_->SendsPending(); }
  // Moves while weights are streamed; 0 once all stages are ready.
  uint64_t weights_moved() const { return weights_ == nullptr ? 0 : weights_->moved(); }

 private:
  StagePipeline(Endpoint* endpoint, const std::vector<pb::Hello>& hellos, const FrameLimits& limits,
                int64_t progress_timeout_us, std::function<int64_t()> now_us);
  absl::Status TakeTelemetry(const ReceivedFrame& frame);
  absl::Status TakeWeightRequest(const ReceivedFrame& frame);
  absl::Status SendWeights();
  absl::Status SendControl(int stage, const JobEpoch& epoch, const ControlBody& body);
  absl::Status WakeStages();
  int RankOf(int stage) const { return roster_.stage(stage).rank; }

  Endpoint* const endpoint_;
  const std::function<int64_t()> now_us_;
  const FrameLimits limits_;
  Roster roster_;
  FramePool step_pool_;
  FramePool control_pool_;
  std::unique_ptr<WeightService> weights_;  // until all stages are ready
  uint64_t next_submit_ = 0;
  uint64_t next_result_ = 0;
  int64_t last_traffic_us_ = 0;  // of a submit or a result
  int64_t next_check_us_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PIPELINE_STAGE_PIPELINE_H_
