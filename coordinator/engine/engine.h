#ifndef STAGECOACH_COORDINATOR_ENGINE_ENGINE_H_
#define STAGECOACH_COORDINATOR_ENGINE_ENGINE_H_

// THE loop: requests from the front become sequences, the scheduler's micro-batches go to the pipeline, results become
// tokens for the front. Not thread-safe.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/obs/step_log.h"
#include "common/transport/wait_ladder.h"
#include "coordinator/channel/engine_channel.h"
#include "coordinator/channel/water_mark.h"
#include "coordinator/engine/bubble_meter.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {

class Engine {
 public:
  // All pointers outlive the engine; step_log may be nullptr.
  Engine(Pipeline* pipeline, const SchedulerOptions& options, int64_t vocab, EngineChannel* front, StepLog* step_log);

  // Admit, fill the pipeline, await one result, publish it. Waits a bounded time when there is nothing to do. While the
  // front is behind in reading (water_mark.h), what is in flight comes back and nothing is submitted.
  // kUnavailable: a stage is lost or the front is gone.
  absl::Status Step();

  // After a shutdown request: no more requests are taken; what runs has been cancelled.
  bool shutting_down() const { return shutting_down_; }
  // Sends the shutdown frame through all stages and waits for it to come back, behind whatever is in flight; a lost
  // stage ends the wait.
  absl::Status ShutDownStages();

  // For tests: preempt every sequence once, when it has produced this many tokens; 0: never.
  void PreemptAtOutput(uint32_t tokens) { preempt_at_output_ = tokens; }

  const BubbleMeter& bubble() const { return bubble_; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Submitted {
    MicroBatch batch;
    int64_t submit_us;
  };

  absl::Status TakeMessages();
  absl::Status TakeRequest(const pb::SubmitRequest& request);
  absl::Status CancelRequest(RequestId request);
  absl::Status Submit(MicroBatch batch);
  absl::Status TakeResult(const StepResult& result);
  absl::Status TakeEvent(const SequenceEvent& event);
  void Finish(RequestId request, pb::RequestFinished::Reason reason, absl::string_view error);
  absl::Status SayEvents();
  absl::Status Say(const pb::EngineMessage& message);
  void Rest();  // nothing happened: wait a moment

  Pipeline* const pipeline_;
  EngineChannel* const front_;
  StepLog* const step_log_;
  const int64_t vocab_;
  Scheduler scheduler_;
  BubbleMeter bubble_;
  WaterMark front_behind_ = kEngineToFront;
  WaitLadder ladder_;
  std::deque<Submitted> in_flight_;
  SequenceId next_sequence_ = 1;
  uint64_t next_number_ = 0;
  absl::flat_hash_map<SequenceId, RequestId> request_of_;
  absl::flat_hash_map<RequestId, SequenceId> sequence_of_;
  pb::EngineMessage events_;  // of this turn, for all requests
  int64_t last_said_us_ = 0;
  bool shutting_down_ = false;
  uint32_t preempt_at_output_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_ENGINE_ENGINE_H_
