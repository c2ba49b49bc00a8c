#include "coordinator/schedule/least_squares.h"

#include <array>
#include <cmath>

#include "coordinator/schedule/forgetful_fit.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;

TEST(LeastSquares, FindsTheCoefficientsOfAStraightPlane) {
  LeastSquares<3> sums;
  for (int i = 0; i < 20; ++i) {
    const double x = i % 5, y = i % 3;
    sums.Add({1, x, y}, 7 + 2 * x + 0.5 * y);
  }
  EXPECT_THAT(sums.Solve({}), ElementsAre(DoubleNear(7, 1e-9), DoubleNear(2, 1e-9), DoubleNear(0.5, 1e-9)));
}

TEST(LeastSquares, LeavesOutWhatWouldBeNegativeAndFitsTheRestAnew) {
  LeastSquares<2> sums;
  for (int x = 0; x < 10; ++x) sums.Add({1, static_cast<double>(x)}, 10 - x);
  EXPECT_THAT(sums.Solve({}), ElementsAre(DoubleNear(5.5, 1e-9), 0)) << "the mean";
}

TEST(LeastSquares, DoubtDecidesWhatExplainsAValueWhereFeaturesNeverDiffer) {
  LeastSquares<2> sums;
  EXPECT_THAT(sums.Solve({}), Each(0));
  for (int i = 0; i < 50; ++i) sums.Add({1, 2}, 10);
  EXPECT_THAT(sums.Solve({0, 1}), ElementsAre(DoubleNear(10, 1e-9), DoubleNear(0, 1e-9)));
  EXPECT_THAT(sums.Solve({1e6, 0}), ElementsAre(DoubleNear(0, 1e-3), DoubleNear(5, 1e-3)));
}

TEST(ForgetfulFit, HalvesTheWeightOfWhatItSawInItsMemory) {
  ForgetfulFit<1> fit(/*memory=*/10, {0});
  for (int i = 0; i < 1000; ++i) fit.Add({1}, 8);
  for (int i = 0; i < 10; ++i) fit.Add({1}, 0);
  EXPECT_NEAR(fit.Solve()[0], 4, 1e-9);
  EXPECT_EQ(fit.seen(), 1010);
}

}  // namespace
}  // namespace stagecoach
