#ifndef STAGECOACH_STAGE_WORKER_STAGE_LOOP_H_
#define STAGECOACH_STAGE_WORKER_STAGE_LOOP_H_

// A stage at work. Two threads: the communication thread (the caller of Run, the only one that touches the endpoint)
// and the computing thread (which leads the gang). Frames pass between them by queues, so a hop overlaps computation.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/queue.h"
#include "common/transport/endpoint.h"
#include "common/transport/wait_ladder.h"
#include "common/wire/frame.h"
#include "proto/control.pb.h"
#include "stage_worker/stage_computation.h"
#include "stage_worker/stream/weight_stream.h"

namespace stagecoach {

// Sends the coordinator a report of the failure, and gives it two seconds to leave. `pool`: of telemetry frames.
absl::Status ReportFailure(const JobEpoch& job, int stage, const absl::Status& failure, FramePool* pool,
                           Endpoint* endpoint);

class StageLoop {
 public:
  // `endpoint` is that of the assignment's rank. `now_us`: the clock that heartbeats go by.
  StageLoop(Endpoint* endpoint, const pb::StageAssignment& assignment, std::function<int64_t()> now_us = MonotonicUs);

  // Loads the model, says that it is ready, then serves frames until the shutdown frame has passed. Sends a heartbeat
  // every second. An error was reported to the coordinator before it is returned.
  absl::Status Run();

 private:
  struct Incoming {
    ReceivedFrame frame;
    int64_t received_us;
  };

  // Computing thread.
  absl::Status Compute();
  absl::Status ComputeFrames();
  FrameSend LastSend();

  // Communication thread.
  absl::Status Communicate();              // until the outgoing queue has ended and everything is sent
  absl::StatusOr<bool> CommunicateOnce();  // whether anything happened
  absl::Status OpenWeights();
  absl::StatusOr<bool> CarryWeights();  // whether a request was sent
  absl::Status DeliverWeights(ReceivedFrame frame);
  absl::Status AnnounceReady();
  absl::Status WakeNextStage(int next);
  absl::Status SendToCoordinator(const ControlBody& body);
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

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_STAGE_LOOP_H_
