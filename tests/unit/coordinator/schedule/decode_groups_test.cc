// How decoding sequences are cut into groups, and how the groups keep their sizes.

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "coordinator/schedule/scheduler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/schedule/simulated_stages.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class DecodeGroups : public ::testing::Test {
 protected:
  static SchedulerOptions Options() {
    return {.max_num_seqs = 64,
            .max_num_batched_tokens = 512,
            .prefill_chunk = 64,
            .block_tokens = 16,
            .group_blocks = {1024},
            .context = 1024,
            .micro_batches = 4,
            .max_open_tokens = 65536};
  }

  // Adds sequences and computes their prompts, until all decode and nothing is in flight.
  void Decode(int sequences) {
    for (int i = 0; i < sequences; ++i) {
      ASSERT_TRUE(scheduler_.Add({.id = next_id_++, .prompt = {1, 2, 3}, .max_new_tokens = 400}).ok());
    }
    while (scheduler_.decoding() < static_cast<int64_t>(next_id_) - 1) {
      Fill();
      Return();
    }
    while (!results_.empty()) Return();
  }

  // Takes all there is; the sizes of what was taken.
  std::vector<int> Fill() {
    std::vector<int> sizes;
    while (std::optional<MicroBatch> batch = scheduler_.Next()) {
      sizes.push_back(batch->rows());
      absl::StatusOr<StepResult> result = stages_.Run(*batch);
      EXPECT_TRUE(result.ok()) << result.status();
      results_.push_back(*std::move(result));
      sizes_.push_back(batch->rows());
      EXPECT_TRUE(scheduler_.CheckIntegrity().ok()) << scheduler_.CheckIntegrity();
    }
    return sizes;
  }
  void Return() {
    ASSERT_FALSE(results_.empty());
    EXPECT_TRUE(scheduler_.Confirm(results_.front()).ok());
    results_.pop_front();
    sizes_.pop_front();
    EXPECT_TRUE(scheduler_.CheckIntegrity().ok()) << scheduler_.CheckIntegrity();
  }
  // One round: every group that is under way comes back once, and goes out again.
  void Round() {
    for (size_t left = results_.size(); left > 0; --left) {
      Return();
      Fill();
    }
  }
  std::vector<int> Sizes() const { return {sizes_.begin(), sizes_.end()}; }

  Scheduler scheduler_{Options()};
  SimulatedStages stages_{Options()};
  std::deque<StepResult> results_;
  std::deque<int> sizes_;  // of what is in flight
  SequenceId next_id_ = 1;
};

TEST_F(DecodeGroups, AreOfEqualSizeOrOneApart) {
  Decode(11);
  EXPECT_THAT(Fill(), ElementsAre(3, 3, 3, 2));
  for (int round = 0; round < 5; ++round) Round();
  EXPECT_THAT(Sizes(), UnorderedElementsAre(3, 3, 3, 2));
}

TEST_F(DecodeGroups, FewerThanMicroBatchesLeaveTheRestOfThemForPrompts) {
  Decode(8);
  scheduler_.SetDecodeGroups(2);
  EXPECT_THAT(Fill(), ElementsAre(4, 4));
  EXPECT_THAT(Fill(), IsEmpty());
  ASSERT_TRUE(scheduler_.Add({.id = 100, .prompt = std::vector<TokenId>(50, 1), .max_new_tokens = 4}).ok());
  EXPECT_THAT(Fill(), ElementsAre(50));
}

TEST(MoreDecodeGroups, ThanMicroBatchesHaveAsManyInFlightWhileThereAreSoMany) {
  SchedulerOptions options = {.max_num_seqs = 64,
                              .max_num_batched_tokens = 512,
                              .prefill_chunk = 64,
                              .block_tokens = 16,
                              .group_blocks = {1024},
                              .context = 1024,
                              .micro_batches = 2,
                              .most_groups = 3,
                              .max_open_tokens = 65536};
  Scheduler scheduler(options);
  SimulatedStages stages(options);
  EXPECT_EQ(scheduler.decode_groups(), 2);
  std::deque<StepResult> results;
  const auto fill = [&] {
    while (std::optional<MicroBatch> batch = scheduler.Next()) results.push_back(*stages.Run(*batch));
    EXPECT_TRUE(scheduler.CheckIntegrity().ok()) << scheduler.CheckIntegrity();
  };
  for (SequenceId id = 1; id <= 6; ++id) {
    ASSERT_TRUE(scheduler.Add({.id = id, .prompt = std::vector<TokenId>(64, 1), .max_new_tokens = 400}).ok());
  }
  fill();
  const auto round = [&] {
    for (size_t left = results.size(); left > 0; --left) {
      ASSERT_TRUE(scheduler.Confirm(results.front()).ok());
      results.pop_front();
      fill();
    }
  };
  while (scheduler.decoding() < 6) round();
  for (int i = 0; i < 3; ++i) round();
  EXPECT_EQ(results.size(), 2u);
  scheduler.SetDecodeGroups(3);
  for (int i = 0; i < 3; ++i) round();
  EXPECT_EQ(results.size(), 3u);
  for (const StepResult& result : results) EXPECT_EQ(result.sampled.size(), 2u);
  scheduler.SetDecodeGroups(2);  // with three in flight
  for (int i = 0; i < 3; ++i) round();
  EXPECT_EQ(results.size(), 2u);
}

TEST_F(DecodeGroups, AreCutAnewAsTheyComeBackWhenTheirNumberChanges) {
  Decode(8);
  Fill();
  EXPECT_THAT(Sizes(), ElementsAre(2, 2, 2, 2));
  scheduler_.SetDecodeGroups(1);
  // What comes back waits until all have, for there must be one group only.
  Return();
  EXPECT_THAT(Fill(), IsEmpty());
  Return();
  Return();
  EXPECT_THAT(Fill(), IsEmpty());
  Return();
  EXPECT_THAT(Fill(), ElementsAre(8));
  scheduler_.SetDecodeGroups(4);
  Return();
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
  for (int round = 0; round < 3; ++round) Round();
  EXPECT_THAT(Sizes(), UnorderedElementsAre(2, 2));
  Return();
  Return();
  scheduler_.SetDecodeGroups(3);
  Fill();
  EXPECT_THAT(Sizes(), UnorderedElementsAre(2, 1, 1));
}

}  // namespace
}  // namespace stagecoach
