// Attention over the paged cache does not depend on who computes what: walks that are cut over threads give the bits of
// walks that are not.

#include "stage_worker/model/attention/attention.h"

#include "gtest/gtest.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/stage_worker/model/attention/attention_rig.h"

namespace stagecoach {
namespace {

constexpr int64_t kHeadDim = 32, kKvHeads = 2, kGroup = 2;

AttentionSpec Spec() {
  return {.heads = kKvHeads * kGroup,
          .kv_heads = kKvHeads,
          .head_dim = kHeadDim,
          .value_dim = kHeadDim,
          .score_scale = 0.18};
}

class Rig : public testing::AttentionRig {
 public:
  Rig(const std::vector<testing::CachedSlice>& slices, int threads, KvType type)
      : AttentionRig(Spec(), slices, threads, type) {}
};

// Whether each walk's pieces cover its granules once, in ascending order.
void ExpectWholeWalks(const StepPlan& plan) {
  std::vector<int32_t> covered(plan.walks(0).cuts().size(), 0), pieces(plan.walks(0).cuts().size(), 0);
  for (const AttentionWork& work : plan.walks(0).work()) {
    const int32_t granules = static_cast<int32_t>(
        (plan.rows()[work.first_row].position + work.rows + kAttentionGranule - 1) / kAttentionGranule);
    if (work.cut < 0) {
      EXPECT_EQ(work.begin_granule, 0);
      EXPECT_EQ(work.end_granule, granules);
      continue;
    }
    EXPECT_EQ(work.begin_granule, covered[work.cut]);
    EXPECT_GT(work.end_granule, work.begin_granule);
    covered[work.cut] = work.end_granule;
    if (++pieces[work.cut] == plan.walks(0).cuts()[work.cut].pieces) {
      EXPECT_EQ(work.end_granule, granules);
    }
  }
  for (size_t i = 0; i < pieces.size(); ++i) EXPECT_EQ(pieces[i], plan.walks(0).cuts()[i].pieces);
}

TEST(CutAttention, GivesTheBitsOfWholeWalksForAnyNumberOfThreads) {
  const std::vector<std::vector<testing::CachedSlice>> steps = {
      {{254}},
      {{255}},
      {{256}},
      {{257}},
      {{511}},
      {{512}},
      {{600}},
      {{1100}},        // around the borders of granules
      {{2000}, {40}},  // a long sequence beside a short one
      {{700}, {300}, {1500}, {16, 5}},
      {{768, 8}},            // a short chunk
      {{250, 12}, {1023}},   // whose rows see different numbers of granules
      {{1000, 100}, {900}},  // a chunk of several walks
  };
  for (const std::vector<testing::CachedSlice>& slices : steps) {
    Rig one(slices, 1, KvType::kF16);
    const std::vector<uint32_t> expected = one.Run(1);
    EXPECT_TRUE(one.plan().walks(0).cuts().empty());
    for (int threads = 2; threads <= 8; threads += testing::kSanitized ? 3 : 1) {
      Rig rig(slices, threads, KvType::kF16);
      ExpectWholeWalks(rig.plan());
      EXPECT_EQ(rig.Run(3), expected) << threads << " threads, " << testing::Name(slices);
    }
  }
}

TEST(CutAttention, GivesTheBitsOfWholeWalksForEveryStoredType) {
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kQ8_0}) {
    const std::vector<testing::CachedSlice> slices = {{1300}, {90, 3}};
    Rig rig(slices, 4, type);
    EXPECT_FALSE(rig.plan().walks(0).cuts().empty());
    EXPECT_EQ(rig.Run(2), Rig(slices, 1, type).Run(1)) << KvTypeName(type);
  }
}

TEST(CutAttention, SharesALoneLongSequenceOverAllThreads) {
  for (const int threads : {2, 4, 8}) {
    const Rig rig({{8000}}, threads, KvType::kF16);
    EXPECT_EQ(rig.plan().walks(0).cuts().size(), static_cast<size_t>(kKvHeads));
    EXPECT_GE(rig.plan().walks(0).work().size(), static_cast<size_t>(2 * threads));
  }
}

TEST(CutAttention, LeavesWholeWhatIsEnoughForAllThreads) {
  std::vector<testing::CachedSlice> many(16, testing::CachedSlice{400});
  EXPECT_TRUE(Rig(many, 8, KvType::kF16).plan().walks(0).cuts().empty());
  EXPECT_TRUE(Rig({{16, 112}}, 2, KvType::kF16).plan().walks(0).cuts().empty());
}

TEST(Attention, ASequenceCostsWhatItsOwnLengthAsksForWhateverElseIsInTheStep) {
  const auto granules_of_first_row = [](const std::vector<testing::CachedSlice>& slices, int threads) {
    const Rig rig(slices, threads, KvType::kF16);
    int64_t granules = 0;
    for (const AttentionWork& work : rig.plan().walks(0).work()) {
      if (work.first_row == 0) granules += work.end_granule - work.begin_granule;
    }
    return granules;
  };
  for (const int threads : {1, 4}) {
    EXPECT_EQ(granules_of_first_row({{700}}, threads), 3 * kKvHeads);
    EXPECT_EQ(granules_of_first_row({{700}, {5000}, {6000}}, threads), 3 * kKvHeads);
    EXPECT_EQ(granules_of_first_row({{700}, {10}, {20}, {30}}, threads), 3 * kKvHeads);
  }
}

TEST(Attention, PartialStatesTakeLittleMemoryAtAnyContext) {
  AttentionSizes sizes = {.max_rows = 512,
                          .max_slices = 64,
                          .context = 1 << 20,
                          .head_groups = 8,
                          .group = 4,
                          .key_dim = 128,
                          .value_dim = 128,
                          .threads = 64};
  EXPECT_LE(sizes.PartialColumns() * (2 + sizes.value_dim) * 4, 32 << 20);
  EXPECT_GE(sizes.PartialColumns(), sizes.context / kAttentionGranule * sizes.group);
  sizes.threads = 1;
  EXPECT_EQ(sizes.PartialColumns(), 0);
}

}  // namespace
}  // namespace stagecoach
