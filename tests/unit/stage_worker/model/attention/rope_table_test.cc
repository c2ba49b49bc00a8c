#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "stage_worker/model/attention/attention.h"

namespace stagecoach {
namespace {

TEST(RopeTable, IsAccurateAtPositionsFarIntoALongContext) {
  RopeParameters rope;
  rope.freq_base = 1e6;
  constexpr int64_t kHeadDim = 128;
  rope.dims = kHeadDim;
  const RopeTable table(rope, {});
  std::vector<float> cos(kHeadDim / 2), sin(kHeadDim / 2);
  for (const int64_t position : {int64_t{0}, int64_t{1}, int64_t{4097}, int64_t{131071}, int64_t{10000000}}) {
    table.Angles(position, cos.data(), sin.data());
    for (size_t i = 0; i < cos.size(); ++i) {
      const double angle = static_cast<double>(position) * std::pow(1e6, -2.0 * static_cast<double>(i) / kHeadDim);
      EXPECT_NEAR(cos[i], std::cos(angle), 2e-7) << position << " " << i;
      EXPECT_NEAR(sin[i], std::sin(angle), 2e-7) << position << " " << i;
    }
  }
}

TEST(RopeTable, YarnKeepsFastPairsStretchesSlowOnesAndRaisesTheMagnitude) {
  RopeParameters rope;
  rope.freq_base = 1e6;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 4;
  rope.original_context = 16384;
  rope.attn_factor = 1.5;
  constexpr int64_t kHeadDim = 128;
  rope.dims = kHeadDim;
  const RopeTable table(rope, {});
  std::vector<float> cos(kHeadDim / 2), sin(kHeadDim / 2);
  table.Angles(0, cos.data(), sin.data());
  const double magnitude = 1.5 * (1 + 0.1 * std::log(4.0));
  for (const float c : cos) EXPECT_NEAR(c, magnitude, 1e-6);
  table.Angles(1, cos.data(), sin.data());
  EXPECT_NEAR(sin[0], magnitude * std::sin(1.0), 1e-6);
  const double slowest = std::pow(1e6, -126.0 / 128) / 4;
  EXPECT_NEAR(sin[63] / (magnitude * slowest), 1, 1e-5);
}

TEST(RopeTable, DividesByTheFilesFactors) {
  RopeParameters rope;
  rope.dims = 4;
  rope.factors = true;
  const RopeTable table(rope, {2, 8});
  float cos[2], sin[2];
  table.Angles(3, cos, sin);
  EXPECT_NEAR(sin[0], std::sin(1.5), 1e-6);
  EXPECT_NEAR(sin[1], std::sin(3 * 0.01 / 8), 1e-6);
}

TEST(RopeTable, OfLayersThatDoNotTakeTheFilesFactorsGoesWithoutThem) {
  RopeParameters rope;
  rope.dims = 4;
  const RopeTable table(rope, {2, 8});
  float cos[2], sin[2];
  table.Angles(3, cos, sin);
  EXPECT_NEAR(sin[0], std::sin(3.0), 1e-6);
}

// DeepSeek-V3's: the magnitude is in the scale of the scores, which the angles must not repeat.
TEST(RopeTable, YarnMayLeaveTheMagnitudeOfFarContextsToTheScores) {
  RopeParameters rope;
  rope.dims = 64;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 40;
  rope.original_context = 4096;
  rope.log_magnitude = false;
  const RopeTable table(rope, {});
  float cos[32], sin[32];
  table.Angles(0, cos, sin);
  for (const float c : cos) EXPECT_EQ(c, 1.0f);
  table.Angles(1, cos, sin);
  EXPECT_NEAR(sin[31] / (std::pow(1e4, -62.0 / 64) / 40), 1, 1e-5);
}

}  // namespace
}  // namespace stagecoach
