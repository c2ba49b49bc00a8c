#ifndef STAGECOACH_COORDINATOR_SCHEDULE_SCHEDULER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_SCHEDULER_H_

// Continuous batching: decides what the next micro-batch holds. Pure: no clock, no I/O, no threads; the engine, the tests and
// a simulator drive the same object. Not thread-safe.
//
// Life of a sequence: Add puts it into the waiting queue; Next admits it when its blocks are there, hands out its prompt as
// chunks (several may be in flight at once: every stage sees the same ordered stream, so chunk k+1 finds the K and V of chunk k) and,
// once its first token is confirmed, one decode row at a time; Confirm advances it when the last stage reports. A
// sequence that is preempted gives all its blocks back, waits for what it has in flight, and is computed again from its
// prompt and its output so far. Freed blocks may be given away at once, for the same reason of order.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/step/step.h"
#include "coordinator/request/sequence.h"
#include "coordinator/schedule/block_manager.h"

namespace stagecoach {

enum class Policy {
  kPrefillFirst,    // throughput: chunks fill micro-batches; decode rows ride only in micro-batches when no prompt has work
  kInterleaved,     // decode rows and prefill chunks share one token budget in every micro-batch
  kDecodePriority,  // every ready decode row first; full chunks only in micro-batches without decode rows, a small remainder
                    // beside them, and a bound on how long a prompt may starve
};
absl::StatusOr<Policy> ParsePolicy(absl::string_view name);  // "prefill-first", "interleaved", "decode-priority"
const char* PolicyName(Policy policy);

struct SchedulerOptions {
  int32_t max_num_seqs = 8;              // sequences with blocks at once
  int32_t max_num_batched_tokens = 512;  // rows of a micro-batch
  int32_t prefill_chunk = 512;           // rows of one sequence in a micro-batch
  Policy policy = Policy::kInterleaved;
  int32_t block_tokens = 32;
  int32_t blocks = 0;
  int64_t context = 0;                   // most tokens a sequence may have, prompt and output
  int32_t micro_batches = 1;             // in flight at once; decode rows are spread over this many
  int64_t max_open_tokens = 0;           // opened by one micro-batch; at least context
};
absl::Status ValidateSchedulerOptions(const SchedulerOptions& options);  // each field with its range

// What Confirm found out.
struct SequenceEvent {
  SequenceId sequence = 0;
  std::vector<SampledToken> tokens;    // newly produced, in order
  std::vector<TargetLogprobs> scores;  // of this micro-batch
  std::optional<FinishReason> finished;
};

struct SchedulerCounters {
  uint64_t micro_batches = 0, prefill_rows = 0, decode_rows = 0, preemptions = 0;
  int32_t blocks_used_peak = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);  // options must be valid

  // Queues a sequence. kInvalidArgument for an empty prompt; kResourceExhausted when prompt and output so far can never fit the
  // context or the pool (the message holds both numbers). max_new_tokens is cut to what the context leaves.
  absl::Status Add(SequenceSpec spec);

  // The next micro-batch, or nothing when no row can be handed out now (all waits for results, for blocks, or there is no work).
  // Never gives more than options.micro_batches unconfirmed ones.
  std::optional<MicroBatch> Next();

  // The result of the oldest unconfirmed micro-batch. kInternal when it is not that one or does not match what was asked.
  absl::StatusOr<std::vector<SequenceEvent>> Confirm(const StepResult& result);

  // Ends a sequence now; its in-flight rows are ignored when they come back. kNotFound for an unknown or finished one.
  absl::Status Cancel(SequenceId sequence);

  // Takes a sequence's blocks away as if they had run out; for tests of preemption. kNotFound, kFailedPrecondition (not running).
  absl::Status Preempt(SequenceId sequence);

  bool HasUnfinished() const;
  int32_t in_flight() const { return static_cast<int32_t>(in_flight_.size()); }
  const SchedulerCounters& counters() const { return counters_; }
  const BlockManager& blocks() const { return blocks_; }
  const Sequence* Find(SequenceId sequence) const;  // unfinished ones

  // Everything that must always hold: blocks free + used == total, each block in one table, tables cover exactly the rows handed
  // out, states consistent with queues and in-flight micro-batches. kInternal names the first violation.
  absl::Status CheckIntegrity() const;

 private:
  struct InFlight;
  SchedulerOptions options_;
  BlockManager blocks_;
  std::deque<InFlight> in_flight_;
  SchedulerCounters counters_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_SCHEDULER_H_
