#include "coordinator/report/axis_scale.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Labels(const AxisScale& scale) {
  std::vector<std::string> labels;
  for (const AxisTick& tick : scale.ticks()) labels.push_back(tick.label);
  return labels;
}

TEST(AxisScale, MarksRoundNumbers) {
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLinear, {3, 87}, true, 6)),
              ElementsAre("0", "20", "40", "60", "80", "100"));
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLinear, {0.31, 0.38}, false, 6)),
              ElementsAre("0.3", "0.32", "0.34", "0.36", "0.38"));
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLinear, {-7, 13}, false, 6)),
              ElementsAre("-10", "-5", "0", "5", "10", "15"));
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLinear, {26000}, true, 4)),
              ElementsAre("0", "10k", "20k", "30k"));
}

TEST(AxisScale, MarksPowersOfTenAndRoundNumbersBetweenThem) {
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLog, {3, 87}, true, 8)),
              ElementsAre("2", "5", "10", "20", "50", "100"));
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLog, {0.02, 900}, true, 8)),
              ElementsAre("0.01", "0.1", "1", "10", "100", "1000"));
}

TEST(AxisScale, MarksTheGivenNumbersOnceEach) {
  EXPECT_THAT(Labels(AxisScale::AtValues(ScaleKind::kLog, {4, 1, 2, 1})), ElementsAre("1", "2", "4"));
}

TEST(AxisScale, PutsItsEndsAtItsPixels) {
  AxisScale scale = AxisScale::ForValues(ScaleKind::kLinear, {0, 10}, true, 6);
  scale.SetPixels(100, 200);
  EXPECT_EQ(scale.At(0), 100);
  EXPECT_EQ(scale.At(10), 200);
  EXPECT_EQ(scale.At(5), 150);
  EXPECT_EQ(scale.At(1e9), 200);
  AxisScale log = AxisScale::ForValues(ScaleKind::kLog, {1, 100}, true, 3);
  log.SetPixels(0, 100);
  EXPECT_NEAR(log.At(10), 50, 1e-9);
  EXPECT_EQ(log.At(0), 0);
}

TEST(AxisScale, HasASpanWhateverTheValuesAre) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const std::vector<std::vector<double>> hostile = {{},
                                                    {0},
                                                    {5},
                                                    {5, 5, 5},
                                                    {-3},
                                                    {nan},
                                                    {inf, -inf},
                                                    {0, 0},
                                                    {1e-300, 1e300},
                                                    {1e300},
                                                    {-1e308, 1e308},
                                                    {std::numeric_limits<double>::denorm_min()},
                                                    {1, 1 + 1e-15}};
  for (const std::vector<double>& values : hostile) {
    for (ScaleKind kind : {ScaleKind::kLinear, ScaleKind::kLog}) {
      for (bool from_zero : {false, true}) {
        for (int ticks : {2, 3, 8}) {
          AxisScale scale = AxisScale::ForValues(kind, values, from_zero, ticks);
          scale.SetPixels(0, 400);
          SCOPED_TRACE(::testing::PrintToString(values) + (kind == ScaleKind::kLog ? " log" : " linear"));
          EXPECT_LT(scale.low(), scale.high());
          EXPECT_GE(scale.ticks().size(), 1u);
          EXPECT_LE(scale.ticks().size(), static_cast<size_t>(ticks) + 1);
          for (double value : values) {
            EXPECT_GE(scale.At(value), 0);
            EXPECT_LE(scale.At(value), 400);
          }
        }
      }
    }
  }
}

TEST(TickLabel, IsShort) {
  EXPECT_EQ(TickLabel(0), "0");
  EXPECT_EQ(TickLabel(1200), "1200");
  EXPECT_EQ(TickLabel(12000), "12k");
  EXPECT_EQ(TickLabel(0.25), "0.25");
  EXPECT_EQ(TickLabel(3e9), "3G");
  EXPECT_EQ(TickLabel(0.1 + 0.2), "0.3");
}

}  // namespace
}  // namespace stagecoach
