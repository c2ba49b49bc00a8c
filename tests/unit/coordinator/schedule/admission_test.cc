// How much of the work is done twice when the pool is too small for what was admitted.

#include "coordinator/schedule/scheduler.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"

namespace stagecoach {
namespace {

// Every sequence: `prompt` tokens and `new_tokens` more. The share of the rows computed that had been computed before.
double RecomputedShare(const SchedulerOptions& options, int sequences, int64_t prompt, int64_t new_tokens) {
  Machine machine(options, /*checked=*/false);
  for (int id = 1; id <= sequences; ++id) machine.Add(Spec(static_cast<SequenceId>(id), prompt, new_tokens));
  while (machine.scheduler.HasUnfinished() && !::testing::Test::HasFailure()) {
    while (machine.TrySubmit()) continue;
    machine.Confirm();
  }
  EXPECT_TRUE(machine.scheduler.CheckIntegrity().ok());
  const SchedulerCounters& counters = machine.scheduler.counters();
  const double computed = static_cast<double>(counters.prefill_rows + counters.decode_rows);
  return 1 - static_cast<double>(sequences * (prompt + new_tokens - 1)) / computed;
}

TEST(Admission, RecomputesLittleWhenManyMoreSequencesWaitThanThePoolHolds) {
  // A sequence needs 7 blocks at first and 25 in the end. Admitted into whatever is free, 40 % of all rows were
  // computed more than once.
  SchedulerOptions options{.max_num_seqs = 96, .group_blocks = {204}, .context = 800, .max_open_tokens = 800};
  for (const auto& [policy, name] : kPolicies) {
    options.policy = policy;
    EXPECT_LT(RecomputedShare(options, 96, 200, 600), 0.185) << name;
  }
  options.policy = Policy::kInterleaved;
  options.micro_batches = 4;
  EXPECT_LT(RecomputedShare(options, 96, 200, 600), 0.21) << "four micro-batches in flight";
}

// How many of two sequences run together when the second one comes as the first one decodes its first row.
size_t RunningTogether(int32_t blocks, const SequenceSpec& first, const SequenceSpec& second) {
  const SchedulerOptions options{.block_tokens = 4, .group_blocks = {blocks}, .context = 32, .max_open_tokens = 64};
  Machine machine(options);
  machine.Add(first);
  machine.Step();
  machine.Add(second);
  return machine.Submit().slices.size();
}

TEST(Admission, KeepsBlocksForTheGrowthOfThoseThatDecode) {
  // The first one has its second block, and may need four more.
  EXPECT_EQ(RunningTogether(7, Spec(1, 6, 20), Spec(2, 6, 20)), 1u);
  EXPECT_EQ(RunningTogether(8, Spec(1, 6, 20), Spec(2, 6, 20)), 2u);
}

TEST(Admission, KeepsNoMoreBlocksThanThoseThatDecodeCanStillNeed) {
  EXPECT_EQ(RunningTogether(5, Spec(1, 6, 8), Spec(2, 6, 8)), 1u);
  EXPECT_EQ(RunningTogether(5, Spec(1, 6, 7), Spec(2, 6, 8)), 2u) << "one more block, for rows 8 to 11";
}

}  // namespace
}  // namespace stagecoach
