#ifndef STAGECOACH_STAGE_WORKER_STAGE_LOOP_H_
#define STAGECOACH_STAGE_WORKER_STAGE_LOOP_H_

// A stage at work, with two threads: the communication thread (the caller of Run, the only one that touches the
// endpoint) and the computing thread (which leads the gang). Queues between them overlap hops with computation.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/base/clock.h"
#include "common/base/queue.h"
#include "common/transport/endpoint.h"
#include "common/transport/wait_ladder.h"
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

// When a send began (MonotonicUs; 0: there was none), and how long it took to complete.
struct FrameSend {
  int64_t start_us = 0, took_us = 0;
};

// kDataLoss: a frame that fails its checks was damaged or is out of step. Only a new job can repair that.
absl::Status BadFrame(const absl::Status& status);

// The computing thread's work: loads the stage's part of the model, then turns each received frame into the next one.
// Knows no endpoint and no queue. Used by the thread that calls Load; others may call what is marked so.
class StageComputation {
 public:
  // `rank` of `ranks`: the assignment must be for it, and name existing ranks. `stream`: the source of streamed
  // weights, else nullptr.
  StageComputation(const pb::StageAssignment& assignment, int rank, int ranks, WeightStream* stream);

  // Checks the assignment, opens the model file, which must be the coordinator's, and loads the stage's part. Errors
  // are this rank's own and final, except kUnavailable: the stream was stopped.
  absl::Status Load();

  struct Step {
    OutgoingFrame frame;    // to the next stage, or the result to the coordinator
    bool shutdown = false;  // it was the last one
  };
  // `bytes`: the next frame, received at `received_us` (MonotonicUs); not used after the return. `last_send`: the send
  // completed last, for the trace. kDataLoss: a bad frame.
  absl::StatusOr<Step> Compute(absl::Span<const uint8_t> bytes, int64_t received_us, FrameSend last_send);

  // While no frame is there: work that a later one would wait for. False: there is none.
  bool WorkAhead() { return is_last_ && model_->MakeAnyMask(); }

  // From any thread once Load has returned OK.
  const FrameLimits& limits() const { return limits_; }
  pb::StageReady Ready() const;

  // From any thread at any time: progress so far, without the communication's own numbers.
  pb::Heartbeat Progress() const;

 private:
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

// Reports the failure to the coordinator; the report has two seconds to leave. `pool`: of telemetry frames.
absl::Status ReportFailure(const JobEpoch& job, int stage, const absl::Status& failure, FramePool* pool,
                           Endpoint* endpoint);

class StageLoop {
 public:
  // `endpoint` is that of the assignment's rank. `now_us`: the clock that heartbeats go by.
  StageLoop(Endpoint* endpoint, const pb::StageAssignment& assignment, std::function<int64_t()> now_us = MonotonicUs);

  // Loads the model, announces itself, then serves frames until the shutdown frame. Sends a heartbeat every second.
  // Errors are reported to the coordinator before they are returned.
  absl::Status Run();

 private:
  struct Incoming {
    ReceivedFrame frame;
    int64_t received_us;
  };

  // Computing thread.
  absl::Status Compute();

  // Communication thread.
  absl::Status Communicate();              // until the outgoing queue has ended and everything is sent
  absl::StatusOr<bool> CommunicateOnce();  // whether anything happened
  absl::StatusOr<bool> CarryWeights();     // whether a request was sent
  absl::Status DeliverWeights(ReceivedFrame frame);
  absl::Status AnnounceReady();
  absl::Status WakeNextStage(int next);
  absl::Status SendControl(Channel channel, int destination, const ControlBody& body);
  absl::Status SendHeartbeat();
  void NoteSend();

  // Constant after construction.
  Endpoint* const endpoint_;
  const pb::StageAssignment assignment_;
  const std::function<int64_t()> now_us_;

  // Owned by the computing thread.
  absl::Status compute_status_;  // read after the thread has ended

  // Shared.
  const std::unique_ptr<WeightStream> stream_;  // nullptr: the stage has the files
  StageComputation computation_;                // says itself what which thread may call
  std::atomic<bool> loaded_{false};
  std::atomic<uint64_t> wait_us_{0};
  std::mutex send_mu_;
  FrameSend last_send_;  // guarded by send_mu_
  Queue<Incoming> incoming_;
  Queue<OutgoingFrame> outgoing_;  // ended by the computing thread
  WaitLadder ladder_;              // waits on the communication thread, woken by the computing thread

  // Owned by the communication thread.
  FramePool control_pool_;
  bool announced_ = false;
  int64_t next_heartbeat_us_ = 0;
  int64_t step_sent_us_ = 0;   // when the last step was passed on
  int64_t noted_send_us_ = 0;  // begin of the send that last_send_ is of
  int64_t answered_us_ = 0;    // when an answer for the stream last came, or was first waited for
};

// The whole life of a stage: waits for its assignment from rank 0, loads and serves until the shutdown frame. If the
// first frame is the order of a probe (proto/probe.proto), it measures instead. Errors were reported to the coordinator
// if it could be reached. Runs on the thread that made `endpoint`.
absl::Status ServeStage(Endpoint* endpoint);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_STAGE_LOOP_H_
