#include "coordinator/front/relaunch_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kSecond = 1000000;

TEST(RelaunchPolicy, WaitsLongerAfterEveryLossUpToThirtySeconds) {
  RelaunchPolicy policy(0);
  std::vector<int64_t> waits_ms;
  for (int i = 0; i < 12; ++i)
    waits_ms.push_back(absl::ToInt64Milliseconds(*policy.Lost(3, absl::InfiniteDuration(), 0)));
  EXPECT_THAT(waits_ms, ElementsAre(0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000));
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(*policy.Lost(3, absl::InfiniteDuration(), 0), absl::Seconds(30));
}

TEST(RelaunchPolicy, ATokenMakesTheNextLossTheFirstAgain) {
  RelaunchPolicy policy(0);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(policy.Lost(3, absl::Minutes(10), kSecond).has_value());
  EXPECT_EQ(policy.losses(), 5);
  policy.Produced(2 * kSecond);
  EXPECT_EQ(policy.losses(), 0);
  EXPECT_EQ(*policy.Lost(3, absl::Minutes(10), 3 * kSecond), absl::ZeroDuration());
}

TEST(RelaunchPolicy, ThreeQuickLossesDoNotEndARunAndNeitherDoesOneAfterALongTime) {
  RelaunchPolicy quick(0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(quick.Lost(3, absl::Minutes(10), i * kSecond / 10).has_value());
  RelaunchPolicy slow(0);
  EXPECT_TRUE(slow.Lost(3, absl::Minutes(10), 3600 * kSecond).has_value());
  EXPECT_TRUE(slow.Lost(3, absl::Minutes(10), 3601 * kSecond).has_value());
  EXPECT_TRUE(slow.Lost(3, absl::Minutes(10), 3602 * kSecond).has_value()) << "it was idle for an hour before";
  EXPECT_FALSE(slow.Lost(3, absl::Minutes(10), 4200 * kSecond).has_value());
}

// A service at night.
TEST(RelaunchPolicy, AJobThatStaysUpWithNothingToDoMakesTheNextLossTheFirstAgain) {
  RelaunchPolicy policy(0);
  int64_t now_us = 0;
  for (int day = 1; day <= 10; ++day) {
    for (; now_us < day * 86400 * kSecond; now_us += 600 * kSecond) policy.Idle(true, now_us);
    EXPECT_EQ(policy.Lost(3, absl::Minutes(10), now_us), absl::ZeroDuration()) << day;
  }
}

TEST(RelaunchPolicy, AJobThatIsLostSoonWithNothingToDoIsGivenUpInTheEnd) {
  RelaunchPolicy policy(0);
  int64_t now_us = 0;
  while (now_us < 3600 * kSecond && policy.Lost(3, absl::Minutes(10), now_us).has_value()) {
    for (int i = 0; i < 20; ++i) policy.Idle(true, now_us += kSecond);
    policy.Idle(false, now_us += kSecond);
    for (int i = 0; i < 20; ++i) policy.Idle(true, now_us += kSecond);
  }
  EXPECT_LT(now_us, 700 * kSecond);
}

TEST(RelaunchPolicy, OnlyLoadingMoreThanAnyJobBeforeIsProgress) {
  RelaunchPolicy policy(0);
  policy.Loaded(100, 8 * kSecond);
  EXPECT_TRUE(policy.Lost(1, absl::Seconds(10), 15 * kSecond).has_value());
  policy.Loaded(60, 16 * kSecond);
  policy.Loaded(100, 24 * kSecond);
  EXPECT_FALSE(policy.Lost(1, absl::Seconds(10), 25 * kSecond).has_value());
  policy.Loaded(101, 27 * kSecond);
  EXPECT_TRUE(policy.Lost(1, absl::Seconds(10), 28 * kSecond).has_value());
  policy.Produced(29 * kSecond);
  EXPECT_TRUE(policy.Lost(1, absl::Seconds(10), 30 * kSecond).has_value());
  policy.Loaded(50, 39 * kSecond);  // of the job after that one
  EXPECT_TRUE(policy.Lost(1, absl::Seconds(10), 41 * kSecond).has_value());
}

TEST(RelaunchPolicy, TheTimeIsKeptWhateverTheLaunchesTake) {
  RelaunchPolicy policy(0);
  int64_t now_us = 0;
  const absl::Duration timeout = absl::Seconds(100);
  std::optional<absl::Duration> wait;
  while ((wait = policy.Lost(3, timeout, now_us)).has_value()) {
    now_us += absl::ToInt64Microseconds(*wait);
    now_us += absl::ToInt64Microseconds(policy.StartupTime(absl::Seconds(60), 3, timeout, now_us));
  }
  EXPECT_EQ(now_us, 100 * kSecond);
  EXPECT_EQ(policy.losses(), 3);
}

TEST(RelaunchPolicy, EveryLaunchHasTimeToReport) {
  RelaunchPolicy policy(0);
  EXPECT_EQ(policy.StartupTime(absl::Seconds(60), 1, absl::ZeroDuration(), 0), absl::Seconds(60)) << "the first";
  policy.Lost(3, absl::ZeroDuration(), 0);
  EXPECT_EQ(policy.StartupTime(absl::Seconds(60), 3, absl::ZeroDuration(), 0), absl::Seconds(60));
  policy.Lost(3, absl::ZeroDuration(), 0);
  EXPECT_EQ(policy.StartupTime(absl::Seconds(60), 3, absl::ZeroDuration(), 0), absl::Seconds(10));
  EXPECT_EQ(policy.StartupTime(absl::Seconds(5), 3, absl::ZeroDuration(), 0), absl::Seconds(5));
}

TEST(RelaunchPolicy, WithoutPatienceTheFirstLossIsTheLast) {
  EXPECT_FALSE(RelaunchPolicy(5).Lost(1, absl::ZeroDuration(), 5).has_value());
}

}  // namespace
}  // namespace stagecoach
