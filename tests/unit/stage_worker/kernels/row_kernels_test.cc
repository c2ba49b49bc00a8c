#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/unit/stage_worker/kernels/kernel_inputs.h"

namespace stagecoach {
namespace {

constexpr int64_t kLengths[] = {1, 2, 7, 15, 16, 17, 31, 64, 100, 896, 1024};

TEST(RmsNorm, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (int64_t n : kLengths) {
    const std::vector<float> x = RandomMagnitudes(1, n, -20, 10), weight = RandomFloats(2, n, 2.0);
    std::vector<float> expected(n);
    Scalar().rms_norm(x.data(), weight.data(), n, 1e-6f, expected.data());
    for (const Kernels* kernels : vector_kernels) {
      std::vector<float> found = x;  // in place
      kernels->rms_norm(found.data(), weight.data(), n, 1e-6f, found.data());
      EXPECT_EQ(FirstDifference(expected, found), "") << kernels->isa << " " << n;
    }
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

TEST(Swiglu, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (int64_t n : kLengths) {
    std::vector<float> gate = RandomFloats(5, n, 110.0), up = RandomFloats(6, n, 5.0);
    for (int64_t i = 0; i < n; i += 2) gate[i] /= 30;
    gate[0] = 0.0f;
    std::vector<float> expected(n);
    Scalar().swiglu(gate.data(), up.data(), n, expected.data());
    for (const Kernels* kernels : vector_kernels) {
      std::vector<float> found = gate;  // in place
      kernels->swiglu(found.data(), up.data(), n, found.data());
      EXPECT_EQ(FirstDifference(expected, found), "") << kernels->isa << " " << n;
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

TEST(Add, AddsElementByElementWithEveryInstructionSet) {
  std::vector<const Kernels*> all = VectorKernels();
  all.push_back(&Scalar());
  for (int64_t n : kLengths) {
    const std::vector<float> in = RandomFloats(9, n, 1.0), out = RandomFloats(10, n, 1.0);
    for (const Kernels* kernels : all) {
      std::vector<float> found = out;
      kernels->add(in.data(), n, found.data());
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(found[i], out[i] + in[i]) << kernels->isa;
    }
  }
}

TEST(Rope, GivesTheSameBitsWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (int head_dim : {2, 4, 20, 32, 64, 80, 96, 128, 256}) {
    const std::vector<float> head = RandomFloats(11, head_dim, 3.0);
    const std::vector<float> cos = RandomFloats(12, head_dim / 2, 1.0), sin = RandomFloats(13, head_dim / 2, 1.0);
    for (bool halves : {false, true}) {
      std::vector<float> expected = head;
      Scalar().rope(expected.data(), cos.data(), sin.data(), head_dim, halves);
      for (const Kernels* kernels : vector_kernels) {
        std::vector<float> found = head;
        kernels->rope(found.data(), cos.data(), sin.data(), head_dim, halves);
        EXPECT_EQ(FirstDifference(expected, found), "") << kernels->isa << " " << head_dim << " " << halves;
      }
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
    const float expected = Scalar().log_sum_exp(x.data(), n);
    for (const Kernels* kernels : vector_kernels) {
      const float found = kernels->log_sum_exp(x.data(), n);
      EXPECT_EQ(FirstDifference(&expected, &found, 1), "") << kernels->isa << " " << n;
    }
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
  std::vector<const Kernels*> all = VectorKernels();
  all.push_back(&Scalar());
  for (const Kernels* kernels : all) EXPECT_EQ(kernels->log_sum_exp(x.data(), 40), x[0]) << kernels->isa;
}

}  // namespace
}  // namespace stagecoach
