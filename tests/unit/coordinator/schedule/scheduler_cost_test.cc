// How many sequences are looked at, whatever the clock says. tests/bench/scheduler_bench.cc has the time.

#include <cstdint>
#include <utility>

#include "coordinator/schedule/scheduler.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"

namespace stagecoach {
namespace {

constexpr int kSequences = 1024;

SchedulerOptions Options() {
  return {.max_num_seqs = kSequences,
          .max_num_batched_tokens = 2 * kSequences,
          .block_tokens = 16,
          .group_blocks = {4 * kSequences},
          .context = 64,
          .max_open_tokens = 4 * kSequences};
}

class CountingMachine : public Machine {
 public:
  explicit CountingMachine(const SchedulerOptions& options) : Machine(options, /*checked=*/false) {}

  void Add(SequenceId id) { Machine::Add({.id = id, .prompt = {1, 2}, .max_new_tokens = 60}); }

  // The visits of a micro-batch on its way through the scheduler, and its slices.
  std::pair<uint64_t, size_t> Step() {
    const uint64_t before = scheduler.counters().visits;
    const size_t slices = Submit().slices.size();
    Confirm();
    return {scheduler.counters().visits - before, slices};
  }
};

TEST(SchedulerCost, AMicroBatchLooksTwiceAtEverySequenceThatItHolds) {
  CountingMachine machine(Options());
  for (SequenceId id = 0; id < kSequences; ++id) machine.Add(id);
  for (int step = 0; step < 4; ++step) {  // the first one admits them all
    const auto [visits, slices] = machine.Step();
    EXPECT_EQ(slices, kSequences);
    EXPECT_EQ(visits, 2 * slices) << "step " << step;
  }
}

TEST(SchedulerCost, AMicroBatchLooksAtNobodyElse) {
  SchedulerOptions options = Options();
  options.micro_batches = 256;
  CountingMachine machine(options);
  for (SequenceId id = 0; id < kSequences; ++id) machine.Add(id);
  machine.Step();
  const auto [visits, slices] = machine.Step();  // of 1,024 decoding ones each of 256 micro-batches takes 4
  EXPECT_EQ(slices, 4u);
  EXPECT_EQ(visits, 8u);
}

TEST(SchedulerCost, AdmissionOfOneDoesNotDependOnHowManyRunOrWait) {
  SchedulerOptions options = Options();
  options.max_num_seqs = kSequences / 2 + 1;
  options.micro_batches = 256;
  CountingMachine machine(options);
  for (SequenceId id = 0; id < kSequences / 2; ++id) machine.Add(id);
  machine.Step();
  for (SequenceId id = kSequences / 2; id < kSequences; ++id) machine.Add(id);
  const auto [visits, slices] = machine.Step();
  EXPECT_EQ(slices, 2 + 1u) << "two decode rows and a prompt";
  EXPECT_EQ(visits, 2 * slices);
}

TEST(SchedulerCost, NoPolicyLooksAtThoseThatWait) {
  for (const auto& [policy, name] : kPolicies) {
    SchedulerOptions options = Options();
    options.max_num_seqs = 8;
    options.policy = policy;
    CountingMachine machine(options);
    for (SequenceId id = 0; id < kSequences; ++id) machine.Add(id);
    for (int step = 0; step < 20; ++step) {
      const auto [visits, slices] = machine.Step();
      EXPECT_EQ(visits, 2 * slices) << name << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace stagecoach
