#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/base/counter_rng.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The distance of `found` from the exact value, in units of the last place of a float of that size.
double UlpError(float found, double exact) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(std::fabs(exact)), -126) - 23);
  return std::fabs(static_cast<double>(found) - exact) / unit;
}

TEST(FixedExp, StaysWithinTwoUnitsOfTheLastPlace) {
  double worst = 0;
  for (uint64_t i = 0; i < 400000; ++i) {
    const float x = static_cast<float>(-103.0 + 191.7 * UniformAt(1, i));
    worst = std::max(worst, UlpError(FixedExp(x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2.0);
}

TEST(FixedExp, HasTheLimitsOfTheFunction) {
  EXPECT_EQ(FixedExp(-kInfinity), 0.0f);
  EXPECT_EQ(FixedExp(-1e30f), 0.0f);
  EXPECT_EQ(FixedExp(0.0f), 1.0f);
  EXPECT_EQ(FixedExp(-0.0f), 1.0f);
  EXPECT_EQ(FixedExp(89.0f), kInfinity);
  EXPECT_EQ(FixedExp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(FixedExp(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_GT(FixedExp(-103.0f), 0.0f);
}

TEST(FixedLog, StaysWithinTwoUnitsOfTheLastPlaceForAllPositiveFloats) {
  double worst = 0;
  for (uint64_t i = 0; i < 400000; ++i) {
    const uint32_t bits = 1 + static_cast<uint32_t>(UniformAt(2, i) * (0x7f800000 - 1));
    const float x = std::bit_cast<float>(bits);
    worst = std::max(worst, UlpError(FixedLog(x), std::log(static_cast<double>(x))));
  }
  for (uint64_t i = 0; i < 100000; ++i) {  // near one, where the result is small
    const float x = static_cast<float>(0.5 + UniformAt(3, i));
    if (x != 1.0f) worst = std::max(worst, UlpError(FixedLog(x), std::log(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2.0);
}

TEST(FixedLog, HasTheLimitsOfTheFunction) {
  EXPECT_EQ(FixedLog(1.0f), 0.0f);
  EXPECT_EQ(FixedLog(0.0f), -kInfinity);
  EXPECT_EQ(FixedLog(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(FixedLog(-1.0f)));
  EXPECT_TRUE(std::isnan(FixedLog(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FixedTanh, StaysWithinThreeUnitsOfTheLastPlace) {
  double worst = 0;
  for (uint64_t i = 0; i < 400000; ++i) {
    // Half of them of all magnitudes, half of them where the function bends.
    const double magnitude = i % 2 == 0 ? std::exp(-85 + 90 * UniformAt(6, i)) : 10 * UniformAt(6, i);
    const float x = static_cast<float>(UniformAt(7, i) < 0.5 ? -magnitude : magnitude);
    worst = std::max(worst, UlpError(FixedTanh(x), std::tanh(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 3.0);
}

TEST(FixedTanh, HasTheLimitsOfTheFunction) {
  EXPECT_EQ(FixedTanh(kInfinity), 1.0f);
  EXPECT_EQ(FixedTanh(-kInfinity), -1.0f);
  EXPECT_EQ(FixedTanh(3e38f), 1.0f);
  EXPECT_EQ(FixedTanh(0.0f), 0.0f);
  EXPECT_TRUE(std::signbit(FixedTanh(-0.0f)));
  EXPECT_EQ(FixedTanh(1e-42f), 1e-42f);
  EXPECT_TRUE(std::isnan(FixedTanh(std::numeric_limits<float>::quiet_NaN())));
  for (float x = 0.62f; x < 0.63f; x = std::nextafter(x, 1.0f)) {  // from one formula to the other
    ASSERT_LE(FixedTanh(x), FixedTanh(std::nextafter(x, 1.0f)) + 2e-7f);
  }
}

TEST(FixedSigmoid, StaysWithinThreeUnitsOfTheLastPlace) {
  double worst = 0;
  for (uint64_t i = 0; i < 400000; ++i) {
    const float x = static_cast<float>(-87.0 + 120 * UniformAt(8, i));
    worst = std::max(worst, UlpError(FixedSigmoid(x), 1 / (1 + std::exp(-static_cast<double>(x)))));
  }
  EXPECT_LE(worst, 3.0);
}

TEST(FixedSigmoid, HasTheLimitsOfTheFunction) {
  EXPECT_EQ(FixedSigmoid(0.0f), 0.5f);
  EXPECT_EQ(FixedSigmoid(kInfinity), 1.0f);
  EXPECT_EQ(FixedSigmoid(-kInfinity), 0.0f);
  EXPECT_EQ(FixedSigmoid(-3e38f), 0.0f);
  EXPECT_TRUE(std::isnan(FixedSigmoid(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FixedSoftplus, StaysWithinTwoUnitsOfTheLastPlace) {
  double worst = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    const float x = static_cast<float>(200 * UniformAt(77, i) - 100);
    const double exact = x > 0 ? x + std::log1p(std::exp(-static_cast<double>(x))) : std::log1p(std::exp(x * 1.0));
    worst = std::max(worst, UlpError(FixedSoftplus(x), exact));
  }
  EXPECT_LE(worst, 2.0);
}

TEST(FixedSoftplus, HasTheLimitsOfTheFunction) {
  EXPECT_EQ(FixedSoftplus(0.0f), 0.6931472f);
  EXPECT_EQ(FixedSoftplus(kInfinity), kInfinity);
  EXPECT_EQ(FixedSoftplus(-kInfinity), 0.0f);
  EXPECT_EQ(FixedSoftplus(3e38f), 3e38f);
  EXPECT_TRUE(std::isnan(FixedSoftplus(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FixedSinCos, IsExactToTwelveDigitsForAnglesUpToAMillion) {
  double worst = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    // All magnitudes: a third of the angles is below one.
    const double angle = (UniformAt(4, i) < 0.5 ? 1 : -1) * std::exp(std::log(1e-6) + std::log(1e12) * UniformAt(5, i));
    double sin, cos;
    FixedSinCos(angle, &sin, &cos);
    worst = std::max({worst, std::fabs(sin - std::sin(angle)), std::fabs(cos - std::cos(angle))});
  }
  EXPECT_LE(worst, 1e-15);
  for (int position = 0; position <= 1000000; position += 97) {  // whole angles: the highest frequency of RoPE
    double sin, cos;
    FixedSinCos(position, &sin, &cos);
    ASSERT_NEAR(sin, std::sin(position), 1e-15) << position;
    ASSERT_NEAR(cos, std::cos(position), 1e-15) << position;
  }
}

TEST(FixedPow, GivesTheFrequenciesOfRope) {
  for (double base : {10000.0, 500000.0, 1e6, 1e7}) {
    EXPECT_EQ(FixedPow(base, 0.0), 1.0);
    for (int i = 0; i < 64; ++i) {
      const double exact = std::pow(base, -2.0 * i / 128);
      ASSERT_NEAR(FixedPow(base, -2.0 * i / 128) / exact, 1.0, 4e-15) << base << " " << i;
    }
  }
}

}  // namespace
}  // namespace stagecoach
