#include <algorithm>
#include <limits>

#include "gmock/gmock.h"
#include "tests/unit/stage_worker/kernels/kernel_inputs.h"

namespace stagecoach {
namespace {

constexpr int64_t kLengths[] = {1, 2, 7, 15, 16, 17, 31, 64, 100, 896, 1024};

// What run(kernels, x, out) makes of `start` has the same bits with every instruction set: the scalar one's, into other
// memory, and in place the others'.
template <typename Run>
void ExpectSameBits(const std::vector<const Kernels*>& vector_kernels, const std::vector<float>& start,
                    const std::string& what, const Run& run) {
  std::vector<float> expected = start;
  run(Scalar(), start.data(), expected.data());
  for (const Kernels* kernels : vector_kernels) {
    std::vector<float> found = start;
    run(*kernels, found.data(), found.data());  // in place
    EXPECT_EQ(FirstDifference(expected, found), "") << kernels->isa << " " << what;
  }
}

TEST(RmsNorm, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (int64_t n : kLengths) {
    const std::vector<float> weight = RandomFloats(2, n, 2.0);
    ExpectSameBits(
        vector_kernels, RandomMagnitudes(1, n, -20, 10), std::to_string(n),
        [&](const Kernels& kernels, const float* x, float* out) { kernels.rms_norm(x, weight.data(), n, 1e-6f, out); });
  }
}

TEST(RmsNorm, StaysCloseToTheExactValue) {
  for (int64_t n : kLengths) {
    const std::vector<float> x = RandomFloats(3, n, 4.0), weight = RandomFloats(4, n, 2.0);
    std::vector<float> found(n);
    Scalar().rms_norm(x.data(), weight.data(), n, 1e-5f, found.data());
    double squares = 0;
    for (float value : x) squares += static_cast<double>(value) * value;
    for (int64_t i = 0; i < n; ++i) {
      const double exact = x[i] / std::sqrt(squares / n + static_cast<double>(1e-5f)) * weight[i];
      ASSERT_NEAR(found[i], exact, std::fabs(exact) * 3e-7);
    }
  }
}

TEST(Swiglu, StaysCloseToTheExactValue) {
  const std::vector<float> gate = RandomFloats(7, 1000, 20.0), up = RandomFloats(8, 1000, 3.0);
  std::vector<float> found(1000);
  Scalar().swiglu(gate.data(), up.data(), 1000, found.data());
  for (size_t i = 0; i < found.size(); ++i) {
    const double exact = gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i];
    ASSERT_NEAR(found[i], exact, std::fabs(exact) * 4e-7);
  }
}

// Gates and ups of all sizes: where exp overflows and vanishes, zeros of both signs, the largest numbers, infinity.
std::vector<float> ActivationInputs(uint64_t seed, int64_t n) {
  std::vector<float> x = RandomFloats(seed, n, 12.0);
  for (int64_t i = 1; i < n; i += 3) x[i] *= 12;
  const float edges[] = {0.0f, -0.0f, 7.0f, -7.0f, 1e30f, -1e30f, 3e38f, -3e38f, 1e-40f, INFINITY, -INFINITY, -12.0f};
  for (int64_t i = 0; i < n; i += 5) x[i] = edges[(i / 5 + seed) % std::size(edges)];
  return x;
}

using Activation = void (*)(const Kernels& kernels, const float* gate, const float* up, int64_t n, float* out);
void SwigluOf(const Kernels& kernels, const float* gate, const float* up, int64_t n, float* out) {
  kernels.swiglu(gate, up, n, out);
}
void GegluOf(const Kernels& kernels, const float* gate, const float* up, int64_t n, float* out) {
  kernels.geglu(gate, up, n, out);
}
void ClampedOf(const Kernels& kernels, const float* gate, const float* up, int64_t n, float* out) {
  kernels.clamped_swiglu(gate, up, n, 1.702f, 7.0f, out);
}
void UnclampedOf(const Kernels& kernels, const float* gate, const float* up, int64_t n, float* out) {
  kernels.clamped_swiglu(gate, up, n, 0.5f, INFINITY, out);
}
constexpr Activation kActivations[] = {SwigluOf, GegluOf, ClampedOf, UnclampedOf};

TEST(Activation, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (int64_t n : kLengths) {
    for (uint64_t seed = 30; seed < 42; ++seed) {
      const std::vector<float> gate = ActivationInputs(seed, n), up = ActivationInputs(2 * seed, n);
      for (const Activation activation : kActivations) {
        std::vector<float> expected(n);
        activation(Scalar(), gate.data(), up.data(), n, expected.data());
        for (const Kernels* kernels : vector_kernels) {
          std::vector<float> found = gate;  // in place
          activation(*kernels, found.data(), up.data(), n, found.data());
          for (int64_t i = 0; i < n; ++i) {  // -inf times 0 may be any NaN
            if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
            ASSERT_EQ(FirstDifference(&expected[i], &found[i], 1), "")
                << kernels->isa << " " << gate[i] << " " << up[i];
          }
        }
      }
    }
  }
}

TEST(Activation, OfFiniteNumbersIsAlwaysANumber) {
  for (uint64_t seed = 30; seed < 42; ++seed) {
    std::vector<float> gate = ActivationInputs(seed, 500), up = RandomFloats(seed, 500, 0.1), out(500);
    for (float& x : gate) x = std::clamp(x, -3e38f, 3e38f);
    for (const Activation activation : kActivations) {
      activation(Scalar(), gate.data(), up.data(), 500, out.data());
      for (size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(std::isfinite(out[i])) << gate[i] << " " << up[i];
    }
  }
}

TEST(Activation, OfNothingANumberIsNoNumberInThatElementAlone) {
  constexpr int64_t kCount = 37;
  for (const float sign : {1.0f, -1.0f}) {
    const float nan = std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
    for (const Activation activation : kActivations) {
      const std::vector<float> gate = RandomFloats(50, kCount, 3.0), up = RandomFloats(51, kCount, 3.0);
      std::vector<float> clean(kCount);
      activation(Scalar(), gate.data(), up.data(), kCount, clean.data());
      for (int64_t at = 0; at < kCount; ++at) {
        for (bool in_gate : {false, true}) {
          std::vector<float> bad_gate = gate, bad_up = up;
          (in_gate ? bad_gate : bad_up)[at] = nan;
          for (const Kernels* kernels : AllKernels()) {
            std::vector<float> found(kCount);
            activation(*kernels, bad_gate.data(), bad_up.data(), kCount, found.data());
            EXPECT_TRUE(std::isnan(found[at])) << kernels->isa << " " << at << " " << in_gate;
            found[at] = clean[at];
            EXPECT_EQ(FirstDifference(clean, found), "") << kernels->isa << " " << at;
          }
        }
      }
    }
  }
}

TEST(Geglu, StaysCloseToTheExactValue) {
  const std::vector<float> gate = RandomFloats(52, 20000, 14.0), up = RandomFloats(53, 20000, 3.0);
  std::vector<float> found(gate.size());
  Scalar().geglu(gate.data(), up.data(), 20000, found.data());
  for (size_t i = 0; i < found.size(); ++i) {
    const double z = gate[i];
    // As it is usually written, but for the difference of nearly equal numbers: 1 + tanh(y) = 2 / (1 + exp(-2 y)).
    const double y = std::sqrt(2 / std::acos(-1.0)) * (z + 0.044715 * z * z * z);
    const double exact = 0.5 * z * (2 / (1 + std::exp(-2 * y))) * up[i];
    // The exponent's rounding counts as often as it is large.
    ASSERT_NEAR(found[i], exact, std::fabs(exact) * (4e-7 + 4e-7 * std::fabs(std::min(y, 0.0))) + 1e-36) << z;
    if (z > -4) {
      ASSERT_NEAR(found[i], 0.5 * z * (1 + std::tanh(y)) * up[i], std::fabs(z * up[i]) * 4e-7) << z;
    }
  }
}

TEST(ClampedSwiglu, StaysCloseToTheExactValue) {
  const std::vector<float> gate = RandomFloats(54, 20000, 20.0), up = RandomFloats(55, 20000, 20.0);
  std::vector<float> found(gate.size());
  Scalar().clamped_swiglu(gate.data(), up.data(), 20000, 1.702f, 7.0f, found.data());
  for (size_t i = 0; i < found.size(); ++i) {
    const double g = std::min<double>(gate[i], 7), u = std::clamp<double>(up[i], -7, 7);
    const double exact = g / (1 + std::exp(-static_cast<double>(1.702f) * g)) * (u + 1);
    // What u + 1 has lost next to u = -1 is a part of 1.
    const double slack = std::fabs(g) * 1e-7;
    ASSERT_NEAR(found[i], exact, std::fabs(exact) * (5e-7 + 2e-7 * std::fabs(g)) + slack) << gate[i] << " " << up[i];
  }
}

constexpr float kCaps[] = {0.5f, 6.0f, 30.0f, 50.0f};

// All magnitudes; the small ones that are usual next to a cap; where its two formulas meet; and what has no end.
std::vector<float> CapInputs(uint64_t seed, int64_t n, float cap) {
  std::vector<float> x = RandomMagnitudes(seed, n, -30, 5);
  const std::vector<float> near = RandomFloats(seed + 1, n, static_cast<double>(cap));
  for (int64_t i = n % 2; i < n; i += 2) x[i] = near[i];
  const float meet = 0.625f * cap;
  const float edges[] = {
      0.0f,     -0.0f,     meet,  std::nextafter(meet, 0.0f), -meet, std::nextafter(meet, 99.0f), 3e38f, -3e38f,
      INFINITY, -INFINITY, 1e-40f};
  for (int64_t i = 1; i < n; i += 5) x[i] = edges[(i / 5 + seed) % std::size(edges)];
  return x;
}

TEST(SoftCap, GivesTheSameBitsWithEveryInstructionSetForAllSizesOfNumbers) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (const float cap : kCaps) {
    for (int64_t n : kLengths) {
      for (uint64_t seed = 60; seed < 71; ++seed) {
        ExpectSameBits(vector_kernels, CapInputs(seed, n, cap), std::to_string(n),
                       [&](const Kernels& kernels, const float*, float* x) { kernels.soft_cap(cap, n, x); });
      }
    }
  }
}

TEST(SoftCap, OfAnElementDependsNeitherOnItsPlaceNorOnItsNeighbours) {
  constexpr int64_t kCount = 67;
  for (const float cap : kCaps) {
    const std::vector<float> x = CapInputs(72, kCount, cap);
    for (const Kernels* kernels : AllKernels()) {
      std::vector<float> alone = x;
      for (float& one : alone) kernels->soft_cap(cap, 1, &one);
      for (int64_t first = 0; first < kCount; ++first) {
        std::vector<float> found = x;
        kernels->soft_cap(cap, kCount - first, &found[first]);
        EXPECT_EQ(FirstDifference(&alone[first], &found[first], kCount - first), "") << kernels->isa << " " << first;
      }
    }
  }
}

TEST(SoftCap, StaysWithinFiveUnitsOfTheLastPlaceOfTheExactValueAndWithinTheCap) {
  for (const float cap : kCaps) {
    std::vector<float> x = RandomMagnitudes(73, 200000, -30, 4);
    const std::vector<float> near = RandomFloats(74, x.size(), 4.0 * static_cast<double>(cap));
    x.insert(x.end(), near.begin(), near.end());
    std::vector<float> found = x;
    Scalar().soft_cap(cap, static_cast<int64_t>(x.size()), found.data());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = static_cast<double>(cap) * std::tanh(x[i] / static_cast<double>(cap));
      worst = std::max(worst, std::fabs(found[i] - exact) / std::ldexp(1.0, std::ilogb(exact) - 23));
      ASSERT_LE(std::fabs(found[i]), cap) << x[i];
      ASSERT_LE(std::fabs(found[i]), std::fabs(x[i]) * (1 + 4e-7f)) << x[i];
    }
    EXPECT_LE(worst, 5.0) << cap;
  }
}

TEST(SoftCap, OfNothingANumberIsNoNumberInThatElementAlone) {
  constexpr int64_t kCount = 37;
  for (const float sign : {1.0f, -1.0f}) {
    for (const double range : {2.0, 200.0}) {
      const std::vector<float> x = RandomFloats(75, kCount, range);
      std::vector<float> clean = x;
      Scalar().soft_cap(30.0f, kCount, clean.data());
      for (int64_t at = 0; at < kCount; ++at) {
        for (const Kernels* kernels : AllKernels()) {
          std::vector<float> found = x;
          found[at] = std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
          kernels->soft_cap(30.0f, kCount, found.data());
          EXPECT_TRUE(std::isnan(found[at])) << kernels->isa << " " << at;
          found[at] = clean[at];
          EXPECT_EQ(FirstDifference(clean, found), "") << kernels->isa << " " << at;
        }
      }
    }
  }
}

TEST(AddScaled, FusesEachProductAndSumWithEveryInstructionSet) {
  for (int64_t n : kLengths) {
    const std::vector<float> in = RandomFloats(56, n, 1.0), out = RandomFloats(57, n, 1.0);
    for (const float scale : {0.0f, 1.0f, -0.3f, 1e-30f}) {
      for (const Kernels* kernels : AllKernels()) {
        std::vector<float> found = out;
        kernels->add_scaled(in.data(), scale, n, found.data());
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(found[i], std::fma(in[i], scale, out[i])) << kernels->isa;
      }
    }
  }
}

TEST(Add, AddsElementByElementWithEveryInstructionSet) {
  for (int64_t n : kLengths) {
    const std::vector<float> in = RandomFloats(9, n, 1.0), out = RandomFloats(10, n, 1.0);
    for (const Kernels* kernels : AllKernels()) {
      std::vector<float> found = out;
      kernels->add(in.data(), n, found.data());
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(found[i], out[i] + in[i]) << kernels->isa;
    }
  }
}

TEST(Rope, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (int head_dim : {2, 4, 20, 32, 64, 80, 96, 128, 256}) {
    const std::vector<float> cos = RandomFloats(12, head_dim / 2, 1.0), sin = RandomFloats(13, head_dim / 2, 1.0);
    for (bool halves : {false, true}) {
      ExpectSameBits(vector_kernels, RandomFloats(11, head_dim, 3.0),
                     std::to_string(head_dim) + (halves ? " halves" : ""),
                     [&](const Kernels& kernels, const float*, float* head) {
                       kernels.rope(head, cos.data(), sin.data(), head_dim, halves);
                     });
    }
  }
}

TEST(Rope, RotatesThePairsOfEitherConvention) {
  const float cos[] = {0.0f, -1.0f}, sin[] = {1.0f, 0.0f};  // a quarter turn and a half turn
  std::vector<float> halves = {1, 2, 3, 4};                 // pairs (1, 3) and (2, 4)
  Scalar().rope(halves.data(), cos, sin, 4, true);
  EXPECT_THAT(halves, ::testing::ElementsAre(-3, -2, 1, -4));
  std::vector<float> neighbours = {1, 2, 3, 4};  // pairs (1, 2) and (3, 4)
  Scalar().rope(neighbours.data(), cos, sin, 4, false);
  EXPECT_THAT(neighbours, ::testing::ElementsAre(-2, 1, -3, -4));
}

TEST(LogSumExp, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (int64_t n : {1, 5, 16, 17, 33, 1000, 4099}) {
    std::vector<float> x = RandomFloats(14, n, 60.0);
    for (int64_t i = 3; i < n; i += 7) x[i] = -std::numeric_limits<float>::infinity();
    ExpectSameBits(vector_kernels, {0}, std::to_string(n),
                   [&](const Kernels& kernels, const float*, float* sum) { *sum = kernels.log_sum_exp(x.data(), n); });
  }
}

TEST(LogSumExp, StaysCloseToTheExactValue) {
  const std::vector<float> x = RandomFloats(15, 3000, 10.0);
  const double max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (float value : x) sum += std::exp(value - max);
  EXPECT_NEAR(Scalar().log_sum_exp(x.data(), 3000), std::log(sum) + max, 2e-6);
}

TEST(LogSumExp, OfNothingPossibleIsMinusInfinity) {
  const std::vector<float> x(40, -std::numeric_limits<float>::infinity());
  for (const Kernels* kernels : AllKernels()) EXPECT_EQ(kernels->log_sum_exp(x.data(), 40), x[0]) << kernels->isa;
}

}  // namespace
}  // namespace stagecoach
