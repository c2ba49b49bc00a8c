// Windows, sinks, capped scores and latent attention: against double, and to the bit whoever computes what.

#include <algorithm>
#include <cmath>

#include "common/base/counter_rng.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/model/attention/attention.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/stage_worker/model/attention/attention_rig.h"

namespace stagecoach::testing {
namespace {

struct AttentionCase {
  const char* name;
  AttentionSpec spec;
  std::vector<float> sinks;
};

AttentionSpec Grouped(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  AttentionSpec spec;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = spec.value_dim = head_dim;
  spec.score_scale = 1 / std::sqrt(static_cast<double>(head_dim));
  return spec;
}

AttentionSpec Windowed(int64_t window) {
  AttentionSpec spec = Grouped(4, 2, 32);
  spec.kind = AttentionKind::kWindowed;
  spec.window = window;
  return spec;
}

AttentionSpec Latent(int64_t heads, int64_t rank, int64_t rotated) {
  AttentionSpec spec = Grouped(heads, 1, 64);
  spec.kv_rank = rank;
  spec.rope.dims = rotated;
  spec.score_scale = 0.135;
  return spec;
}

std::vector<AttentionCase> Cases() {
  std::vector<AttentionCase> cases = {
      {"full", Grouped(4, 2, 32), {}},    {"oddWidths", Grouped(3, 1, 22), {}},
      {"windowOfOne", Windowed(1), {}},   {"windowOf7", Windowed(7), {}},
      {"windowOf128", Windowed(128), {}}, {"windowOf300", Windowed(300), {}},
      {"latent", Latent(4, 96, 32), {}},  {"latentOfManyHeads", Latent(66, 32, 32), {}},  // two walks of 33 heads
  };
  AttentionCase sinks = {"sinks", Grouped(4, 2, 32), {1.5f, -2.0f, 0.25f, 3.0f}};
  sinks.spec.sinks = true;
  cases.push_back(sinks);
  sinks = {"sinksBehindAWindow", Windowed(40), {4.5f, -2.0f, 0.25f, 3.0f}};
  sinks.spec.sinks = true;
  cases.push_back(sinks);
  AttentionCase capped = {"capped", Grouped(4, 4, 32), {}};
  capped.spec.score_cap = 2;
  capped.spec.score_scale = 0.5;
  cases.push_back(capped);
  return cases;
}

class AttentionOfKind : public ::testing::TestWithParam<AttentionCase> {
 protected:
  AttentionRig RigOf(const std::vector<CachedSlice>& slices, int threads, KvType type = KvType::kF32) const {
    return AttentionRig(GetParam().spec, slices, threads, type, GetParam().sinks);
  }
};

TEST_P(AttentionOfKind, IsWhatTheFormulaSays) {
  for (const std::vector<CachedSlice>& slices :
       std::vector<std::vector<CachedSlice>>{{{1}, {300}, {15, 3}}, {{250, 40}}, {{700, 2}, {511, 2}}}) {
    AttentionRig rig = RigOf(slices, 1);
    const std::vector<std::vector<float>> ours = rig.Rows(1);
    const std::vector<std::vector<double>> naive = rig.NaiveRows();
    ASSERT_EQ(ours.size(), naive.size());
    double worst = 0;
    for (size_t row = 0; row < naive.size(); ++row) {
      ASSERT_EQ(ours[row].size(), naive[row].size());
      for (size_t i = 0; i < naive[row].size(); ++i) {
        worst = std::max(worst, std::fabs(static_cast<double>(ours[row][i]) - naive[row][i]));
      }
    }
    EXPECT_LE(worst, 1e-5) << Name(slices);
  }
}

TEST_P(AttentionOfKind, HasTheSameBitsForAnyNumberOfThreads) {
  const KvType types[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0};
  for (const KvType type : types) {
    if (type == KvType::kQ8_0 && GetParam().spec.key_dim() % kKvGroup != 0) continue;
    for (const std::vector<CachedSlice>& slices : std::vector<std::vector<CachedSlice>>{{{1100}}, {{600}, {250, 12}}}) {
      const std::vector<uint32_t> expected = RigOf(slices, 1, type).Run(1);
      for (const int threads : {2, 3, 8}) {
        if (kSanitized && threads == 3) continue;
        EXPECT_EQ(RigOf(slices, threads, type).Run(2), expected)
            << threads << " threads, " << KvTypeName(type) << ", " << Name(slices);
      }
    }
  }
}

TEST_P(AttentionOfKind, HasTheSameBitsInAnyChunk) {
  const CachedSlice chunk = {240, 60};
  const std::vector<std::vector<float>> together = RigOf({chunk}, 2, KvType::kF16).Rows(1);
  for (const int32_t row : {0, 1, 15, 16, 17, 33, 59}) {
    EXPECT_EQ(RigOf({{chunk.start + row}}, 1, KvType::kF16).Rows(1)[0], together[static_cast<size_t>(row)])
        << "row " << row;
  }
  const std::vector<std::vector<float>> second = RigOf({{260, 40}}, 3, KvType::kF16).Rows(1);
  for (size_t row = 0; row < second.size(); ++row) EXPECT_EQ(second[row], together[20 + row]);
}

INSTANTIATE_TEST_SUITE_P(Kinds, AttentionOfKind, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(WindowedAttention, TouchesNoBlockBeforeTheWindow) {
  for (const int64_t window : {1, 7, 33, 128, 256, 300}) {
    for (const std::vector<CachedSlice>& slices :
         std::vector<std::vector<CachedSlice>>{{{1100}}, {{256}}, {{255}}, {{2000}, {40}}, {{1000, 60}, {513, 3}}}) {
      for (const int threads : {1, 4}) {
        AttentionRig whole(Windowed(window), slices, threads, KvType::kF16);
        AttentionRig released(Windowed(window), slices, threads, KvType::kF16);
        released.ReleaseBlocksBeforeTheWindow();
        EXPECT_EQ(released.Run(1), whole.Run(1)) << "window of " << window << ", " << Name(slices);
      }
    }
  }
}

TEST(WindowedAttention, ReadsTheGranulesOfTheWindowAlone) {
  const auto granules = [](int64_t window, const CachedSlice& slice) {
    const AttentionRig rig(Windowed(window), {slice}, 1, KvType::kF16);
    int64_t count = 0;
    for (const AttentionWork& work : rig.plan().walks(0).work()) count += work.end_granule - work.begin_granule;
    return count;
  };
  constexpr int64_t kHeads = 2;
  EXPECT_EQ(granules(128, {5000}), 1 * kHeads);
  EXPECT_EQ(granules(128, {5120}), 2 * kHeads);  // the first row of a granule
  EXPECT_EQ(granules(1, {5120}), 1 * kHeads);
  EXPECT_EQ(granules(512, {5119}), 2 * kHeads);
  EXPECT_EQ(granules(512, {5120}), 3 * kHeads);
}

TEST(WindowedAttention, AsLargeAsTheContextHasTheBitsOfFullAttention) {
  const std::vector<CachedSlice> slices = {{700, 3}, {255, 2}};
  EXPECT_EQ(AttentionRig(Windowed(8192), slices, 2, KvType::kF16).Run(1),
            AttentionRig(Grouped(4, 2, 32), slices, 1, KvType::kF16).Run(1));
}

TEST(WindowedAttention, TakesNoMoreRoomForPartialStatesThanItsWindowAsksFor) {
  const StepLimits limits = {.max_rows = 64, .max_slices = 8, .context = 65536, .threads = 4};
  const AttentionSizes windowed = AttentionSizes::Of(Windowed(128), limits);
  EXPECT_LE(windowed.GranulesPerWalk(), 2);
  EXPECT_LT(windowed.PartialColumns(), AttentionSizes::Of(Grouped(4, 2, 32), limits).PartialColumns() / 100);
}

TEST(LatentAttention, TakesHeadsInPartsThatSeveralThreadsShare) {
  const StepLimits limits = {.max_rows = 64, .max_slices = 8, .context = 4096, .threads = 4};
  const auto parts = [&](int64_t heads) {
    const AttentionSizes sizes = AttentionSizes::Of(Latent(heads, 512, 64), limits);
    EXPECT_EQ(sizes.head_groups * sizes.group, heads);
    return sizes.head_groups;
  };
  EXPECT_EQ(parts(1), 1);
  EXPECT_EQ(parts(20), 1);
  EXPECT_EQ(parts(64), 1);
  EXPECT_EQ(parts(96), 2);
  EXPECT_EQ(parts(128), 2);
}

TEST(LatentAttention, ValuesAreWhatStoringThemApartWouldHaveKept) {
  const Kernels& kernels = *SelectKernels("auto").value();
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    for (const auto& [key_dim, value_dim] : {std::pair<int64_t, int64_t>{576, 512}, {64, 32}, {58, 42}}) {
      if (type == KvType::kQ8_0 && key_dim % kKvGroup != 0) continue;
      std::vector<uint8_t> keys(KvTileBytes(type, key_dim)), values(KvTileBytes(type, value_dim)), laid_out(values);
      for (int lane = 0; lane < kTilePositions; ++lane) {
        std::vector<float> row(static_cast<size_t>(key_dim));
        for (size_t d = 0; d < row.size(); ++d) {
          row[d] = static_cast<float>(UniformAt(7, static_cast<uint64_t>(lane) * 1000 + d) - 0.5);
        }
        kernels.store_k(type, row.data(), static_cast<int>(key_dim), lane, keys.data());
        kernels.store_v(type, row.data(), static_cast<int>(value_dim), lane, values.data());
      }
      LayOutValues(type, keys.data(), key_dim, value_dim, laid_out.data());
      EXPECT_EQ(laid_out, values) << KvTypeName(type) << ", " << key_dim;
    }
  }
}

}  // namespace
}  // namespace stagecoach::testing
