#include "coordinator/session/relaunch_policy.h"

#include <algorithm>
#include <vector>

#include "coordinator/session/start_watch.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

constexpr int64_t kSecond = 1000000;

struct RelaunchPolicyTest : ::testing::Test {
  RelaunchPolicy policy{0};
};

TEST_F(RelaunchPolicyTest, WaitsLongerAfterEveryLossUpToThirtySeconds) {
  std::vector<int64_t> waits_ms;
  for (int i = 0; i < 12; ++i)
    waits_ms.push_back(absl::ToInt64Milliseconds(*policy.Lost(3, absl::InfiniteDuration(), 0)));
  EXPECT_THAT(waits_ms, ElementsAre(0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000));
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(*policy.Lost(3, absl::InfiniteDuration(), 0), absl::Seconds(30));
}

TEST_F(RelaunchPolicyTest, ATokenMakesTheNextLossTheFirstAgain) {
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(policy.Lost(3, absl::Minutes(10), kSecond).has_value());
  EXPECT_EQ(policy.losses(), 5);
  policy.Produced(2 * kSecond);
  EXPECT_EQ(policy.losses(), 0);
  EXPECT_EQ(*policy.Lost(3, absl::Minutes(10), 3 * kSecond), absl::ZeroDuration());
}

TEST_F(RelaunchPolicyTest, ThreeQuickLossesDoNotEndARunAndNeitherDoesOneAfterALongTime) {
  RelaunchPolicy quick(0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(quick.Lost(3, absl::Minutes(10), i * kSecond / 10).has_value());
  RelaunchPolicy slow(0);
  EXPECT_TRUE(slow.Lost(3, absl::Minutes(10), 3600 * kSecond).has_value());
  EXPECT_TRUE(slow.Lost(3, absl::Minutes(10), 3601 * kSecond).has_value());
  EXPECT_TRUE(slow.Lost(3, absl::Minutes(10), 3602 * kSecond).has_value()) << "it was idle for an hour before";
  EXPECT_FALSE(slow.Lost(3, absl::Minutes(10), 4200 * kSecond).has_value());
}

// A service at night.
TEST_F(RelaunchPolicyTest, AJobThatStaysUpWithNothingToDoMakesTheNextLossTheFirstAgain) {
  int64_t now_us = 0;
  for (int day = 1; day <= 10; ++day) {
    for (; now_us < day * 86400 * kSecond; now_us += 600 * kSecond) policy.Idle(true, now_us);
    EXPECT_EQ(policy.Lost(3, absl::Minutes(10), now_us), absl::ZeroDuration()) << day;
  }
}

TEST_F(RelaunchPolicyTest, AJobThatIsLostSoonWithNothingToDoIsGivenUpInTheEnd) {
  int64_t now_us = 0;
  while (now_us < 3600 * kSecond && policy.Lost(3, absl::Minutes(10), now_us).has_value()) {
    for (int i = 0; i < 20; ++i) policy.Idle(true, now_us += kSecond);
    policy.Idle(false, now_us += kSecond);
    for (int i = 0; i < 20; ++i) policy.Idle(true, now_us += kSecond);
  }
  EXPECT_LT(now_us, 700 * kSecond);
}

TEST_F(RelaunchPolicyTest, OnlyLoadingMoreThanAnyJobBeforeIsProgress) {
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

TEST_F(RelaunchPolicyTest, TheTimeIsKeptWhateverTheLaunchesTake) {
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

TEST_F(RelaunchPolicyTest, EveryLaunchHasTimeToReport) {
  EXPECT_EQ(policy.StartupTime(absl::Seconds(60), 1, absl::ZeroDuration(), 0), absl::Seconds(60)) << "the first";
  policy.Lost(3, absl::ZeroDuration(), 0);
  EXPECT_EQ(policy.StartupTime(absl::Seconds(60), 3, absl::ZeroDuration(), 0), absl::Seconds(60));
  policy.Lost(3, absl::ZeroDuration(), 0);
  EXPECT_EQ(policy.StartupTime(absl::Seconds(60), 3, absl::ZeroDuration(), 0), absl::Seconds(10));
  EXPECT_EQ(policy.StartupTime(absl::Seconds(5), 3, absl::ZeroDuration(), 0), absl::Seconds(5));
}

TEST_F(RelaunchPolicyTest, WithoutPatienceTheFirstLossIsTheLast) {
  EXPECT_FALSE(RelaunchPolicy(5).Lost(1, absl::ZeroDuration(), 5).has_value());
}

// A job that computes what it may: a guilty request kills it, before which the first `progressing` others bring a
// token.
class Trial {
 public:
  Trial(int requests, std::set<RequestId> guilty) : guilty_(std::move(guilty)) {
    for (int i = 1; i <= requests; ++i) unfinished_.push_back(static_cast<RequestId>(i));
  }

  // Runs one job until it dies or is done; true when it died.
  bool Run(size_t progressing) {
    ++jobs_;
    std::vector<RequestId> given;
    const auto give = [&] {
      for (const RequestId request : unfinished_) {
        const bool there = std::find(given.begin(), given.end(), request) != given.end();
        if (!there && suspects_.MayRun(request)) given.push_back(request);
      }
      std::sort(given.begin(), given.end());
    };
    give();
    EXPECT_FALSE(given.empty());
    std::set<RequestId> progressed;
    for (size_t with_guilty = 0; !HasGuilty(given) || with_guilty < progressing; with_guilty += HasGuilty(given)) {
      const auto next = std::find_if(given.begin(), given.end(), [&](RequestId request) {
        return !guilty_.contains(request) && !progressed.contains(request);
      });
      if (next == given.end()) break;
      progressed.insert(*next);
      if (suspects_.Progressed(*next)) give();
    }
    if (!HasGuilty(given)) return false;
    if (const auto found = suspects_.Lost(/*accusing=*/true, given)) {
      EXPECT_TRUE(guilty_.contains(*found)) << *found << " is innocent";
      std::erase(unfinished_, *found);
      found_.insert(*found);
    }
    return true;
  }

  bool HasGuilty(const std::vector<RequestId>& given) const {
    return std::any_of(given.begin(), given.end(), [&](RequestId request) { return guilty_.contains(request); });
  }

  int RunUntilNobodyDies(size_t progressing) {
    while (Run(progressing) && jobs_ < 1000) {
    }
    return jobs_;
  }

  const std::set<RequestId>& found() const { return found_; }
  Suspects& suspects() { return suspects_; }

 private:
  const std::set<RequestId> guilty_;
  std::vector<RequestId> unfinished_;
  std::set<RequestId> found_;
  Suspects suspects_;
  int jobs_ = 0;
};

TEST(Suspects, ALoneRequestIsGuiltyAtTheSecondLoss) {
  Trial trial(1, {1});
  EXPECT_TRUE(trial.Run(0));
  EXPECT_TRUE(trial.found().empty());
  EXPECT_TRUE(trial.Run(0));
  EXPECT_EQ(trial.found(), std::set<RequestId>({1}));
}

TEST(Suspects, FindsTheGuiltyOneAmongManyWhereverItStands) {
  for (RequestId guilty = 1; guilty <= 64; ++guilty) {
    Trial trial(64, {guilty});
    EXPECT_LE(trial.RunUntilNobodyDies(0), 2 + 7 + 2) << guilty;
    EXPECT_EQ(trial.found(), std::set<RequestId>({guilty}));
  }
}

TEST(Suspects, FindsItAlsoWhenOthersBringTokensEachTime) {
  for (const size_t progressing : {1, 5, 31}) {
    Trial trial(32, {20});
    EXPECT_LE(trial.RunUntilNobodyDies(progressing), 12) << progressing;
    EXPECT_EQ(trial.found(), std::set<RequestId>({20}));
  }
}

TEST(Suspects, FindsSeveral) {
  Trial trial(50, {3, 30, 31});
  EXPECT_LT(trial.RunUntilNobodyDies(0), 60);
  EXPECT_EQ(trial.found(), std::set<RequestId>({3, 30, 31}));
}

TEST(Suspects, WhereEveryRequestDiesItIsNoRequest) {
  Trial trial(20, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20});
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(trial.Run(0));
  EXPECT_EQ(trial.found().size(), 3u);
}

TEST(Suspects, NobodyIsGuiltyOfAJobThatItWasNotGivenTo) {
  Suspects suspects;
  EXPECT_EQ(suspects.Lost(true, {5, 6}), std::nullopt);
  EXPECT_EQ(suspects.Lost(true, {5, 6}), std::nullopt);
  EXPECT_FALSE(suspects.Progressed(6));
  EXPECT_EQ(suspects.Lost(true, {7}), std::nullopt) << "7 was there, 5 was not";
  EXPECT_EQ(suspects.Lost(true, {5}), 5u);
}

TEST(Suspects, ALossThatAccusesNobodyHoldsNobodyBack) {
  Suspects suspects;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(suspects.Lost(false, {1, 2}), std::nullopt);
  EXPECT_TRUE(suspects.MayRun(1) && suspects.MayRun(2));
  EXPECT_EQ(suspects.Lost(true, {1, 2}), std::nullopt);
  EXPECT_TRUE(suspects.MayRun(1) && suspects.MayRun(2)) << "the first loss that accuses is an accident";
  EXPECT_EQ(suspects.Lost(true, {1, 2}), std::nullopt);
  EXPECT_TRUE(suspects.MayRun(1));
  EXPECT_FALSE(suspects.MayRun(2));
  EXPECT_FALSE(suspects.MayRun(3)) << "who is new waits for the verdict";
}

TEST(Suspects, ProgressOfAllOnTrialLetsTheNextOnesRunAndThenEverybody) {
  Suspects suspects;
  suspects.Lost(true, {1, 2, 3});
  suspects.Lost(true, {1, 2, 3});
  EXPECT_TRUE(suspects.MayRun(1) && suspects.MayRun(2) && !suspects.MayRun(3));
  EXPECT_FALSE(suspects.Progressed(1));
  EXPECT_TRUE(suspects.Ended(2));
  EXPECT_TRUE(suspects.MayRun(3));
  EXPECT_FALSE(suspects.MayRun(4));
  EXPECT_TRUE(suspects.Progressed(3));
  EXPECT_TRUE(suspects.MayRun(4));
}

TEST(Suspects, WhoStandsTrialBesideOthersIsTriedAgainAlone) {
  Suspects suspects;
  suspects.Lost(true, {1, 2});
  suspects.Lost(true, {1, 2});
  EXPECT_TRUE(suspects.Progressed(1));                   // 2 joins the same job
  EXPECT_EQ(suspects.Lost(true, {1, 2}), std::nullopt);  // 1 may have done it after its token
  EXPECT_FALSE(suspects.MayRun(1));
  EXPECT_EQ(suspects.Lost(true, {2}), std::optional<RequestId>(2));
  EXPECT_TRUE(suspects.MayRun(1));
}

constexpr absl::Duration kHalf = absl::Milliseconds(500);

TEST(MissingRanks, ARankThatStaysAwayBesideOthersHasEnded) {
  MissingRanks ranks;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(ranks.Waited(kHalf, true)) << i;
  EXPECT_TRUE(ranks.Waited(kHalf, true));
}

// On a busy machine mpirun itself may take seconds to start the first one.
TEST(MissingRanks, AStartThatIsSlowAsAWholeIsNoEnd) {
  MissingRanks ranks;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(ranks.Waited(kHalf, false)) << "none is there yet";
  EXPECT_FALSE(ranks.Waited(kHalf, true)) << "the first one alone";
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(ranks.Waited(kHalf, false)) << "all are";
  EXPECT_FALSE(ranks.Waited(kHalf, true));
}

}  // namespace
}  // namespace stagecoach
