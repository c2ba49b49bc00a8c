// Attention over the paged cache does not depend on who computes what: walks that are cut over threads give the bits of
// walks that are not.

#include "stage_worker/model/attention.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "gtest/gtest.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kernels/select.h"
#include "tests/testing/sanitizers.h"

namespace stagecoach {
namespace {

constexpr int64_t kHeadDim = 32, kKvHeads = 2, kGroup = 2;
constexpr int32_t kBlockTokens = 32, kBlocks = 512;

// Rows [start, start + rows) of a sequence whose first `start` > 0 positions are in the cache.
struct Slice {
  int32_t start = 0;
  int32_t rows = 1;
};

float Random(uint64_t stream, int64_t index) {
  return static_cast<float>(2 * UniformAt(stream, static_cast<uint64_t>(index)) - 1);
}

constexpr int64_t kHidden = 64, kQWidth = kKvHeads * kGroup * kHeadDim;

LayerSpec Spec() {
  LayerSpec spec;
  spec.attention.heads = kKvHeads * kGroup;
  spec.attention.kv_heads = kKvHeads;
  spec.attention.head_dim = kHeadDim;
  spec.ffn.width = 64;
  return spec;
}

MicroBatch NextBatch(const std::vector<Slice>& slices, bool rows) {
  MicroBatch batch;
  BlockId next_block = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    SequenceSlice slice;
    slice.sequence = i + 1;
    slice.start = rows ? slices[i].start : 0;
    slice.count = rows ? slices[i].rows : slices[i].start;
    if (!rows) {
      OpenSequence open;
      open.sequence = slice.sequence;
      open.prompt = {1};
      batch.open.push_back(open);
      const int32_t blocks = (slices[i].start + slices[i].rows + kBlockTokens - 1) / kBlockTokens;
      slice.new_blocks.resize(1);
      for (int32_t b = 0; b < blocks; ++b) slice.new_blocks[0].push_back((next_block++ * 37 + 5) % kBlocks);
    }
    batch.slices.push_back(slice);
  }
  return batch;
}

std::vector<KvPool> PoolOf(KvType type) {
  std::vector<KvPool> pools;
  pools.push_back(KvPool::Create({1, kBlocks, kBlockTokens, kKvHeads, kHeadDim, type}).value());
  return pools;
}

// One step of attention over a cache of random numbers.
class Rig {
 public:
  Rig(const std::vector<Slice>& slices, int threads, KvType type)
      : sizes_({.max_rows = 128,
                .max_slices = 16,
                .context = 8192,
                .kv_heads = kKvHeads,
                .group = kGroup,
                .head_dim = kHeadDim,
                .threads = threads}),
        pools_(PoolOf(type)),
        table_(kBlockTokens, {kBlocks}, sizes_.context),
        plan_(sizes_),
        scratch_({.head_dim = kHeadDim,
                  .q_stride = kQWidth,
                  .kv_stride = kKvHeads * kHeadDim,
                  .input_width = kQWidth,
                  .ffn_width = kHidden,
                  .attention = sizes_}),
        gang_(threads, {}) {
    EXPECT_TRUE(table_.Apply(NextBatch(slices, false)).ok());
    const MicroBatch batch = NextBatch(slices, true);
    EXPECT_TRUE(table_.Apply(batch).ok());
    plan_.Build(batch, table_);
    for (size_t i = 0; i < slices.size(); ++i) Fill(i + 1, slices[i].start + slices[i].rows);
    float* q = scratch_.q.as<float>();
    for (int64_t row = 0; row < plan_.row_count(); ++row) {
      for (int64_t i = 0; i < kQWidth; ++i) {
        q[row * scratch_.q_stride + i] = 3 * Random(9, row * kQWidth + i);
      }
    }
  }

  // `layers` times, as the layers of a step do. The bits of all rows.
  std::vector<uint32_t> Run(int layers) {
    const StepContext step = {kHidden, kernels_, plan_, pools_, scratch_};
    std::fill_n(scratch_.attended.as<float>(), plan_.row_count() * scratch_.q_stride, -1.0f);
    for (int i = 0; i < layers; ++i) {
      gang_.Run([&](int thread) { Attend(layer_, step, {gang_, thread}); });
      EXPECT_EQ(scratch_.next_attention_work.load(), 0);
    }
    std::vector<uint32_t> bits(plan_.row_count() * scratch_.q_stride);
    std::memcpy(bits.data(), scratch_.attended.data(), bits.size() * sizeof(float));
    return bits;
  }

  const StepPlan& plan() const { return plan_; }

 private:
  void Fill(SequenceId sequence, int32_t positions) {
    const SequenceTable::Entry& entry = *table_.Find(sequence);
    std::vector<float> x(kHeadDim);
    for (int32_t p = 0; p < positions; ++p) {
      const BlockId block = entry.tables[0][p / kBlockTokens];
      const int32_t tile = p % kBlockTokens / kTilePositions, lane = p % kTilePositions;
      for (int64_t head = 0; head < kKvHeads; ++head) {
        for (int64_t d = 0; d < kHeadDim; ++d) x[d] = Random(sequence, (p * kKvHeads + head) * kHeadDim + d);
        kernels_.store_k(pools_[0].shape().type, x.data(), kHeadDim, lane, pools_[0].KTile(0, block, head, tile));
        for (float& value : x) value = -2 * value * value;
        kernels_.store_v(pools_[0].shape().type, x.data(), kHeadDim, lane, pools_[0].VTile(0, block, head, tile));
      }
    }
  }

  const LayerSpec spec_ = Spec();
  const LayerWeights no_weights_;
  const StageLayer layer_ = {.spec = spec_, .weights = no_weights_};
  const Kernels& kernels_ = *SelectKernels("auto").value();
  const AttentionSizes sizes_;
  std::vector<KvPool> pools_;
  SequenceTable table_;
  StepPlan plan_;
  StepScratch scratch_;
  Gang gang_;
};

std::string Name(const std::vector<Slice>& slices) {
  std::string name;
  for (const Slice& slice : slices) absl::StrAppend(&name, slice.rows, " rows at ", slice.start, "; ");
  return name;
}

// Whether each walk's pieces cover its granules once, in ascending order.
void ExpectWholeWalks(const StepPlan& plan) {
  std::vector<int32_t> covered(plan.cuts().size(), 0), pieces(plan.cuts().size(), 0);
  for (const AttentionWork& work : plan.attention()) {
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
    if (++pieces[work.cut] == plan.cuts()[work.cut].pieces) {
      EXPECT_EQ(work.end_granule, granules);
    }
  }
  for (size_t i = 0; i < pieces.size(); ++i) EXPECT_EQ(pieces[i], plan.cuts()[i].pieces);
}

TEST(CutAttention, GivesTheBitsOfWholeWalksForAnyNumberOfThreads) {
  const std::vector<std::vector<Slice>> steps = {
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
  for (const std::vector<Slice>& slices : steps) {
    Rig one(slices, 1, KvType::kF16);
    const std::vector<uint32_t> expected = one.Run(1);
    EXPECT_TRUE(one.plan().cuts().empty());
    for (int threads = 2; threads <= 8; threads += testing::kSanitized ? 3 : 1) {
      Rig rig(slices, threads, KvType::kF16);
      ExpectWholeWalks(rig.plan());
      EXPECT_EQ(rig.Run(3), expected) << threads << " threads, " << Name(slices);
    }
  }
}

TEST(CutAttention, GivesTheBitsOfWholeWalksForEveryStoredType) {
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kQ8_0}) {
    const std::vector<Slice> slices = {{1300}, {90, 3}};
    Rig rig(slices, 4, type);
    EXPECT_FALSE(rig.plan().cuts().empty());
    EXPECT_EQ(rig.Run(2), Rig(slices, 1, type).Run(1)) << KvTypeName(type);
  }
}

TEST(CutAttention, SharesALoneLongSequenceOverAllThreads) {
  for (const int threads : {2, 4, 8}) {
    const Rig rig({{8000}}, threads, KvType::kF16);
    EXPECT_EQ(rig.plan().cuts().size(), static_cast<size_t>(kKvHeads));
    EXPECT_GE(rig.plan().attention().size(), static_cast<size_t>(2 * threads));
  }
}

TEST(CutAttention, LeavesWholeWhatIsEnoughForAllThreads) {
  std::vector<Slice> many(16, Slice{400});
  EXPECT_TRUE(Rig(many, 8, KvType::kF16).plan().cuts().empty());
  EXPECT_TRUE(Rig({{16, 112}}, 2, KvType::kF16).plan().cuts().empty());
}

TEST(Attention, ASequenceCostsWhatItsOwnLengthAsksForWhateverElseIsInTheStep) {
  const auto granules_of_first_row = [](const std::vector<Slice>& slices, int threads) {
    const Rig rig(slices, threads, KvType::kF16);
    int64_t granules = 0;
    for (const AttentionWork& work : rig.plan().attention()) {
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
  AttentionSizes sizes = {
      .max_rows = 512, .max_slices = 64, .context = 1 << 20, .kv_heads = 8, .group = 4, .head_dim = 128, .threads = 64};
  EXPECT_LE(sizes.PartialColumns() * (2 + sizes.head_dim) * 4, 32 << 20);
  EXPECT_GE(sizes.PartialColumns(), sizes.context / kAttentionGranule * sizes.group);
  sizes.threads = 1;
  EXPECT_EQ(sizes.PartialColumns(), 0);
}

}  // namespace
}  // namespace stagecoach
