#include "stage_worker/kernels/sampling.h"

#include <limits>
#include <numeric>

#include "gmock/gmock.h"
#include "tests/unit/stage_worker/kernels/kernel_inputs.h"

namespace stagecoach {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kRowLengths[] = {1, 3, 4, 7, 8, 15, 16, 17, 31, 64, 100, 127, 128, 129, 130, 896, 1024, 1025, 5003};

const SamplingKernels& Definition() { return *Scalar().sampling; }

// Logits with ties, masked ones, and now and then what is no number.
std::vector<float> RandomLogits(uint64_t seed, int64_t n, bool invalid) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) {
    const double random = UniformAt(seed, i);
    x[i] = static_cast<float>(40 * (random - 0.5));
    if (i % 3 == 0) x[i] = std::round(x[i]);
    if (i % 11 == 5) x[i] = -kInf;
    if (i % 13 == 7) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
    if (invalid && i % 17 == 9) x[i] = i % 2 == 0 ? kNan : kInf;
  }
  return x;
}

TEST(FindPeak, IsTheFirstOfTheLargestNumbersAndCountsWhatIsNone) {
  const std::vector<float> x = {kNan, -kInf, 2, kNan, 5, -1, 5, kInf};
  const LogitPeak peak = Definition().find_peak(x.data(), 7);
  EXPECT_EQ(peak.max, 5);
  EXPECT_EQ(peak.index, 4);
  EXPECT_EQ(peak.invalid, 2);
  const LogitPeak infinite = Definition().find_peak(x.data(), 8);
  EXPECT_EQ(infinite.max, kInf);
  EXPECT_EQ(infinite.index, 7);
  EXPECT_EQ(infinite.invalid, 3);
  const LogitPeak nothing = Definition().find_peak(x.data(), 2);
  EXPECT_EQ(nothing.max, -kInf);
  EXPECT_EQ(nothing.index, 0);
  EXPECT_EQ(nothing.invalid, 1);
}

TEST(FindPeak, IsTheSameWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  const std::vector<float> values = {-kInf, kNan, -1, -0.0f, 0.0f, 0.5f, 0.5f, 1, kInf};
  for (int64_t n : kRowLengths) {
    for (size_t choices = 1; choices <= values.size(); ++choices) {
      for (uint64_t seed = 0; seed < 5; ++seed) {
        std::vector<float> x(static_cast<size_t>(n));
        for (size_t i = 0; i < x.size(); ++i) {
          x[i] = values[static_cast<size_t>(UniformAt(seed, i) * static_cast<double>(choices))];
        }
        const LogitPeak expected = Definition().find_peak(x.data(), n);
        for (const Kernels* kernels : vector_kernels) {
          const LogitPeak found = kernels->sampling->find_peak(x.data(), n);
          ASSERT_EQ(found.max, expected.max) << kernels->isa << " " << n;
          ASSERT_EQ(found.index, expected.index) << kernels->isa << " " << n;
          ASSERT_EQ(found.invalid, expected.invalid) << kernels->isa << " " << n;
        }
      }
    }
  }
}

TEST(Weigh, GivesPowersOfTwoInUnitsOfTheBest) {
  const std::vector<float> x = {3, 2, 1, -kInf, kNan, -57, -59, 3};
  uint64_t sum = 0;
  uint32_t weights[8];
  const Weighing weighing = {3, 0.5f, -kInf};
  const uint64_t total = Definition().weigh(x.data(), 8, weighing, &sum);
  Definition().weigh_each(x.data(), 8, weighing, weights);
  EXPECT_EQ(sum, total);
  EXPECT_EQ(std::accumulate(weights, weights + 8, uint64_t{0}), total);
  EXPECT_EQ(weights[0], kWeightOne);
  EXPECT_EQ(weights[7], kWeightOne);
  EXPECT_NEAR(weights[1], std::sqrt(0.5) * kWeightOne, 2e-7 * kWeightOne);
  EXPECT_EQ(weights[2], kWeightOne / 2);
  EXPECT_EQ(weights[5], 1u);
  EXPECT_EQ(weights[6], 0u);  // half of one is even zero
  EXPECT_EQ(weights[3], 0u);
  EXPECT_EQ(weights[4], 0u);
}

TEST(Weigh, CountsNothingBelowTheFloor) {
  const std::vector<float> x = {1, 2, 3, 2};
  uint32_t weights[4];
  Definition().weigh_each(x.data(), 4, {3, 0, 2}, weights);
  EXPECT_THAT(weights, ::testing::ElementsAre(0, kWeightOne, kWeightOne, kWeightOne));
}

TEST(Weigh, RoundsWeightsTheSameWithEveryInstructionSet) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (int64_t n : kRowLengths) {
    std::vector<float> x = RandomLogits(3, n, false);
    if (n > 5) x[5] = kNan;
    for (const float scale : {0.0f, 1e-30f, 0.4f, 1.0f, 1.4426950f, 3e38f}) {
      for (const float floor : {-kInf, -3.0f, 10.0f, 20.0f}) {
        const Weighing weighing = {20, scale, floor};
        std::vector<uint64_t> expected(static_cast<size_t>(n / kWeightBlock + 1)), found = expected;
        const uint64_t total = Definition().weigh(x.data(), n, weighing, expected.data());
        for (const Kernels* kernels : vector_kernels) {
          ASSERT_EQ(kernels->sampling->weigh(x.data(), n, weighing, found.data()), total) << kernels->isa << " " << n;
          ASSERT_EQ(found, expected) << kernels->isa << " " << n;
        }
        if (n > kWeightBlock) continue;
        // One more than is written: nothing goes behind the end.
        std::vector<uint32_t> single(static_cast<size_t>(n + 1), 7), other = single;
        Definition().weigh_each(x.data(), n, weighing, single.data());
        for (const Kernels* kernels : vector_kernels) {
          kernels->sampling->weigh_each(x.data(), n, weighing, other.data());
          ASSERT_EQ(other, single) << kernels->isa << " " << n;
        }
      }
    }
  }
}

TEST(Weigh, StaysCloseToTheExactPowerOverItsWholeRange) {
  std::vector<float> x;
  for (float power = 0; power > -35; power = power * 1.001f - 1e-5f) x.push_back(power);
  std::vector<uint32_t> weights(x.size());
  Definition().weigh_each(x.data(), static_cast<int64_t>(x.size()), {0, 1, -kInf}, weights.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp2(static_cast<double>(x[i])) * kWeightOne;
    ASSERT_NEAR(weights[i], exact, 0.5 + 2e-7 * exact) << x[i];
  }
}

TEST(Gather, FindsTheIndicesOfARangeWithEveryInstructionSet) {
  for (int64_t n : kRowLengths) {
    const std::vector<float> x = RandomLogits(4, n, true);
    for (const float low : {-kInf, -10.0f, 0.0f, 3.0f}) {
      for (const float high : {-5.0f, 0.0f, 3.0f, 19.0f, kInf}) {
        std::vector<int32_t> expected;
        int64_t above = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          if (x[i] >= low && x[i] < high) expected.push_back(static_cast<int32_t>(i));
          if (x[i] >= high) ++above;
        }
        for (const Kernels* kernels : AllKernels()) {
          std::vector<int32_t> found(static_cast<size_t>(n + kGatherSlack));
          int64_t found_above = -1;
          found.resize(
              static_cast<size_t>(kernels->sampling->gather(x.data(), n, low, high, found.data(), &found_above)));
          ASSERT_EQ(found, expected) << kernels->isa << " " << n << " " << low << " " << high;
          ASSERT_EQ(found_above, above) << kernels->isa;
        }
      }
    }
  }
}

TEST(Penalize, ChangesWhatWasSeenAndNothingElseWithEveryInstructionSet) {
  for (int64_t n : kRowLengths) {
    const std::vector<float> x = RandomLogits(5, n, true);
    for (const double share : {0.01, 0.5, 1.0}) {
      std::vector<uint8_t> seen(x.size());
      std::vector<float> expected = x;
      for (size_t i = 0; i < x.size(); ++i) {
        seen[i] = UniformAt(6, i) < share ? static_cast<uint8_t>(1 + i % 255) : 0;
        if (seen[i] != 0) expected[i] = x[i] > 0 ? x[i] / 1.3f : x[i] * 1.3f;
      }
      for (const Kernels* kernels : AllKernels()) {
        std::vector<float> found = x;
        kernels->sampling->penalize(seen.data(), n, 1.3f, found.data());
        ASSERT_EQ(std::memcmp(found.data(), expected.data(), x.size() * sizeof(float)), 0)
            << kernels->isa << " " << n << " " << share;
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach
