#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/layers/step_context.h"

namespace stagecoach {
namespace {

constexpr int32_t kTokensOfABlock = 32;

// Two threads and 32 rows to a walk. A walk of 32 rows over g granules that is cut into p pieces has
// 1 + g - g / p partial states of 64 columns; there is room for 64 columns a granule of the context.
AttentionSizes SizesFor(int64_t context, int64_t head_groups) {
  return {.max_rows = 128,
          .max_slices = 8,
          .context = context,
          .head_groups = head_groups,
          .group = 2,
          .key_dim = 32,
          .value_dim = 32,
          .threads = 2};
}

// Sequences 1, 2, ... whose last 32 rows of `lengths` positions are the batch.
class PlanRig {
 public:
  PlanRig(const AttentionSizes& sizes, const std::vector<int32_t>& lengths)
      : table_(kTokensOfABlock, {4096}, sizes.context),
        plan_({.limits = {.max_rows = sizes.max_rows, .max_slices = sizes.max_slices}, .walks = {sizes}}) {
    BlockId next_block = 0;
    MicroBatch stored;
    for (size_t i = 0; i < lengths.size(); ++i) {
      stored.open.push_back({.sequence = i + 1, .prompt = {1}});
      SequenceSlice slice{.sequence = i + 1, .start = 0, .count = lengths[i]};
      slice.new_blocks.resize(1);
      for (int32_t b = 0; b * kTokensOfABlock < lengths[i]; ++b) slice.new_blocks[0].push_back(next_block++);
      stored.slices.push_back(slice);
      batch_.slices.push_back({.sequence = i + 1, .start = lengths[i] - 32, .count = 32});
    }
    EXPECT_TRUE(table_.Apply(stored).ok());
    Build();
  }

  void Build() { plan_.Build(batch_, table_); }
  const WalkPlan& plan() const { return plan_.walks(0); }

 private:
  SequenceTable table_;
  MicroBatch batch_;
  StepPlan plan_;
};

// Partial states lie behind each other, in the memory that is there.
void ExpectWithinTheRoom(const WalkPlan& plan, const AttentionSizes& sizes) {
  int64_t columns = 0;
  for (const AttentionCut& cut : plan.cuts()) {
    EXPECT_EQ(cut.first_column, columns);
    columns += int64_t{cut.partials} * cut.columns;
  }
  EXPECT_LE(columns, sizes.PartialColumns());
  EXPECT_LE(plan.cuts().size(), static_cast<size_t>(sizes.MaxCuts()));
}

TEST(StepPlan, CutsAWalkThatJustFitsIntoTheRoomForPartialStates) {
  const AttentionSizes sizes = SizesFor(8 * kAttentionGranule, 1);
  const PlanRig rig(sizes, {8 * kAttentionGranule});
  ASSERT_EQ(rig.plan().cuts().size(), 1u);
  EXPECT_EQ(rig.plan().cuts()[0].pieces, 8);
  EXPECT_EQ(rig.plan().cuts()[0].partials * rig.plan().cuts()[0].columns, sizes.PartialColumns());
}

TEST(StepPlan, LeavesAWalkWholeWhenItsPartialStatesFindNoRoomEvenAlone) {
  AttentionSizes sizes = SizesFor(8 * kAttentionGranule, 1);
  sizes.value_dim = 16777;  // so wide that the room is bounded by its bytes
  ASSERT_GT(sizes.PartialColumns(), 0);
  ASSERT_LT(sizes.PartialColumns(), 8 * 64);
  const PlanRig rig(sizes, {8 * kAttentionGranule});
  EXPECT_TRUE(rig.plan().cuts().empty());
  ASSERT_EQ(rig.plan().work().size(), 1u);
  EXPECT_EQ(rig.plan().work()[0].cut, -1);
  EXPECT_EQ(rig.plan().work()[0].begin_granule, 0);
  EXPECT_EQ(rig.plan().work()[0].end_granule, 8);
}

TEST(StepPlan, LeavesWholeTheWalksThatFindNoRoomBesideTheOthers) {
  // Each of the two heads' walks would need 22 partial states of 64 columns; there is room for 32 such.
  const AttentionSizes sizes = SizesFor(32 * kAttentionGranule, 2);
  PlanRig rig(sizes, {28 * kAttentionGranule});
  for (int i = 0; i < 2; ++i) {  // a step begins with all of the room
    ASSERT_EQ(rig.plan().cuts().size(), 1u);
    EXPECT_EQ(rig.plan().cuts()[0].partials, 22);
    ExpectWithinTheRoom(rig.plan(), sizes);
    ASSERT_EQ(rig.plan().work().size(), 5u);
    for (size_t piece = 0; piece < 4; ++piece) EXPECT_EQ(rig.plan().work()[piece].cut, 0);
    EXPECT_EQ(rig.plan().work()[4].cut, -1);
    EXPECT_EQ(rig.plan().work()[4].head_group, 1);
    EXPECT_EQ(rig.plan().work()[4].end_granule, 28);
    rig.Build();
  }
}

TEST(StepPlan, StaysWithinTheRoomForAnyMixOfLengths) {
  const std::vector<std::vector<int32_t>> steps = {
      {8000, 300}, {300, 8000}, {4000, 4000}, {8192, 8192, 8192, 8192}, {2000, 500, 5000}, {8192, 1000, 1000, 64}};
  for (const int threads : {2, 3, 8, 64}) {
    for (const int64_t context : {8192, 8400, 32768}) {
      AttentionSizes sizes = SizesFor(context, 2);
      sizes.threads = threads;
      for (const std::vector<int32_t>& lengths : steps) {
        const PlanRig rig(sizes, lengths);
        ExpectWithinTheRoom(rig.plan(), sizes);
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach
