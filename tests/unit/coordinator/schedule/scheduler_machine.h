#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_SCHEDULER_MACHINE_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_SCHEDULER_MACHINE_H_

// A scheduler before simulated stages, advanced by hand.

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/schedule/scheduler.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/schedule/simulated_stages.h"

namespace stagecoach {

inline SchedulerOptions SmallOptions() {
  return {{.max_num_seqs = 4,
           .policy = Policy::kInterleaved,
           .max_num_batched_tokens = 16,
           .prefill_chunk = 8,
           .block_tokens = 4,
           .prefix_caching = false},
          {.group_blocks = {8}, .context = 32, .micro_batches = 2, .max_open_tokens = 64}};
}

// A pool that two sequences of 8 tokens fill.
inline SchedulerOptions TightOptions() {
  SchedulerOptions options = SmallOptions();
  options.group_blocks = {4};
  options.context = 16;
  options.micro_batches = 1;
  return options;
}

inline SequenceSpec Spec(SequenceId id, int64_t prompt, int64_t new_tokens) {
  SequenceSpec spec{.id = id, .max_new_tokens = new_tokens};
  for (int64_t i = 0; i < prompt; ++i) spec.prompt.push_back(static_cast<TokenId>((id * 7 + i) % kSimulatedVocabulary));
  return spec;
}

// `common` tokens that all have, then some of its own.
inline SequenceSpec LikeOthers(SequenceId id, int64_t common, int64_t own, int64_t new_tokens = 1) {
  SequenceSpec spec{.id = id, .max_new_tokens = new_tokens};
  for (int64_t i = 0; i < common; ++i) spec.prompt.push_back(static_cast<TokenId>(i * i % kSimulatedVocabulary));
  for (int64_t i = 0; i < own; ++i) spec.prompt.push_back(static_cast<TokenId>((i + id) % kSimulatedVocabulary));
  return spec;
}

// A scheduler with its stages; results wait here until they are confirmed. `checked`: so is, with each step, all that
// must always hold.
class Machine {
 public:
  explicit Machine(const SchedulerOptions& options, bool checked = true)
      : scheduler(options), checked_(checked), stages_(options) {}

  void Add(SequenceSpec spec) { EXPECT_EQ(scheduler.Add(std::move(spec)), absl::OkStatus()); }

  // Absent when there is nothing to hand out.
  std::optional<MicroBatch> TrySubmit() {
    std::optional<MicroBatch> batch = scheduler.Next();
    if (!batch) return batch;
    Check();
    absl::StatusOr<StepResult> result = stages_.Run(*batch);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return std::nullopt;
    results.push_back(*std::move(result));
    batches.push_back(*batch);
    return batch;
  }
  MicroBatch Submit() {
    std::optional<MicroBatch> batch = TrySubmit();
    EXPECT_TRUE(batch.has_value());
    return batch ? *std::move(batch) : MicroBatch();
  }

  std::vector<SequenceEvent> Confirm() {
    if (results.empty()) {
      ADD_FAILURE() << "nothing is in flight";
      return {};
    }
    absl::StatusOr<std::vector<SequenceEvent>> events = scheduler.Confirm(results.front());
    results.pop_front();
    batches.pop_front();
    EXPECT_TRUE(events.ok()) << events.status();
    Check();
    return std::move(events).value_or(std::vector<SequenceEvent>());
  }

  std::vector<SequenceEvent> Step() {
    Submit();
    return Confirm();
  }
  // Gives the sequences that are opened on the way.
  std::vector<SequenceId> RunToTheEnd() {
    std::vector<SequenceId> opened;
    while (scheduler.HasUnfinished() && !::testing::Test::HasFailure()) {
      for (const OpenSequence& open : Submit().open) opened.push_back(open.sequence);
      Confirm();
    }
    return opened;
  }

  Scheduler scheduler;
  std::deque<StepResult> results;
  std::deque<MicroBatch> batches;  // whose results these are

 private:
  void Check() const {
    if (!checked_) return;
    const absl::Status status = scheduler.CheckIntegrity();
    EXPECT_TRUE(status.ok()) << status;
  }

  const bool checked_;
  SimulatedStages stages_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_SCHEDULER_MACHINE_H_
