#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/testing/sanitizers.h"
#include "tests/unit/stage_worker/kernels/kernel_inputs.h"

namespace stagecoach {
namespace {

constexpr int64_t kDeltaDims[] = {2, 6, 10, 16, 22, 32, 48, 64, 100, 128, 256};

// HeadRows of one head, and a state before them.
struct HeadRows {
  int64_t dim, rows;
  std::vector<float> q, k, v, gates, state;  // gates: [rows, 3]: decay, nothing, beta

  HeadRows(int64_t d, int64_t count, uint64_t seed) : dim(d), rows(count) {
    const auto size = static_cast<size_t>(d * count);
    q = RandomFloats(seed, size, std::sqrt(3.0 / static_cast<double>(d * d)));
    k = RandomFloats(seed + 1, size, std::sqrt(3.0 / static_cast<double>(d)));  // of about unit length
    v = RandomFloats(seed + 2, size, 2.0);
    gates = RandomFloats(seed + 3, static_cast<size_t>(3 * count), 0.5);
    for (float& gate : gates) gate += 0.5f;
    state = RandomFloats(seed + 4, static_cast<size_t>(d * d), 1.0);
  }

  // Of rows [first, first + count).
  DeltaSpan Span(int64_t first, int64_t count, const float* before, float* after, float* out) const {
    DeltaSpan span;
    span.dim = dim;
    span.rows = count;
    span.q = &q[static_cast<size_t>(first * dim)];
    span.k = &k[static_cast<size_t>(first * dim)];
    span.v = &v[static_cast<size_t>(first * dim)];
    span.decay = &gates[static_cast<size_t>(3 * first)];
    span.beta = span.decay + 2;
    span.gate_stride = 3;
    span.before = before;
    span.after = after;
    span.out = out + first * (dim + 5);
    span.out_stride = dim + 5;
    return span;
  }
};

struct DeltaResult {
  std::vector<float> state, out;

  std::string DifferenceTo(const DeltaResult& expected) const {
    const std::string states = FirstDifference(expected.state, state);
    return states.empty() ? FirstDifference(expected.out, out) : "state: " + states;
  }
};

// All rows, so many a call; the state moves to other memory with the first call and stays there.
DeltaResult RunInCalls(const Kernels& kernels, const HeadRows& rows, int64_t rows_a_call, bool zeros = false) {
  DeltaResult result = {std::vector<float>(rows.state.size(), NAN),
                        std::vector<float>(static_cast<size_t>(rows.rows * (rows.dim + 5)), -1.0f)};
  const float* before = zeros ? nullptr : rows.state.data();
  for (int64_t row = 0; row < rows.rows; row += rows_a_call) {
    kernels.delta_rule(
        rows.Span(row, std::min(rows_a_call, rows.rows - row), before, result.state.data(), result.out.data()));
    before = result.state.data();
  }
  return result;
}

// Where key i and value j are in S.
size_t PlaceInState(int64_t dim, int64_t i, int64_t j) {
  const int64_t panel = j / kTileValues, width = std::min(kTileValues, dim - panel * kTileValues);
  return static_cast<size_t>(panel * kTileValues * dim + i * width + j % kTileValues);
}

TEST(DeltaRule, StaysCloseToWhatDoubleGives) {
  for (const int64_t dim : kDeltaDims) {
    const HeadRows rows(dim, 9, 200);
    std::vector<double> state(rows.state.begin(), rows.state.end()), outs;
    for (int64_t row = 0; row < rows.rows; ++row) {
      const float *q = &rows.q[row * dim], *k = &rows.k[row * dim], *v = &rows.v[row * dim];
      for (double& value : state) value *= static_cast<double>(rows.gates[3 * row]);
      for (int64_t j = 0; j < dim; ++j) {
        double known = 0, out = 0;
        for (int64_t i = 0; i < dim; ++i) known += state[PlaceInState(dim, i, j)] * k[i];
        const double step = static_cast<double>(rows.gates[3 * row + 2]) * (v[j] - known);
        for (int64_t i = 0; i < dim; ++i) {
          state[PlaceInState(dim, i, j)] += k[i] * step;
          out += state[PlaceInState(dim, i, j)] * q[i];
        }
        outs.push_back(out);
      }
    }
    for (const Kernels* kernels : AllKernels()) {
      const DeltaResult found = RunInCalls(*kernels, rows, rows.rows);
      for (size_t i = 0; i < state.size(); ++i)
        ASSERT_NEAR(found.state[i], state[i], 2e-5) << kernels->isa << " " << dim;
      for (size_t i = 0; i < outs.size(); ++i) {
        const size_t row = i / static_cast<size_t>(dim), column = i % static_cast<size_t>(dim);
        ASSERT_NEAR(found.out[row * static_cast<size_t>(dim + 5) + column], outs[i], 2e-5)
            << kernels->isa << " " << dim;
      }
    }
  }
}

TEST(DeltaRule, GivesTheSameBitsWithEveryInstructionSetInCallsOfAnyNumberOfRows) {
  for (const int64_t dim : kDeltaDims) {
    if (testing::kSlow && dim > 100) continue;
    const HeadRows rows(dim, 71, 210);
    const DeltaResult expected = RunInCalls(Scalar(), rows, rows.rows);
    for (const float gap : {expected.out[static_cast<size_t>(dim)], expected.out.back()}) EXPECT_EQ(gap, -1.0f);
    for (const Kernels* kernels : AllKernels()) {
      for (const int64_t rows_a_call : {1, 7, 64, 71}) {
        EXPECT_EQ(RunInCalls(*kernels, rows, rows_a_call).DifferenceTo(expected), "")
            << kernels->isa << " " << dim << ", " << rows_a_call << " rows a call";
      }
    }
  }
}

TEST(DeltaRule, BeginsWithZerosWithoutAStateBefore) {
  for (const int64_t dim : kDeltaDims) {
    HeadRows rows(dim, 3, 220);
    std::fill(rows.state.begin(), rows.state.end(), 0.0f);
    for (const Kernels* kernels : AllKernels()) {
      const DeltaResult expected = RunInCalls(*kernels, rows, 2);
      EXPECT_EQ(RunInCalls(*kernels, rows, 2, /*zeros=*/true).DifferenceTo(expected), "") << kernels->isa << " " << dim;
    }
  }
}

// A snapshot: two that read it, one after the other, find the same.
TEST(DeltaRule, LeavesTheStateThatItReadsAsItIsUnlessItWritesThere) {
  for (const int64_t dim : kDeltaDims) {
    HeadRows rows(dim, 4, 230);
    const std::vector<float> before = rows.state;
    for (const Kernels* kernels : AllKernels()) {
      const DeltaResult apart = RunInCalls(*kernels, rows, rows.rows);
      EXPECT_EQ(FirstDifference(before, rows.state), "") << kernels->isa << " " << dim;
      DeltaResult in_place = {rows.state, apart.out};
      kernels->delta_rule(rows.Span(0, rows.rows, in_place.state.data(), in_place.state.data(), in_place.out.data()));
      EXPECT_EQ(in_place.DifferenceTo(apart), "") << kernels->isa << " " << dim;
    }
  }
}

// Heads are computed side by side: what is no number in one value's column stays there.
TEST(DeltaRule, OfNothingANumberIsNoNumberInThatColumnAlone) {
  constexpr int64_t kDim = 44;
  for (const Kernels* kernels : AllKernels()) {
    const HeadRows clean(kDim, 2, 240);
    const DeltaResult expected = RunInCalls(*kernels, clean, 2);
    for (const int64_t column : {0, 17, 33, 43}) {
      HeadRows rows = clean;
      rows.v[static_cast<size_t>(column)] = NAN;
      DeltaResult found = RunInCalls(*kernels, rows, 2);
      for (int64_t i = 0; i < kDim; ++i) {
        float& value = found.state[PlaceInState(kDim, i, column)];
        EXPECT_TRUE(std::isnan(value)) << kernels->isa << " " << column;
        value = expected.state[PlaceInState(kDim, i, column)];
      }
      for (int64_t row = 0; row < 2; ++row) {
        const auto at = static_cast<size_t>(row * (kDim + 5) + column);
        EXPECT_TRUE(std::isnan(found.out[at])) << kernels->isa << " " << column;
        found.out[at] = expected.out[at];
      }
      EXPECT_EQ(found.DifferenceTo(expected), "") << kernels->isa << " " << column;
    }
  }
}

// --- what goes into it and comes out of it ---------------------------------------------------------------------------

constexpr int64_t kMixLengths[] = {1, 2, 7, 15, 16, 17, 31, 64, 100, 128, 1030};
constexpr int64_t kMostTaps = 8;

TEST(ConvSilu, GivesTheSameBitsWithEveryInstructionSetAndStaysCloseToTheExactValue) {
  for (const int64_t n : kMixLengths) {
    for (int taps = 2; taps <= kMostTaps; ++taps) {
      const int64_t stride = n + 3;
      const std::vector<float> weights = RandomFloats(250, static_cast<size_t>(stride * taps), 1.0);
      const std::vector<float> inputs = RandomFloats(251, static_cast<size_t>(n * taps), 3.0);
      std::vector<float> expected(static_cast<size_t>(n));
      const auto run = [&](const Kernels& kernels, const float* in, float* out) {
        const float* x[kMostTaps];
        for (int t = 0; t < taps; ++t) x[t] = in + t * n;
        kernels.conv_silu(x, weights.data(), stride, taps, n, out);
      };
      run(Scalar(), inputs.data(), expected.data());
      for (int64_t i = 0; i < n; ++i) {
        double y = 0;
        for (int t = 0; t < taps; ++t) y += static_cast<double>(weights[t * stride + i]) * inputs[t * n + i];
        ASSERT_NEAR(expected[static_cast<size_t>(i)], y / (1 + std::exp(-y)), 3e-6) << taps;
      }
      for (const Kernels* kernels : VectorKernels()) {
        std::vector<float> found = inputs;
        run(*kernels, found.data(), found.data() + n * (taps - 1));  // over the current row
        EXPECT_EQ(FirstDifference(expected.data(), found.data() + n * (taps - 1), expected.size()), "")
            << kernels->isa << " " << n << ", " << taps;
      }
    }
  }
}

TEST(L2Norm, GivesTheSameBitsWithEveryInstructionSetAndStaysCloseToTheExactValue) {
  for (const int64_t n : kMixLengths) {
    for (const double size : {3.0, 1e-9, 0.0}) {
      const std::vector<float> x = RandomFloats(252, static_cast<size_t>(n), size);
      std::vector<float> expected(x.size());
      Scalar().l2_norm(x.data(), n, 1e-6f, 0.25f, expected.data());
      double squares = 0;
      for (const float value : x) squares += static_cast<double>(value) * value;
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = 0.25 * x[i] / std::max(std::sqrt(squares), static_cast<double>(1e-6f));
        ASSERT_NEAR(expected[i], exact, std::fabs(exact) * 2e-7) << n << " " << size;
      }
      for (const Kernels* kernels : VectorKernels()) {
        std::vector<float> found = x;
        kernels->l2_norm(found.data(), n, 1e-6f, 0.25f, found.data());
        EXPECT_EQ(FirstDifference(expected, found), "") << kernels->isa << " " << n;
      }
    }
  }
}

TEST(TimesSigmoid, GivesTheSameBitsWithEveryInstructionSetAndStaysCloseToTheExactValue) {
  for (const int64_t n : kMixLengths) {
    std::vector<float> gate = RandomFloats(253, static_cast<size_t>(n), 20.0);
    for (size_t i = 3; i < gate.size(); i += 7) gate[i] = i % 2 == 0 ? INFINITY : -INFINITY;
    const std::vector<float> x = RandomFloats(254, static_cast<size_t>(n), 2.0);
    std::vector<float> expected = x;
    Scalar().times_sigmoid(gate.data(), n, expected.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = x[i] / (1 + std::exp(-static_cast<double>(gate[i])));
      ASSERT_NEAR(expected[i], exact, std::fabs(exact) * 4e-7) << gate[i];
    }
    for (const Kernels* kernels : VectorKernels()) {
      std::vector<float> found = x;
      kernels->times_sigmoid(gate.data(), n, found.data());
      EXPECT_EQ(FirstDifference(expected, found), "") << kernels->isa << " " << n;
    }
  }
}

TEST(Dot, GivesTheSameBitsWithEveryInstructionSetAndStaysCloseToTheExactValue) {
  for (const int64_t n : kMixLengths) {
    const std::vector<float> a = RandomFloats(255, static_cast<size_t>(n), 2.0);
    const std::vector<float> b = RandomFloats(256, static_cast<size_t>(n), 2.0);
    double exact = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) exact += static_cast<double>(a[i]) * b[i], size += std::fabs(a[i] * b[i]);
    const float expected = Scalar().dot(a.data(), b.data(), n);
    EXPECT_NEAR(expected, exact, size * 1e-6) << n;
    for (const Kernels* kernels : VectorKernels()) {
      const float found = kernels->dot(a.data(), b.data(), n);
      EXPECT_EQ(FirstDifference(&expected, &found, 1), "") << kernels->isa << " " << n;
    }
  }
}

}  // namespace
}  // namespace stagecoach
