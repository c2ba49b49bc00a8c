// Attention that is not the plain one: windows, values narrower than keys, capped scores, large heads.

#include <algorithm>
#include <cmath>

#include "tests/testing/sanitizers.h"
#include "tests/unit/stage_worker/kernels/attend_granule.h"

namespace stagecoach {
namespace {

struct Window {
  std::vector<int32_t> begins, limits;
};

// Windows within the positions [first, written): sliding by one position a column, by 37 (so that some columns share
// nothing), all the same, and any, with columns that see nothing.
Window WindowsOf(int pattern, int columns, int first, int written) {
  Window window = {std::vector<int32_t>(columns, first), std::vector<int32_t>(columns, written)};
  const int room = written - first;
  for (int c = 0; c < columns; ++c) {
    const int step = pattern == 0 ? 1 : 37;
    if (pattern < 2) {
      window.begins[c] = first + c * step % room;
      window.limits[c] = std::min(written, window.begins[c] + room / 3 + 1);
    }
    if (pattern < 3) continue;
    window.begins[c] = first + static_cast<int32_t>(UniformAt(78, c * 1000 + written) * room);
    window.limits[c] = static_cast<int32_t>(UniformAt(79, c * 1000 + written) * (written + 1));
  }
  return window;
}

State AttendWindows(const Kernels& kernels, const AttentionSpan& span, const std::vector<float>& q,
                    const Window& window, const State& before) {
  State state = before;
  kernels.attend(span, q.data(), span.head_dim, window.begins.data(), window.limits.data(),
                 static_cast<int>(window.limits.size()), state.view());
  return state;
}

// Everything before the first position is NaN or nowhere, as is everything behind the last: a number made of it would
// differ from the scalar one, which never looks there.
TEST(AttendWindow, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  uint64_t seed = 1000;
  for (KvType type : kTypes) {
    for (int head_dim : {20, 64, 96, 128}) {
      if (!Fits(type, head_dim) || (testing::kSlow && head_dim == 128)) continue;
      for (const auto& [first, written] : std::vector<std::pair<int, int>>{
               {0, 256}, {1, 256}, {15, 100}, {16, 33}, {16, 17}, {100, 101}, {131, 250}, {255, 256}}) {
        const Granule granule(Scalar(), type, head_dim, head_dim, first, written, seed += 2);
        for (int columns : {1, 2, 3, 4, 5, 6, 8, 13, 17}) {
          if (testing::kSlow && (columns + first) % 2 != 0) continue;
          const std::vector<float> q = RandomFloats(++seed, columns * head_dim, 1.0);
          for (int pattern = 0; pattern < 4; ++pattern) {
            const Window window = WindowsOf(pattern, columns, first, written);
            State before(columns, head_dim);
            before.max[0] = 0.5f, before.sum[0] = 2.0f, before.acc[0] = 3.0f;
            const State expected = AttendWindows(Scalar(), granule.span(), q, window, before);
            for (const float x : expected.acc) ASSERT_FALSE(std::isnan(x));
            for (const Kernels* kernels : vector_kernels) {
              ASSERT_EQ(Difference(expected, AttendWindows(*kernels, granule.span(), q, window, before)), "")
                  << kernels->isa << " " << KvTypeName(type) << " head_dim " << head_dim << " positions " << first
                  << " to " << written << " columns " << columns << " pattern " << pattern;
            }
          }
        }
      }
    }
  }
}

TEST(AttendWindow, WithoutBeginsIsThatOfZeros) {
  const Granule granule(Scalar(), KvType::kF16, 64, 200, 20);
  const std::vector<float> q = RandomFloats(21, 7 * 64, 1.0);
  const Window window = {std::vector<int32_t>(7, 0), {200, 3, 0, 150, 16, 17, 99}};
  for (const Kernels* kernels : AllKernels()) {
    State state(7, 64);
    kernels->attend(granule.span(), q.data(), 64, nullptr, window.limits.data(), 7, state.view());
    EXPECT_EQ(Difference(state, AttendWindows(*kernels, granule.span(), q, window, State(7, 64))), "") << kernels->isa;
  }
}

// What one column sees is NaN for the others, in K, in V or in both; infinity and zeros do no harm either.
TEST(AttendWindow, AColumnNeverTouchesWhatOnlyTheOnesBesideItSee) {
  constexpr int kColumns = 7, kHeadDim = 64, kWritten = 140;
  for (KvType type : kTypes) {
    const std::vector<float> q = RandomFloats(23, kColumns * kHeadDim, 1.0);
    for (int pattern : {0, 1, 3}) {
      const Window window = WindowsOf(pattern, kColumns, 5, kWritten);
      for (int c = 0; c < kColumns; ++c) {
        const Granule clean(Scalar(), type, kHeadDim, kHeadDim, 5, kWritten, 22);
        Granule dirty(Scalar(), type, kHeadDim, kHeadDim, 5, kWritten, 22);
        const std::vector<float> nan(kHeadDim, std::numeric_limits<float>::quiet_NaN());
        for (int j = 5; j < kWritten; ++j) {
          if (window.begins[c] <= j && j < window.limits[c]) continue;
          dirty.Store(Scalar(), j, j % 3 == 0 ? &dirty.k[j * kHeadDim] : nan.data(),
                      j % 3 == 1 ? &dirty.v[j * kHeadDim] : nan.data());
          if (type == KvType::kQ8_0) {  // stored as zeros: their scales become NaN
            std::memset(dirty.VTile(j) + j % kTilePositions * 4, 0xff, 4);
            std::memset(dirty.KTile(j) + j % kTilePositions * 4, 0xff, 4);
          }
        }
        State alone(1, kHeadDim);
        Scalar().attend(clean.span(), &q[c * kHeadDim], kHeadDim, &window.begins[c], &window.limits[c], 1,
                        alone.view());
        for (const Kernels* kernels : AllKernels()) {
          const State together = AttendWindows(*kernels, dirty.span(), q, window, State(kColumns, kHeadDim));
          ASSERT_EQ(FirstDifference(&alone.max[0], &together.max[c], 1), "") << kernels->isa << " " << c;
          ASSERT_EQ(FirstDifference(&alone.sum[0], &together.sum[c], 1), "") << kernels->isa << " " << c;
          ASSERT_EQ(FirstDifference(alone.acc.data(), &together.acc[c * kHeadDim], kHeadDim), "")
              << kernels->isa << " " << KvTypeName(type) << " column " << c << " pattern " << pattern;
        }
      }
    }
  }
}

TEST(AttendWindow, LeavesColumnsThatSeeNothingUntouched) {
  const Granule granule(Scalar(), KvType::kF16, 32, 40, 24);
  const std::vector<float> q = RandomFloats(25, 4 * 32, 1.0);
  const Window window = {{0, 20, 39, 0}, {40, 20, 4, 0}};
  State before(4, 32);
  for (int c = 1; c < 4; ++c) {
    before.max[c] = 5.0f, before.sum[c] = 6.0f;
    std::fill_n(before.acc.begin() + c * 32, 32, -0.0f);
  }
  for (const Kernels* kernels : AllKernels()) {
    const State state = AttendWindows(*kernels, granule.span(), q, window, before);
    EXPECT_GT(state.sum[0], 0.0f);
    EXPECT_EQ(FirstDifference(&before.max[1], &state.max[1], 3), "") << kernels->isa;
    EXPECT_EQ(FirstDifference(&before.sum[1], &state.sum[1], 3), "") << kernels->isa;
    EXPECT_EQ(FirstDifference(&before.acc[32], &state.acc[32], 96), "") << kernels->isa;
  }
}

TEST(AttendWindow, LeavesAColumnUntouchedWhoseWindowIsImpossible) {
  Granule granule(Scalar(), KvType::kF32, 32, 60, 26);
  std::vector<float> k(32, 0.0f);
  k[0] = -std::numeric_limits<float>::infinity();
  for (int j = 20; j < 30; ++j) granule.Store(Scalar(), j, k.data(), &granule.v[j * 32]);
  std::vector<float> q = RandomFloats(27, 4 * 32, 1.0);
  for (int c = 0; c < 4; ++c) q[c * 32] = 0.5f;
  const Window window = {{15, 20, 3, 18}, {60, 30, 50, 33}};
  const State before(4, 32);
  const State expected = AttendWindows(Scalar(), granule.span(), q, window, before);
  EXPECT_EQ(FirstDifference(&before.acc[32], &expected.acc[32], 32), "");
  for (const float x : expected.acc) EXPECT_FALSE(std::isnan(x));
  for (const Kernels* kernels : VectorKernels()) {
    EXPECT_EQ(Difference(expected, AttendWindows(*kernels, granule.span(), q, window, before)), "") << kernels->isa;
  }
}

struct Kind {
  int head_dim, value_dim;
  float score_cap;
};

// The sizes of published models: latent attention, the widest heads, and what is no multiple of a vector.
constexpr Kind kKinds[] = {{576, 512, 0.0f},  {64, 32, 0.0f},   {32, 96, 0.0f},   {20, 6, 0.0f},     {66, 50, 3.0f},
                           {256, 256, 50.0f}, {128, 128, 0.5f}, {512, 512, 0.0f}, {1024, 1024, 0.0f}};

TEST(AttendKinds, GiveTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  uint64_t seed = 2000;
  for (KvType type : kTypes) {
    for (const Kind& kind : kKinds) {
      if (!Fits(type, kind.head_dim) || !Fits(type, kind.value_dim)) continue;
      for (const auto& [first, written] : std::vector<std::pair<int, int>>{{0, 70}, {0, 256}, {21, 50}}) {
        if (testing::kSlow && written == 256) continue;
        const Granule granule(Scalar(), type, kind.head_dim, kind.value_dim, first, written, seed += 2);
        AttentionSpan span = granule.span();
        span.score_cap = kind.score_cap;
        for (int columns : {1, 2, 4, 6, 9, 17}) {
          const std::vector<float> q = RandomFloats(++seed, columns * kind.head_dim, 1.0);
          const Window window = WindowsOf(first == 0 ? 2 : 1, columns, first, written);
          const State before(columns, kind.value_dim);
          const State expected = AttendWindows(Scalar(), span, q, window, before);
          for (const Kernels* kernels : vector_kernels) {
            ASSERT_EQ(Difference(expected, AttendWindows(*kernels, span, q, window, before)), "")
                << kernels->isa << " " << KvTypeName(type) << " " << kind.head_dim << " " << kind.value_dim << " "
                << columns;
          }
        }
      }
    }
  }
}

// Positions [first, second) of each of some granules, against the softmax in double; slack 1: 1e-5 of the sum, 2e-6 of
// a value.
void ExpectCloseToSoftmax(KvType type, const Kind& kind, const std::vector<std::pair<int, int>>& granules,
                          double q_range, double slack, uint64_t seed) {
  const std::vector<float> q = RandomFloats(seed, kind.head_dim, q_range);
  std::vector<double> scores, values;
  State state(1, kind.value_dim);
  for (const auto& [first, written] : granules) {
    const Granule granule(Scalar(), type, kind.head_dim, kind.value_dim, first, written, seed += 2);
    AttentionSpan span = granule.span();
    span.score_cap = kind.score_cap;
    state = AttendWindows(Scalar(), span, q, {{first}, {written}}, state);
    const std::vector<float> k = Stored(type, granule.k), v = Stored(type, granule.v);
    for (int j = first; j < written; ++j) {
      double score = 0;
      for (int d = 0; d < kind.head_dim; ++d) score += static_cast<double>(k[j * kind.head_dim + d]) * q[d];
      scores.push_back(kind.score_cap == 0 ? score : kind.score_cap * std::tanh(score / kind.score_cap));
    }
    values.insert(values.end(), v.begin() + first * kind.value_dim, v.end());
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double score : scores) sum += std::exp(score - max);
  EXPECT_NEAR(state.max[0], max, 1e-5);
  EXPECT_NEAR(state.sum[0] / sum, 1.0, slack * 1e-5);
  for (int d = 0; d < kind.value_dim; ++d) {
    double exact = 0;
    for (size_t j = 0; j < scores.size(); ++j)
      exact += std::exp(scores[j] - max) / sum * values[j * kind.value_dim + d];
    ASSERT_NEAR(state.acc[d] / state.sum[0], exact, slack * 2e-6) << KvTypeName(type) << " " << kind.head_dim;
  }
}

TEST(AttendKinds, StayCloseToTheExactSoftmaxOverTwoGranules) {
  uint64_t seed = 3000;
  for (KvType type : kTypes) {
    for (const Kind& kind : kKinds) {
      if (!Fits(type, kind.head_dim) || !Fits(type, kind.value_dim)) continue;
      ExpectCloseToSoftmax(type, kind, {{190, 256}, {0, 90}}, 2.0 / std::sqrt(kind.head_dim), 2, seed += 5);
    }
  }
}

TEST(Attend, StaysCloseToTheExactSoftmaxOverSeveralGranules) {
  for (KvType type : kTypes) {
    ExpectCloseToSoftmax(type, {64, 64, 0}, {{0, kAttentionGranule}, {0, kAttentionGranule}, {0, 77}}, 0.4, 1, 15);
  }
}

TEST(MergeAttention, TakesStatesAsWideAsTheValues) {
  const Granule granule(Scalar(), KvType::kF16, 64, 48, 0, 100, 30);
  const std::vector<float> q = RandomFloats(31, 3 * 64, 1.0);
  const Window window = {{0, 10, 99}, {100, 60, 100}};
  for (const Kernels* kernels : AllKernels()) {
    const State once = AttendWindows(*kernels, granule.span(), q, window, State(3, 48));
    const State twice = AttendWindows(*kernels, granule.span(), q, window, once);
    State merged = once;
    const State alone = once;
    kernels->merge_attention(State(alone).view(), 3, 48, merged.view());
    EXPECT_EQ(Difference(twice, merged), "") << kernels->isa;
  }
}

// A sink is a granule of one position with a logit and no value.
TEST(MergeAttention, OfASinkAddsToTheSumAlone) {
  constexpr float kSink = 1.25f;
  for (const Kernels* kernels : AllKernels()) {
    for (const float max : {-3.0f, 4.0f}) {
      State state(1, 4), sink(1, 4);
      state.max[0] = max, state.sum[0] = 7.0f, state.acc = {1.0f, -2.0f, 0.5f, 0.0f};
      sink.max[0] = kSink, sink.sum[0] = 1.0f;
      kernels->merge_attention(sink.view(), 1, 4, state.view());
      const double sum = 7 * std::exp(double{max}) + std::exp(double{kSink});
      EXPECT_NEAR(state.sum[0] * std::exp(double{state.max[0]}) / sum, 1, 1e-6) << kernels->isa;
      EXPECT_NEAR(state.acc[1] / state.sum[0], -2 * std::exp(double{max}) / sum, 1e-6) << kernels->isa;
    }
  }
}

}  // namespace
}  // namespace stagecoach
