#ifndef STAGECOACH_COORDINATOR_SCHEDULE_POLICY_SCHEDULING_POLICY_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_POLICY_SCHEDULING_POLICY_H_

// Decides what the next micro-batch holds: how many prompt rows and decode rows, and which come first. A policy is a
// file of this folder and a name in common/job/job_choices.h. The scheduler decides which sequences the rows belong to
// and who gets blocks (scheduler.h). Pure; not thread-safe.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "common/job/job_choices.h"
#include "common/step/step.h"
#include "coordinator/schedule/policy/step_time.h"

namespace stagecoach {

inline constexpr int64_t kAllRows = std::numeric_limits<int64_t>::max();

struct PolicyOptions {
  Policy policy = Policy::kInterleaved;
  int64_t chunk_rows = 1;     // most rows of one prompt in a micro-batch
  int64_t budget_rows = 1;    // of a micro-batch
  int32_t micro_batches = 1;  // in flight at once
  double slo_itl_us = 0;      // wanted gap between two tokens of a sequence; 0: none given
  ReadCurve reads;            // of the model
};

// What the scheduler has to do, beside the draft.
struct PolicyLoad {
  int64_t running = 0;        // sequences with blocks
  int64_t decoding = 0;       // of them
  bool first_tokens = false;  // any are in flight: a sequence is about to decode
  int64_t admissible = 0;     // about how many of those that wait could be admitted now
  int64_t prompt_rows = 0;    // to hand out: of those that run, and about those of the admissible ones
  int32_t decode_groups = 1;  // micro-batches that decode rows go round in
  double free_share = 1;      // of the KV blocks, in the block group that has least
};

// The first prompt that has work.
struct NextPrompt {
  bool runs = false;       // it has blocks; else it could be admitted now
  int64_t history = 0;     // its rows before the next ones
  int64_t full_chunk = 0;  // rows of its next chunk, if the micro-batch held nothing else
};

// The micro-batch being composed. A prompt has work while it has rows to hand out and runs or could be admitted now.
struct PolicyDraft {
  virtual ~PolicyDraft() = default;
  // A row of each sequence whose turn it is, while rows are left.
  virtual void AddDecodeRows() = 0;
  // Chunks, of the prompt of the lowest rank first, while rows are left and the draft has less than this many of them.
  virtual void AddPromptRows(int64_t most_rows) = 0;
  virtual std::optional<NextPrompt> Next() = 0;  // nothing: no prompt has work
  virtual PolicyLoad Load() const = 0;
  bool empty() const { return batch.slices.empty(); }

  MicroBatch batch;
  int64_t prompt_rows = 0;  // of the batch
};

class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;
  // Fills an empty draft. One that stays empty may be followed by another at once.
  virtual void Compose(PolicyDraft& draft) = 0;
  // The last draft was submitted; the oldest micro-batch in flight came back; its time in the slowest stage.
  virtual void Submitted(const MicroBatch&) {}
  virtual void Confirmed() {}
  virtual void ObserveStepTime(const MicroBatch&, int64_t /*slowest_us*/) {}
};
std::unique_ptr<SchedulingPolicy> MakeSchedulingPolicy(const PolicyOptions& options);  // a known policy

// Declares, for each name of a policy, the function that makes one. It is defined in the policy's file; a program with
// a name that has none does not link.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-template-friend"  // one function for each name is what is meant
template <Policy policy>
struct PolicyTag {
  friend std::unique_ptr<SchedulingPolicy> MakePolicy(PolicyTag, const PolicyOptions& options);
};
#pragma GCC diagnostic pop

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_POLICY_SCHEDULING_POLICY_H_
