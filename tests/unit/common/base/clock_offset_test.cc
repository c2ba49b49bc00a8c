#include "common/base/clock_offset.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(ClockOffset, IsInTheMiddleOfTheRoundTrip) {
  ClockOffset clock;
  EXPECT_FALSE(clock.known());
  clock.Add(1000, 5050, 1100);
  EXPECT_TRUE(clock.known());
  EXPECT_EQ(clock.offset_us(), 4000);
  EXPECT_EQ(clock.error_us(), 51);
}

TEST(ClockOffset, KeepsTheShortestRoundTrip) {
  ClockOffset clock;
  clock.Add(0, 100, 200);
  clock.Add(1000, 1007, 1010);
  clock.Add(2000, 2100, 2020);
  EXPECT_EQ(clock.offset_us(), 2);
  EXPECT_EQ(clock.error_us(), 6);
}

// Whatever the two ways take, the offset that was made up lies within the error.
TEST(ClockOffset, IsRightToWithinItsError) {
  for (const int64_t offset : {-5'000'000, -1, 0, 3, 70'000}) {
    for (const int64_t there : {0, 1, 40, 900}) {
      for (const int64_t back : {0, 2, 35, 1000}) {
        ClockOffset clock;
        clock.Add(10'000, 10'000 + there + offset, 10'000 + there + back);
        EXPECT_LE(std::abs(clock.offset_us() - static_cast<double>(offset)), clock.error_us());
      }
    }
  }
}

TEST(ClockOffset, LeavesOutARoundTripThatEndsBeforeItBegins) {
  ClockOffset clock;
  clock.Add(100, 50, 90);
  EXPECT_FALSE(clock.known());
}

}  // namespace
}  // namespace stagecoach
