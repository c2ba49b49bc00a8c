#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_SCHEDULER_MACHINE_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_SCHEDULER_MACHINE_H_

// A scheduler before simulated stages, advanced by hand.

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/schedule/scheduler.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/schedule/simulated_stages.h"

namespace stagecoach {

inline SchedulerOptions SmallOptions() {
  return {.max_num_seqs = 4,
          .max_num_batched_tokens = 16,
          .prefill_chunk = 8,
          .block_tokens = 4,
          .group_blocks = {8},
          .context = 32,
          .micro_batches = 2,
          .max_open_tokens = 64};
}

inline SequenceSpec Spec(SequenceId id, int64_t prompt, int64_t new_tokens) {
  SequenceSpec spec{.id = id, .max_new_tokens = new_tokens};
  for (int64_t i = 0; i < prompt; ++i) spec.prompt.push_back(static_cast<TokenId>((id * 7 + i) % kSimulatedVocabulary));
  return spec;
}

// A scheduler with its stages; results wait here until they are confirmed.
class Machine {
 public:
  explicit Machine(const SchedulerOptions& options) : scheduler(options), stages_(options) {}

  MicroBatch Submit() {
    std::optional<MicroBatch> batch = scheduler.Next();
    EXPECT_TRUE(batch.has_value());
    if (!batch) return {};
    EXPECT_TRUE(scheduler.CheckIntegrity().ok()) << scheduler.CheckIntegrity();
    absl::StatusOr<StepResult> result = stages_.Run(*batch);
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok()) results.push_back(*std::move(result));
    return *std::move(batch);
  }

  std::vector<SequenceEvent> Confirm() {
    absl::StatusOr<std::vector<SequenceEvent>> events = scheduler.Confirm(results.front());
    results.erase(results.begin());
    EXPECT_TRUE(events.ok()) << events.status();
    EXPECT_TRUE(scheduler.CheckIntegrity().ok()) << scheduler.CheckIntegrity();
    return *std::move(events);
  }

  std::vector<SequenceEvent> Step() {
    Submit();
    return Confirm();
  }

  Scheduler scheduler;
  std::vector<StepResult> results;

 private:
  SimulatedStages stages_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_SCHEDULER_MACHINE_H_
