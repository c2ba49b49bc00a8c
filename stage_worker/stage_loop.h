#ifndef STAGECOACH_STAGE_WORKER_STAGE_LOOP_H_
#define STAGECOACH_STAGE_WORKER_STAGE_LOOP_H_

// A stage at work. Two threads: the communication thread (the caller of Run, the only one that touches the endpoint)
// and the computing thread (which leads the gang). Frames pass between them by queues, so a hop overlaps computation.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/aligned_buffer.h"
#include "common/transport/endpoint.h"
#include "common/transport/wait_ladder.h"
#include "common/wire/frame.h"
#include "proto/control.pb.h"
#include "stage_worker/exec/queue.h"
#include "stage_worker/model/stage_model.h"

namespace stagecoach {

class StageLoop {
 public:
  // `endpoint`'s rank is the stage's number + 1.
  StageLoop(Endpoint* endpoint, const pb::StageAssignment& assignment);
  ~StageLoop();

  // Loads the model, says that it is ready, then serves frames until the shutdown frame has passed. Sends a heartbeat
  // every second. An error was reported to the coordinator before it is returned.
  absl::Status Run();

 private:
  struct Incoming {
    ReceivedFrame frame;
    int64_t received_us;
  };
  struct Outgoing {
    Channel channel;
    int destination;
    std::shared_ptr<const FrameBuffer> buffer;
  };

  // Computing thread.
  absl::Status LoadModel();
  void MakeBuffers(int64_t hidden);
  absl::Status ComputeFrames();
  absl::StatusOr<bool> ComputeOne(Incoming incoming);  // false after the shutdown frame
  absl::Status HandOver(StepFrame step, std::shared_ptr<FrameBuffer> buffer, const float* hidden);

  // Communication thread.
  absl::Status Communicate();              // until the outgoing queue has ended and everything is sent
  absl::StatusOr<bool> CommunicateOnce();  // whether anything happened
  absl::Status AnnounceReady();
  absl::Status SendToCoordinator(const ControlBody& body);
  pb::Heartbeat MakeHeartbeat() const;
  absl::Status Report(const absl::Status& failure);

  // Constant after construction.
  Endpoint* const endpoint_;
  const int rank_;
  const int ranks_;
  const pb::StageAssignment assignment_;
  const bool is_last_;
  const std::string name_;

  // Set by the computing thread while loading, constant once loaded_ is true.
  FrameLimits limits_;
  std::unique_ptr<StageModel> model_;
  std::unique_ptr<FramePool> pool_;
  AlignedBuffer wide_hidden_;  // [max_rows, D] float; where rows are computed that no frame's payload can hold
  uint64_t tensor_bytes_read_ = 0;
  std::atomic<bool> loaded_{false};

  // Owned by the computing thread.
  uint64_t next_number_ = 0;
  StepResult result_;            // of the last step; kept for its memory
  absl::Status compute_status_;  // read after the thread has ended

  // Shared.
  StageCounters counters_;
  std::atomic<uint64_t> steps_done_{0};
  std::atomic<uint64_t> compute_us_{0};
  std::atomic<uint64_t> wait_us_{0};
  std::atomic<int64_t> last_send_us_{0};
  Queue<Incoming> incoming_;
  Queue<Outgoing> outgoing_;  // ended by the computing thread
  WaitLadder ladder_;         // waits on the communication thread, woken by the computing thread

  // Owned by the communication thread.
  FramePool control_pool_;
  bool announced_ = false;
  int64_t next_heartbeat_us_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_STAGE_LOOP_H_
