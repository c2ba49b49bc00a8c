#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/kernels/kernel_inputs.h"

namespace stagecoach {
namespace {

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16};

// One granule of a cache: `written` positions with random K and V, NaN in all other places.
struct Granule {
  KvType type;
  int head_dim, written;
  std::vector<float> k, v;  // [written, head_dim] as given to store_kv
  AlignedBuffer bytes;
  std::vector<const uint8_t*> k_tiles, v_tiles;

  Granule(const Kernels& kernels, KvType t, int h, int w, uint64_t seed, double range = 2.0)
      : type(t),
        head_dim(h),
        written(w),
        k(RandomFloats(seed, h * w, range)),
        v(RandomFloats(seed + 1, h * w, range)),
        bytes(32 * TileBytes()) {
    std::memset(bytes.data(), 0xff, bytes.size());
    for (int tile = 0; tile * kTilePositions < written; ++tile) {
      k_tiles.push_back(bytes.data() + 2 * tile * TileBytes());
      v_tiles.push_back(bytes.data() + (2 * tile + 1) * TileBytes());
    }
    for (int j = 0; j < written; ++j) {
      uint8_t* k_tile = bytes.data() + 2 * (j / kTilePositions) * TileBytes();
      kernels.store_kv(type, &k[j * h], &v[j * h], h, j % kTilePositions, k_tile, k_tile + TileBytes());
    }
  }
  size_t TileBytes() const { return kTilePositions * head_dim * KvTypeBytes(type); }
  AttentionSpan span() const { return {type, head_dim, k_tiles.data(), v_tiles.data(), written}; }
};

struct State {
  std::vector<float> max, sum, acc;
  State(int columns, int head_dim)
      : max(columns, -std::numeric_limits<float>::infinity()), sum(columns, 0.0f), acc(columns * head_dim, 0.0f) {}
  AttentionState view() { return {max.data(), sum.data(), acc.data()}; }
};

std::string Difference(const State& a, const State& b) {
  return FirstDifference(a.max, b.max) + FirstDifference(a.sum, b.sum) + FirstDifference(a.acc, b.acc);
}

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
      for (int written : {1, 15, 16, 100, 256}) {
        const Granule first(Scalar(), type, head_dim, 256, seed += 2);
        const Granule second(Scalar(), type, head_dim, written, seed += 2);
        for (int columns : {1, 2, 3, 4, 5, 7, 8, 11}) {
          const std::vector<int32_t> full = Limits(0, columns, 256);
          const std::vector<int32_t> limits = Limits((columns + written) % 3, columns, written);
          const int64_t stride = head_dim + 3;
          const std::vector<float> q = RandomFloats(++seed, columns * stride, 1.0);
          State expected(columns, head_dim);
          if (columns % 2 == 0) Scalar().attend(first.span(), q.data(), stride, full.data(), columns, expected.view());
          State before = expected;
          Scalar().attend(second.span(), q.data(), stride, limits.data(), columns, expected.view());
          for (const Kernels* kernels : vector_kernels) {
            State found = before;
            kernels->attend(second.span(), q.data(), stride, limits.data(), columns, found.view());
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
  Scalar().attend(granule.span(), q.data(), head_dim, limits.data(), columns, expected.view());
  for (const Kernels* kernels : vector_kernels) {
    State found(columns, head_dim);
    kernels->attend(granule.span(), q.data(), head_dim, limits.data(), columns, found.view());
    EXPECT_EQ(Difference(expected, found), "") << kernels->isa;
  }
}

TEST(Attend, AColumnDoesNotDependOnTheColumnsBesideIt) {
  std::vector<const Kernels*> all = VectorKernels();
  all.push_back(&Scalar());
  const int head_dim = 80, columns = 13, written = 150;
  for (KvType type : kTypes) {
    const Granule granule(Scalar(), type, head_dim, written, 9);
    const std::vector<float> q = RandomFloats(10, columns * head_dim, 1.0);
    for (int pattern : {0, 1, 2}) {
      const std::vector<int32_t> limits = Limits(pattern, columns, written);
      for (const Kernels* kernels : all) {
        State together(columns, head_dim);
        kernels->attend(granule.span(), q.data(), head_dim, limits.data(), columns, together.view());
        for (int c = 0; c < columns; ++c) {
          State alone(1, head_dim);
          kernels->attend(granule.span(), q.data() + c * head_dim, head_dim, &limits[c], 1, alone.view());
          ASSERT_EQ(alone.max[0], together.max[c]);
          ASSERT_EQ(alone.sum[0], together.sum[c]);
          ASSERT_EQ(FirstDifference(alone.acc.data(), together.acc.data() + c * head_dim, head_dim), "")
              << kernels->isa << " column " << c << " pattern " << pattern;
        }
      }
    }
  }
}

TEST(Attend, LeavesColumnsThatSeeNothingUntouched) {
  std::vector<const Kernels*> all = VectorKernels();
  all.push_back(&Scalar());
  const Granule granule(Scalar(), KvType::kF16, 32, 40, 13);
  const std::vector<float> q = RandomFloats(14, 3 * 32, 1.0);
  const std::vector<int32_t> limits = {40, 0, 3};
  for (const Kernels* kernels : all) {
    State state(3, 32);
    state.max[1] = 5.0f;
    state.sum[1] = 6.0f;
    std::fill_n(state.acc.begin() + 32, 32, 7.0f);
    kernels->attend(granule.span(), q.data(), 32, limits.data(), 3, state.view());
    EXPECT_EQ(state.max[1], 5.0f);
    EXPECT_EQ(state.sum[1], 6.0f);
    for (int d = 32; d < 64; ++d) ASSERT_EQ(state.acc[d], 7.0f) << kernels->isa;
    EXPECT_GT(state.sum[0], 0.0f);
    EXPECT_GT(state.sum[2], 0.0f);
  }
}

TEST(Attend, StaysCloseToTheExactSoftmaxOverSeveralGranules) {
  const int head_dim = 64, granules = 3, last = 77;
  for (KvType type : kTypes) {
    std::vector<double> scores, values;
    std::vector<float> q = RandomFloats(15, head_dim, 0.4);
    State state(1, head_dim);
    for (int g = 0; g < granules; ++g) {
      const int written = g + 1 == granules ? last : kAttentionGranule;
      const Granule granule(Scalar(), type, head_dim, written, 16 + 2 * g);
      const int32_t limit = written;
      Scalar().attend(granule.span(), q.data(), head_dim, &limit, 1, state.view());
      const auto stored = [&](float x) {
        if (type == KvType::kF16) return HalfToFloat(FloatToHalf(x));
        return type == KvType::kBF16 ? Bf16ToFloat(FloatToBf16(x)) : x;
      };
      for (int j = 0; j < written; ++j) {
        double score = 0;
        for (int d = 0; d < head_dim; ++d) score += static_cast<double>(stored(granule.k[j * head_dim + d])) * q[d];
        scores.push_back(score);
        for (int d = 0; d < head_dim; ++d) values.push_back(stored(granule.v[j * head_dim + d]));
      }
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double score : scores) sum += std::exp(score - max);
    EXPECT_NEAR(state.max[0], max, 1e-5);
    EXPECT_NEAR(state.sum[0] / sum, 1.0, 1e-5);
    for (int d = 0; d < head_dim; ++d) {
      double exact = 0;
      for (size_t j = 0; j < scores.size(); ++j) exact += std::exp(scores[j] - max) / sum * values[j * head_dim + d];
      ASSERT_NEAR(state.acc[d] / state.sum[0], exact, 2e-6) << KvTypeName(type);
    }
  }
}

TEST(StoreKv, GivesTheSameBytesWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (KvType type : kTypes) {
    for (int head_dim : {2, 20, 64, 80, 128}) {
      std::vector<float> k = RandomMagnitudes(31, head_dim, -9, 6), v = RandomMagnitudes(32, head_dim, -45, 38);
      k[1] = std::numeric_limits<float>::infinity();
      v[0] = std::numeric_limits<float>::quiet_NaN();
      const size_t bytes = kTilePositions * head_dim * KvTypeBytes(type);
      for (int lane : {0, 7, 15}) {
        std::vector<uint8_t> k_expected(bytes, 0xab), v_expected(bytes, 0xcd);
        Scalar().store_kv(type, k.data(), v.data(), head_dim, lane, k_expected.data(), v_expected.data());
        for (const Kernels* kernels : vector_kernels) {
          std::vector<uint8_t> k_found(bytes, 0xab), v_found(bytes, 0xcd);
          kernels->store_kv(type, k.data(), v.data(), head_dim, lane, k_found.data(), v_found.data());
          EXPECT_EQ(k_found, k_expected) << kernels->isa << " " << KvTypeName(type) << " " << head_dim;
          EXPECT_EQ(v_found, v_expected) << kernels->isa << " " << KvTypeName(type) << " " << head_dim;
        }
      }
    }
  }
}

TEST(KvType, IsFoundByItsNameAlone) {
  for (KvType type : kTypes) EXPECT_EQ(ParseKvType(KvTypeName(type)).value(), type);
  EXPECT_EQ(ParseKvType("q8_0").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(ParseKvType("F16").status().message().find("f32, f16, bf16"), std::string::npos);
  EXPECT_EQ(KvTypeBytes(KvType::kF32), 4u);
  EXPECT_EQ(KvTypeBytes(KvType::kBF16), 2u);
}

}  // namespace
}  // namespace stagecoach
