#include <algorithm>
#include <cmath>

#include "tests/testing/sanitizers.h"
#include "tests/unit/stage_worker/kernels/attend_granule.h"

namespace stagecoach {
namespace {

// What limits look like: all the same, a causal diagonal, and a mixture with columns that see nothing.
std::vector<int32_t> Limits(int pattern, int columns, int written) {
  std::vector<int32_t> limits(columns, written);
  for (int c = 0; c < columns; ++c) {
    if (pattern == 1) limits[c] = std::max(1, written - columns + 1 + c);
    if (pattern == 2)
      limits[c] = static_cast<int32_t>(UniformAt(77, c * 1000 + written) * (written + 1)) * (c % 3 != 1);
  }
  return limits;
}

TEST(Attend, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  uint64_t seed = 100;
  for (KvType type : kTypes) {
    for (int head_dim : {2, 20, 32, 64, 80, 96, 128, 256}) {
      if (!Fits(type, head_dim)) continue;
      // The sanitizers see these two in the test of each instruction set.
      if (testing::kSanitized && (head_dim == 64 || head_dim == 128)) continue;
      for (int written : {1, 15, 16, 100, 256}) {
        const Granule first(Scalar(), type, head_dim, 256, seed += 2);
        const Granule second(Scalar(), type, head_dim, written, seed += 2);
        for (int columns : {1, 2, 3, 4, 5, 7, 8, 11, 17}) {
          // They, and an emulator, see half of the others, each number of columns with each of positions for some size
          // of heads.
          if (testing::kSlow && (columns + columns / 4 + written + head_dim / 16) % 2 != 0) continue;
          const std::vector<int32_t> full = Limits(0, columns, 256);
          const std::vector<int32_t> limits = Limits((columns + written) % 3, columns, written);
          const int64_t stride = head_dim + 3;
          const std::vector<float> q = RandomFloats(++seed, columns * stride, 1.0);
          State expected(columns, head_dim);
          if (columns % 2 == 0)
            Scalar().attend(first.span(), q.data(), stride, nullptr, full.data(), columns, expected.view());
          State before = expected;
          Scalar().attend(second.span(), q.data(), stride, nullptr, limits.data(), columns, expected.view());
          for (const Kernels* kernels : vector_kernels) {
            State found = before;
            kernels->attend(second.span(), q.data(), stride, nullptr, limits.data(), columns, found.view());
            ASSERT_EQ(Difference(expected, found), "")
                << kernels->isa << " " << KvTypeName(type) << " head_dim " << head_dim << " positions " << written
                << " columns " << columns;
          }
        }
      }
    }
  }
}

TEST(Attend, GivesTheSameBitsWhenAWeightVanishes) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  const int head_dim = 64, columns = 6;
  const Granule granule(Scalar(), KvType::kF32, head_dim, 200, 7,
                        30.0);  // scores hundreds apart: most weights are 0 or subnormal
  const std::vector<float> q = RandomFloats(8, columns * head_dim, 1.0);
  const std::vector<int32_t> limits = Limits(1, columns, 200);
  State expected(columns, head_dim);
  Scalar().attend(granule.span(), q.data(), head_dim, nullptr, limits.data(), columns, expected.view());
  for (const Kernels* kernels : vector_kernels) {
    State found(columns, head_dim);
    kernels->attend(granule.span(), q.data(), head_dim, nullptr, limits.data(), columns, found.view());
    EXPECT_EQ(Difference(expected, found), "") << kernels->isa;
  }
}

TEST(StoreKv, GivesTheSameBytesWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (KvType type : kTypes) {
    for (int head_dim : {2, 20, 64, 80, 128}) {
      if (!Fits(type, head_dim)) continue;
      std::vector<float> k = RandomMagnitudes(31, head_dim, -9, 6), v = RandomMagnitudes(32, head_dim, -45, 38);
      k[1] = std::numeric_limits<float>::infinity();
      v[0] = std::numeric_limits<float>::quiet_NaN();
      const size_t bytes = KvTileBytes(type, head_dim);
      for (int lane : {0, 7, 15}) {
        std::vector<uint8_t> k_expected(bytes, 0xab), v_expected(bytes, 0xcd);
        Scalar().store_k(type, k.data(), head_dim, lane, k_expected.data());
        Scalar().store_v(type, v.data(), head_dim, lane, v_expected.data());
        for (const Kernels* kernels : vector_kernels) {
          std::vector<uint8_t> k_found(bytes, 0xab), v_found(bytes, 0xcd);
          kernels->store_k(type, k.data(), head_dim, lane, k_found.data());
          kernels->store_v(type, v.data(), head_dim, lane, v_found.data());
          EXPECT_EQ(k_found, k_expected) << kernels->isa << " " << KvTypeName(type) << " " << head_dim;
          EXPECT_EQ(v_found, v_expected) << kernels->isa << " " << KvTypeName(type) << " " << head_dim;
        }
      }
    }
  }
}

TEST(StoreKv, AGroupTooSmallForAScaleIsStoredAsZero) {
  const std::vector<float> tiny(32, 1e-37f);
  for (int lane : {0, 9}) {
    std::vector<uint8_t> tile(KvTileBytes(KvType::kQ8_0, 32), 0xff);
    Scalar().store_v(KvType::kQ8_0, tiny.data(), 32, lane, tile.data());
    float scale;
    std::memcpy(&scale, tile.data() + lane * 4, sizeof(scale));
    EXPECT_EQ(scale, 0.0f);
    for (int d = 0; d < 32; ++d) EXPECT_EQ(tile[64 + lane * 32 + d], 0);
  }
}

// Attending `granules` one after another into one state.
State Fold(const Kernels& kernels, const std::vector<Granule>& granules, const std::vector<float>& q,
           const std::vector<std::vector<int32_t>>& limits, int head_dim) {
  const int columns = static_cast<int>(limits[0].size());
  State state(columns, head_dim);
  for (size_t g = 0; g < granules.size(); ++g) {
    kernels.attend(granules[g].span(), q.data(), head_dim, nullptr, limits[g].data(), columns, state.view());
  }
  return state;
}

// Attending each from nothing, then merging in order.
State Merge(const Kernels& kernels, const std::vector<Granule>& granules, const std::vector<float>& q,
            const std::vector<std::vector<int32_t>>& limits, int head_dim) {
  const int columns = static_cast<int>(limits[0].size());
  State state(columns, head_dim);
  for (size_t g = 0; g < granules.size(); ++g) {
    State alone(columns, head_dim);
    kernels.attend(granules[g].span(), q.data(), head_dim, nullptr, limits[g].data(), columns, alone.view());
    kernels.merge_attention(alone.view(), columns, head_dim, state.view());
  }
  return state;
}

TEST(MergeAttention, OfGranulesAttendedAloneGivesTheBitsOfOneWalk) {
  const int columns = 5;
  for (KvType type : kTypes) {
    for (int head_dim : {20, 64, 96}) {
      if (!Fits(type, head_dim)) continue;
      std::vector<Granule> granules;
      std::vector<std::vector<int32_t>> limits;
      for (const int written : {256, 256, 60}) {
        // The first granule's values are so large that later ones vanish beside it for some columns, and the reverse.
        const double range = granules.empty() ? 9.0 : 2.0;
        granules.emplace_back(Scalar(), type, head_dim, written, 40 + granules.size() * 2, range);
        limits.push_back(Limits(static_cast<int>(limits.size()), columns, written));  // the last: some see nothing
      }
      const std::vector<float> q = RandomFloats(50, columns * head_dim, 2.0);
      const State expected = Fold(Scalar(), granules, q, limits, head_dim);
      for (const Kernels* kernels : AllKernels()) {
        const State found = Merge(*kernels, granules, q, limits, head_dim);
        ASSERT_EQ(Difference(expected, found), "") << kernels->isa << " " << KvTypeName(type) << " " << head_dim;
      }
    }
  }
}

TEST(MergeAttention, GivesTheBitsOfOneWalkWhereAGranuleCountsForNothing) {
  const int head_dim = 32;
  std::vector<Granule> granules;
  for (const uint64_t seed : {60, 62, 64}) granules.emplace_back(Scalar(), KvType::kF32, head_dim, 40, seed);
  // The second granule outweighs the first by more than a float can tell, and its weighted values underflow to negative
  // zeros; in the third every score is -inf.
  const float infinity = std::numeric_limits<float>::infinity();
  for (int j = 0; j < 40; ++j) {
    for (const int g : {1, 2}) {
      std::vector<float> k(head_dim, 0.0f), v(head_dim, j == 0 ? 0.0f : -1e-45f);
      k[0] = g == 2 ? -infinity : j == 0 ? 200.0f : 197.0f;
      granules[g].Store(Scalar(), j, k.data(), v.data());
    }
  }
  std::vector<float> q(2 * head_dim, 0.0f);
  q[0] = 3.0f, q[head_dim] = 1.0f;
  const std::vector<std::vector<int32_t>> limits(3, {40, 40});
  const State expected = Fold(Scalar(), granules, q, limits, head_dim);
  for (const float x : expected.acc) ASSERT_FALSE(std::isnan(x));
  for (const Kernels* kernels : AllKernels()) {
    EXPECT_EQ(Difference(expected, Fold(*kernels, granules, q, limits, head_dim)), "") << kernels->isa;
    EXPECT_EQ(Difference(expected, Merge(*kernels, granules, q, limits, head_dim)), "") << kernels->isa;
  }
}

}  // namespace
}  // namespace stagecoach
