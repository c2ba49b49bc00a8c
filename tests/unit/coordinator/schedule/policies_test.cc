// What the three policies put into micro-batches. A composition is written as "sequence:first row+rows ...".

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/schedule/scheduler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/schedule/simulated_stages.h"

namespace stagecoach {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

SchedulerOptions Options(Policy policy) {
  return {.max_num_seqs = 8,
          .max_num_batched_tokens = 128,
          .prefill_chunk = 64,
          .policy = policy,
          .block_tokens = 16,
          .group_blocks = {256},
          .context = 1024,
          .micro_batches = 1,
          .max_open_tokens = 4096};
}

class Composer {
 public:
  explicit Composer(const SchedulerOptions& options) : scheduler_(options), stages_(options) {}

  void Add(SequenceId id, int64_t prompt, int64_t new_tokens = 500) {
    SequenceSpec spec{.id = id, .max_new_tokens = new_tokens};
    spec.prompt.assign(prompt, 1);
    ASSERT_TRUE(scheduler_.Add(std::move(spec)).ok());
  }

  std::vector<SequenceSlice> Submit() {
    const std::optional<MicroBatch> batch = scheduler_.Next();
    EXPECT_TRUE(batch.has_value());
    if (!batch) return {};
    absl::StatusOr<StepResult> result = stages_.Run(*batch);
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok()) results_.push_back(*std::move(result));
    return batch->slices;
  }
  void Confirm() {
    EXPECT_TRUE(scheduler_.Confirm(results_.front()).ok());
    results_.pop_front();
  }
  std::vector<SequenceSlice> Step() {
    std::vector<SequenceSlice> slices = Submit();
    Confirm();
    return slices;
  }

  static std::string Describe(const std::vector<SequenceSlice>& slices) {
    return absl::StrJoin(slices, " ", [](std::string* out, const SequenceSlice& slice) {
      absl::StrAppend(out, slice.sequence, ":", slice.start, "+", slice.count);
    });
  }
  std::vector<std::string> Steps(int count) {
    std::vector<std::string> steps;
    for (int i = 0; i < count; ++i) steps.push_back(Describe(Step()));
    return steps;
  }
  bool busy() const { return scheduler_.HasUnfinished(); }

 private:
  Scheduler scheduler_;
  SimulatedStages stages_;
  std::deque<StepResult> results_;
};

// Sequence 1 decodes when the prompt of sequence 2 arrives.
std::vector<std::string> CompositionsBesideALongPrompt(Policy policy) {
  Composer composer(Options(policy));
  composer.Add(1, 5);
  composer.Step();
  composer.Add(2, 200);
  return composer.Steps(5);
}

TEST(Policies, DifferFromEachOtherOnTheSameArrivals) {
  EXPECT_THAT(CompositionsBesideALongPrompt(Policy::kPrefillFirst),
              ElementsAre("2:0+64", "2:64+64", "2:128+64", "2:192+8", "1:5+1 2:200+1"));
  EXPECT_THAT(CompositionsBesideALongPrompt(Policy::kInterleaved),
              ElementsAre("1:5+1 2:0+64", "1:6+1 2:64+64", "1:7+1 2:128+64", "1:8+1 2:192+8", "1:9+1 2:200+1"));
  EXPECT_THAT(CompositionsBesideALongPrompt(Policy::kDecodePriority),
              ElementsAre("1:5+1 2:0+32", "1:6+1 2:32+32", "1:7+1 2:64+32", "1:8+1 2:96+32", "1:9+1 2:128+32"));
}

TEST(Policies, DecodePriorityGivesWholeChunksWhenNoRowIsReady) {
  SchedulerOptions options = Options(Policy::kDecodePriority);
  options.micro_batches = 2;
  Composer composer(options);
  composer.Add(1, 5);
  composer.Step();
  composer.Add(2, 200);
  EXPECT_EQ(Composer::Describe(composer.Submit()), "1:5+1 2:0+32");
  EXPECT_EQ(Composer::Describe(composer.Submit()), "2:32+64") << "the only decode row is in flight";
}

TEST(Policies, DecodePriorityLetsNoPromptStarve) {
  Composer composer(Options(Policy::kDecodePriority));
  composer.Add(1, 5);
  composer.Step();
  composer.Add(2, 900);
  int32_t since = 0, full = 0;
  for (int step = 0; step < 20; ++step) {
    int32_t rows = 0;
    for (const SequenceSlice& slice : composer.Step()) rows += slice.sequence == 2 ? slice.count : 0;
    if (rows == 64) {
      ++full;
      EXPECT_EQ(since, kStarvationBound);
      since = 0;
    } else {
      EXPECT_EQ(rows, kPrefillQuantum);
      ++since;
    }
  }
  EXPECT_EQ(full, 2);
}

TEST(Policies, InterleavedLetsNoPromptStarveBesideDecodeRowsThatFillTheBudget) {
  SchedulerOptions options = Options(Policy::kInterleaved);
  options.max_num_batched_tokens = 4;
  Composer composer(options);
  for (SequenceId id = 1; id <= 4; ++id) composer.Add(id, 1);
  composer.Step();
  composer.Add(5, 40);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kStarvationBound; ++i) EXPECT_EQ(composer.Step().back().sequence, 4u);
    const std::vector<SequenceSlice> slices = composer.Step();
    EXPECT_EQ(Composer::Describe(slices), absl::StrCat("5:", 4 * round, "+4"));
  }
}

TEST(Policies, InterleavedFillsTheBudgetWithChunksOfSeveralPrompts) {
  Composer composer(Options(Policy::kInterleaved));
  composer.Add(1, 5);
  composer.Step();
  composer.Add(2, 70);
  composer.Add(3, 40);
  composer.Add(4, 90);
  EXPECT_THAT(composer.Steps(3),
              ElementsAre("1:5+1 2:0+64 3:0+40 4:0+23", "1:6+1 3:40+1 2:64+6 4:23+64", "1:7+1 2:70+1 3:41+1 4:87+3"));
}

TEST(Policies, PrefillFirstDecodesWhenTheNextPromptCannotBeAdmitted) {
  SchedulerOptions options = Options(Policy::kPrefillFirst);
  options.max_num_seqs = 1;
  Composer composer(options);
  composer.Add(1, 5, /*new_tokens=*/3);
  composer.Add(2, 5);
  EXPECT_THAT(composer.Steps(4), ElementsAre("1:0+5", "1:5+1", "1:6+1", "2:0+5"));
}

TEST(Policies, EverySequenceEndsUnderEveryPolicyWhilePromptsKeepArriving) {
  for (const Policy policy : {Policy::kPrefillFirst, Policy::kInterleaved, Policy::kDecodePriority}) {
    SchedulerOptions options = Options(policy);
    options.max_num_seqs = 3;
    Composer composer(options);
    for (SequenceId id = 1; id <= 100; ++id) {
      composer.Add(id, 100, /*new_tokens=*/4);
      composer.Step();
    }
    int steps = 0;
    while (composer.busy()) {
      composer.Step();
      ASSERT_LT(++steps, 1000) << PolicyName(policy);
    }
  }
}

TEST(DecodeRows, AreSpreadEvenlyOverTheMicroBatchesInFlight) {
  SchedulerOptions options = Options(Policy::kInterleaved);
  options.micro_batches = 4;
  Composer composer(options);
  for (SequenceId id = 1; id <= 7; ++id) composer.Add(id, 3);
  composer.Step();
  std::vector<std::vector<SequenceSlice>> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(composer.Submit());
  EXPECT_EQ(Composer::Describe(batches[0]), "1:3+1 2:3+1");
  EXPECT_EQ(Composer::Describe(batches[1]), "3:3+1 4:3+1");
  EXPECT_EQ(Composer::Describe(batches[2]), "5:3+1 6:3+1");
  EXPECT_EQ(Composer::Describe(batches[3]), "7:3+1") << "it does not wait for its share to fill up";
  for (int round = 0; round < 20; ++round) {
    composer.Confirm();
    EXPECT_THAT(composer.Submit(), SizeIs(round % 4 == 3 ? 1 : 2));
  }
}

TEST(DecodeRows, TakeTurnsEvenWhenOneMicroBatchIsInFlightAtATime) {
  SchedulerOptions options = Options(Policy::kInterleaved);
  options.micro_batches = 4;
  Composer composer(options);
  for (SequenceId id = 1; id <= 8; ++id) composer.Add(id, 3);
  composer.Step();
  std::map<SequenceId, int> rows;
  for (int step = 0; step < 40; ++step) {
    for (const SequenceSlice& slice : composer.Step()) ++rows[slice.sequence];
  }
  EXPECT_THAT(rows, SizeIs(8));
  EXPECT_THAT(rows, Each(::testing::Pair(::testing::_, 10)));
}

}  // namespace
}  // namespace stagecoach
