#ifndef STAGECOACH_COORDINATOR_ENGINE_FRONT_H_
#define STAGECOACH_COORDINATOR_ENGINE_FRONT_H_

// The engine's view of the sender of requests: commands come in, events and status go out.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/step/step.h"
#include "coordinator/guess/speculator.h"
#include "coordinator/request/sequence.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {

struct SubmitCommand {
  RequestId request = 0;          // not in use
  SequenceSpec spec;              // unchecked; its id is for the engine to draw
  bool reports_progress = false;  // of its prompt
};
struct CancelCommand {
  RequestId request = 0;
};
struct ShutdownCommand {};  // end the job in order; nothing follows
using FrontCommand = std::variant<SubmitCommand, CancelCommand, ShutdownCommand>;

// The cost of a request so far.
struct RequestCost {
  int64_t queue_us = 0;       // from its arrival to the first micro-batch with rows of it
  int64_t prefill_us = 0;     // from then to its first token, or to its end without tokens
  int64_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  int64_t preemptions = 0;
  PredictionCost prediction;
};

struct RequestDelta {
  RequestId request = 0;
  absl::InlinedVector<SampledToken, 1> tokens;  // new ones, in order
  std::vector<TargetLogprobs> scores;           // the rows that were asked for
  std::vector<RowChecksums> checksums;          // of rows that were computed, where the job asks for them
  std::optional<RequestCost> cost;              // with the first ones, after a preemption, and as `prediction` grows
};
// How far a prompt is, before its first token.
struct PromptProgress {
  RequestId request = 0;
  int64_t processed = 0, total = 0, cached = 0;  // tokens
};
struct RequestEnd {
  RequestId request = 0;
  std::optional<FinishReason> reason;  // absent: rejected, it never ran
  std::string error;                   // why it was rejected, or could not be computed
  bool no_room = false;                // rejected because context or pool cannot hold it
  RequestCost cost;
};
// The events of one turn of the engine's loop, from one result, for all requests.
struct RequestEvents {
  int64_t at_us = 0;  // when the result arrived, by the engine's clock; 0 without one
  std::vector<RequestDelta> deltas;
  std::vector<RequestEnd> ends;         // after the last tokens of each
  std::vector<PromptProgress> prompts;  // of those that ask for it, at most four a second each
  bool empty() const { return deltas.empty() && ends.empty() && prompts.empty(); }
};

struct EngineStatus {
  // Since the engine began.
  SchedulerCounters counters;
  int64_t busy_us = 0;      // with at least one micro-batch in flight
  double bubble = 0;        // see BubbleMeter
  double bubble_floor = 0;  // "
  struct Stage {
    int64_t compute_us = 0, send_us = 0;
    int64_t hop_us = 0;   // how long a send took of late; 0: there was none
    int64_t void_us = 0;  // of compute_us, for rows that proved void
  };
  std::vector<Stage> stages;
  std::vector<GuesserCounts> guessers;  // where the job has any
  // Now.
  int64_t waiting = 0, running = 0;  // requests
  std::array<int64_t, kPriorityClassCount> running_by_class = {};
  int64_t waiting_tokens = 0;                     // known ones of those that wait
  std::vector<int32_t> blocks_used, blocks_free;  // [groups]
  std::vector<int32_t> blocks_cached;             // [groups] of ended requests, given away when blocks are needed
  int32_t states_used = 0, states_free = 0;       // slots of recurrent states
  int32_t states_cached = 0;                      // snapshots of them, given away when slots are needed
  int32_t in_flight = 0;                          // micro-batches
};

// Called by the engine's thread alone. Errors end the job: kUnavailable: the front is gone; kInvalidArgument: its
// command is invalid.
class Front {
 public:
  virtual ~Front() = default;

  // The next command, or nothing when the engine should go on with its turn. Never blocks.
  virtual absl::StatusOr<std::optional<FrontCommand>> Next() = 0;

  virtual absl::Status Publish(const RequestEvents& events) = 0;

  // About once a second. May be skipped while the front is behind.
  virtual absl::Status Report(const EngineStatus& status) = 0;

  // The front has too much unread: no new work now.
  virtual bool Behind() = 0;

  // Blocks until Next may have a command, or room after Behind, for at most so long. True when so.
  virtual bool Wait(int64_t most_us) = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_ENGINE_FRONT_H_
