#ifndef STAGECOACH_STAGE_WORKER_STAGE_COMPUTATION_H_
#define STAGECOACH_STAGE_WORKER_STAGE_COMPUTATION_H_

// What the computing thread of a stage does: loads its part of the model, then turns each frame that arrives into the
// one that leaves. Knows no endpoint and no queue.

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/transport/endpoint.h"
#include "common/wire/frame.h"
#include "proto/control.pb.h"
#include "stage_worker/model/stage_model.h"
#include "stage_worker/stream/weight_stream.h"

namespace stagecoach {

// A frame on its way to another rank.
struct OutgoingFrame {
  Channel channel;
  int destination;
  std::shared_ptr<const FrameBuffer> buffer;
};

// When a frame was sent: begin (MonotonicUs; 0: there was none), and how long it took until it was complete.
struct FrameSend {
  int64_t start_us = 0, took_us = 0;
};

// kDataLoss: a frame that fails its checks was damaged on its way or is out of step, which nothing here can repair, but
// a new job can.
absl::Status BadFrame(const absl::Status& status);

// Used by one thread, the one that calls Load; others may call what is marked so.
class StageComputation {
 public:
  // `rank` of `ranks`: the assignment must be for it, and name ranks that exist. `stream`: where the weights come from
  // when the assignment says that they are streamed, else nullptr.
  StageComputation(const pb::StageAssignment& assignment, int rank, int ranks, WeightStream* stream);
  ~StageComputation();

  // Checks the assignment, opens the model file, which must be the one that the coordinator opened, and loads the
  // stage's part of it. Errors are this rank's own and final, but for kUnavailable: the stream was stopped.
  absl::Status Load();

  struct Step {
    OutgoingFrame frame;    // to the next stage, or the result to the coordinator
    bool shutdown = false;  // it was the last one
  };
  // `bytes`: the next frame, which arrived at `received_us` (MonotonicUs); they are not looked at after the return.
  // `last_send`: the frame whose send was completed last, for the trace. kDataLoss: a bad frame.
  absl::StatusOr<Step> Compute(absl::Span<const uint8_t> bytes, int64_t received_us, FrameSend last_send);

  // From any thread once Load has returned OK.
  const FrameLimits& limits() const { return limits_; }
  pb::StageReady Ready() const;

  // From any thread at any time: what has been done so far. The communication's own numbers are left out.
  pb::Heartbeat Progress() const;

 private:
  void MakeBuffers();
  absl::StatusOr<OutgoingFrame> NextHop(StepFrame step, std::shared_ptr<FrameBuffer> buffer, const float* hidden);
  absl::StatusOr<OutgoingFrame> Result(StepFrame step, std::shared_ptr<FrameBuffer> buffer, const float* hidden);
  void FinishTimes(StageTimes* times);

  // Constant after construction.
  const int rank_;
  const int ranks_;
  const pb::StageAssignment assignment_;
  const bool is_last_;
  WeightStream* const stream_;

  // Constant after Load.
  FrameLimits limits_;
  std::unique_ptr<StageModel> model_;
  std::unique_ptr<FramePool> pool_;
  AlignedBuffer wide_hidden_;  // [max_rows, D] float; where rows are computed that no frame's payload can hold
  uint64_t tensor_bytes_read_ = 0;

  uint64_t next_number_ = 0;
  StepResult result_;  // of the last step; kept for its memory

  // Read by other threads.
  StageCounters counters_;
  std::atomic<uint64_t> steps_done_{0};
  std::atomic<uint64_t> compute_us_{0};
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_STAGE_COMPUTATION_H_
