// How the groups of decoding sequences keep their sizes.

#include <optional>
#include <vector>

#include "coordinator/schedule/scheduler.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"

namespace stagecoach {
namespace {

struct DecodeGroups : ::testing::Test {
  static SchedulerOptions Options() {
    return {{.max_num_seqs = 64,
             .policy = Policy::kInterleaved,
             .max_num_batched_tokens = 512,
             .prefill_chunk = 64,
             .block_tokens = 16,
             .prefix_caching = false},
            {.group_blocks = {1024}, .context = 1024, .micro_batches = 4, .max_open_tokens = 65536}};
  }

  // Adds sequences and computes their prompts, until all decode and nothing is in flight.
  void Decode(int sequences) {
    for (int i = 0; i < sequences; ++i) {
      machine_.Add({.id = next_id_++, .prompt = {1, 2, 3}, .max_new_tokens = 400});
    }
    while (scheduler_.decoding() < static_cast<int64_t>(next_id_) - 1) {
      Fill();
      machine_.Confirm();
    }
    while (!machine_.results.empty()) machine_.Confirm();
  }

  // Takes all there is; the sizes of what was taken.
  std::vector<int> Fill() {
    std::vector<int> sizes;
    while (const std::optional<MicroBatch> batch = machine_.TrySubmit()) sizes.push_back(batch->rows());
    return sizes;
  }
  // Every group that is under way comes back once, and goes out again.
  void Rounds(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (size_t left = machine_.results.size(); left > 0; --left) {
        machine_.Confirm();
        Fill();
      }
    }
  }
  // Of what is in flight.
  std::vector<int> Sizes() const {
    std::vector<int> sizes;
    for (const MicroBatch& batch : machine_.batches) sizes.push_back(batch.rows());
    return sizes;
  }

  explicit DecodeGroups(const SchedulerOptions& options = Options()) : machine_(options) {}
  Machine machine_;
  Scheduler& scheduler_ = machine_.scheduler;
  SequenceId next_id_ = 1;
};

class MoreDecodeGroups : public DecodeGroups {
 protected:
  static SchedulerOptions MoreGroups() {
    SchedulerOptions options = Options();
    options.micro_batches = 2;
    options.most_groups = 3;
    return options;
  }
  MoreDecodeGroups() : DecodeGroups(MoreGroups()) {}
};

TEST_F(DecodeGroups, AreOfEqualSizeOrOneApart) {
  Decode(11);
  EXPECT_THAT(Fill(), ElementsAre(3, 3, 3, 2));
  Rounds(5);
  EXPECT_THAT(Sizes(), UnorderedElementsAre(3, 3, 3, 2));
}

TEST_F(DecodeGroups, FewerThanMicroBatchesLeaveTheRestOfThemForPrompts) {
  Decode(8);
  scheduler_.SetDecodeGroups(2);
  EXPECT_THAT(Fill(), ElementsAre(4, 4));
  EXPECT_THAT(Fill(), IsEmpty());
  machine_.Add({.id = 100, .prompt = std::vector<TokenId>(50, 1), .max_new_tokens = 4});
  EXPECT_THAT(Fill(), ElementsAre(50));
}

TEST_F(MoreDecodeGroups, ThanMicroBatchesHaveAsManyInFlightWhileThereAreSoMany) {
  EXPECT_EQ(scheduler_.decode_groups(), 2);
  for (SequenceId id = 1; id <= 6; ++id) {
    machine_.Add({.id = id, .prompt = std::vector<TokenId>(64, 1), .max_new_tokens = 400});
  }
  Fill();
  while (scheduler_.decoding() < 6) Rounds(1);
  Rounds(3);
  EXPECT_EQ(machine_.results.size(), 2u);
  scheduler_.SetDecodeGroups(3);
  Rounds(3);
  EXPECT_EQ(machine_.results.size(), 3u);
  for (const StepResult& result : machine_.results) EXPECT_EQ(result.sampled.size(), 2u);
  scheduler_.SetDecodeGroups(2);  // with three in flight
  Rounds(3);
  EXPECT_EQ(machine_.results.size(), 2u);
}

TEST_F(DecodeGroups, AreCutAnewAsTheyComeBackWhenTheirNumberChanges) {
  Decode(8);
  Fill();
  EXPECT_THAT(Sizes(), ElementsAre(2, 2, 2, 2));
  scheduler_.SetDecodeGroups(1);
  // What comes back waits until all have, for there must be one group only.
  machine_.Confirm();
  EXPECT_THAT(Fill(), IsEmpty());
  machine_.Confirm();
  machine_.Confirm();
  EXPECT_THAT(Fill(), IsEmpty());
  machine_.Confirm();
  EXPECT_THAT(Fill(), ElementsAre(8));
  scheduler_.SetDecodeGroups(4);
  machine_.Confirm();
  EXPECT_THAT(Fill(), ElementsAre(2, 2, 2, 2));
}

TEST_F(DecodeGroups, MergeFragmentsWhenTheyDrift) {
  Decode(7);
  scheduler_.SetDecodeGroups(2);
  Fill();
  EXPECT_THAT(Sizes(), ElementsAre(4, 3));
  // Sequences that end leave groups uneven, until these come back.
  ASSERT_TRUE(scheduler_.Cancel(1).ok());
  ASSERT_TRUE(scheduler_.Cancel(2).ok());
  ASSERT_TRUE(scheduler_.Cancel(3).ok());
  Rounds(3);
  EXPECT_THAT(Sizes(), UnorderedElementsAre(2, 2));
  machine_.Confirm();
  machine_.Confirm();
  scheduler_.SetDecodeGroups(3);
  Fill();
  EXPECT_THAT(Sizes(), UnorderedElementsAre(2, 1, 1));
}

}  // namespace
}  // namespace stagecoach
