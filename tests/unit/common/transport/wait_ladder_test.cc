#include "common/transport/wait_ladder.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kForEver = 3600 * kSecond;

// A thread that polls in no time, and to which nothing happens, on a clock of its own that starts at 0.
class Waiting {
 public:
  // Waits until `end_us`; the number of tries.
  int TriesUntil(int64_t end_us) {
    int tries = 0;
    for (; now_us_ < end_us; ++tries) {
      now_us_ += std::max<int64_t>(1, policy_.Next(now_us_));
    }
    return tries;
  }

 private:
  int64_t now_us_ = 0;
  WaitPolicy policy_{0};
};

TEST(WaitPolicy, TriesAgainAtOnceThenSleepsBrieflyThenLongerAndLonger) {
  WaitPolicy policy(0);
  EXPECT_EQ(policy.Next(0), 0);
  EXPECT_EQ(policy.Next(1), 5);
  EXPECT_EQ(policy.Next(99), 5);
  int64_t last_us = 0;
  for (int i = 0; i < 20; ++i) {
    const int64_t sleep_us = policy.Next(100 + 200 * i);
    ASSERT_GT(sleep_us, 0);
    EXPECT_GE(sleep_us, last_us);
    last_us = sleep_us;
    EXPECT_TRUE(i > 0 || sleep_us == 20) << sleep_us;
  }
  EXPECT_EQ(last_us, 200);
  EXPECT_EQ(policy.Next(kSecond - 1), 200);
}

TEST(WaitPolicy, IdleSleepsGrowWithTheTimeOfIdlenessFromFourToTwentyMilliseconds) {
  WaitPolicy policy(0);
  policy.Next(0);
  EXPECT_EQ(policy.Next(kSecond), 4'000);
  EXPECT_EQ(policy.Next(2 * kSecond), 8'000);
  EXPECT_EQ(policy.Next(5 * kSecond), 20'000);
  EXPECT_EQ(policy.Next(6 * kSecond), 20'000);
  EXPECT_EQ(policy.Next(kForEver), 20'000);
}

TEST(WaitPolicy, IsIdleAfterASecondWithoutProgressUntilThereIsSome) {
  WaitPolicy policy(0);
  EXPECT_FALSE(policy.idle(kSecond - 1));
  EXPECT_TRUE(policy.idle(kSecond));
  policy.Progressed(kSecond);
  EXPECT_FALSE(policy.idle(kSecond));
  EXPECT_EQ(policy.Next(kSecond), 0);
  EXPECT_EQ(policy.Next(kSecond + 1), 5);
  EXPECT_EQ(policy.Next(kSecond + 100), 20) << "the first sleep is a short one again";
}

TEST(WaitPolicy, AThreadThatHasBeenIdleForFiveSecondsTriesFiftyTimesASecond) {
  Waiting waiting;
  EXPECT_LE(waiting.TriesUntil(kSecond), 100 + 10 + 5000) << "the rungs before, and sleeps of 200 us";
  EXPECT_LE(waiting.TriesUntil(5 * kSecond), 405) << "250 ln 5";
  EXPECT_LE(waiting.TriesUntil(65 * kSecond), 60 * 50);
}

// How late a policy finds what comes every `gap_us`, up to a tenth of it earlier or later, in the mean.
double MeanLateness(int64_t gap_us, int arrivals, int* tries) {
  WaitPolicy policy(0);
  int64_t now_us = 0, late_us = 0, counted = 0;
  for (int i = 1; i <= arrivals; ++i) {
    const int64_t comes_us = i * gap_us + (i * 37 % 21 - 10) * gap_us / 100;
    while (now_us < comes_us) {
      now_us += std::max<int64_t>(1, policy.Next(now_us));
      ++*tries;
    }
    policy.Arrived(now_us);
    if (i <= 2 * WaitPolicy::kGaps) continue;
    late_us += now_us - comes_us;
    ++counted;
  }
  return static_cast<double>(late_us) / static_cast<double>(counted);
}

TEST(WaitPolicy, FindsWhatComesRegularlySoonerForFewTries) {
  for (const int64_t gap_us : {1'000, 5'000, 50'000}) {
    int tries = 0;
    const double late_us = MeanLateness(gap_us, 200, &tries);
    EXPECT_LT(late_us, std::max<double>(15, static_cast<double>(gap_us) / 100)) << gap_us;
    // 7 on the way to 200 us, each time half as long again, then every 2 ms until the window.
    EXPECT_LE(tries / 200, 7 + 5 + gap_us / 2'000 + WaitPolicy::kTriesAWindow) << gap_us;
  }
}

TEST(WaitPolicy, ExpectsNothingAfterTheWindowNorAfterAGapOfIdleness) {
  WaitPolicy policy(0);
  int64_t now_us = 0;
  for (int i = 0; i < 10; ++i) policy.Arrived(now_us += 10'000);
  const auto sleep_at = [&](int64_t after_us) {
    policy.Next(now_us + after_us);
    return policy.Next(now_us + after_us);
  };
  for (int i = 0; i < 10; ++i) sleep_at(1'000);  // up to the longest sleep
  EXPECT_EQ(sleep_at(300), 200) << "half of the wait would be less";
  EXPECT_EQ(sleep_at(3'000), 1'500) << "half of the wait so far";
  EXPECT_EQ(sleep_at(5'000), 2'000);
  EXPECT_EQ(sleep_at(8'000), 1'950) << "as long as it takes until the window";
  EXPECT_EQ(sleep_at(9'850), 100) << "as long as it takes until the window";
  EXPECT_EQ(sleep_at(10'000), 20);
  EXPECT_EQ(sleep_at(10'051), 200);
  policy.Arrived(now_us += 2 * kSecond);
  for (int i = 0; i < 10; ++i) sleep_at(1'000);
  EXPECT_EQ(sleep_at(10'000), 200);
}

TEST(Sleeper, ReturnsAtTheWakeOfAnotherThread) {
  Sleeper sleeper;
  bool woken = false;
  std::thread sleeping([&] { woken = sleeper.Sleep(kForEver); });
  sleeper.Wake();  // before the sleep or during it
  sleeping.join();
  EXPECT_TRUE(woken);
}

TEST(Sleeper, AWakeEndsOneSleepHoweverOftenItWasCalled) {
  Sleeper sleeper;
  for (int i = 0; i < 100; ++i) {
    sleeper.Wake();
    sleeper.Wake();
    EXPECT_TRUE(sleeper.Sleep(kForEver));
    EXPECT_FALSE(sleeper.Sleep(10));
  }
}

TEST(Sleeper, SeesWhatWasWrittenBeforeTheWake) {
  Sleeper there, back;
  constexpr int kTurns = 2000;
  int number = 0;
  std::thread other([&] {
    for (int turn = 1; turn <= kTurns; ++turn) {
      while (!there.Sleep(kForEver)) {
      }
      ASSERT_EQ(number, 2 * turn - 1);
      ++number;
      back.Wake();
    }
  });
  for (int turn = 1; turn <= kTurns; ++turn) {
    ++number;
    there.Wake();
    while (!back.Sleep(kForEver)) {
    }
    ASSERT_EQ(number, 2 * turn);
  }
  other.join();
}

// Whether the kernel keeps the wish depends on its version; no other parameter of a thread may change by it.
TEST(WaitLadder, AsksForShortTurnsWithoutChangingThePriority) {
  std::thread([] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1), 0);
    const int nice = getpriority(PRIO_PROCESS, 0);
    WaitLadder ladder;
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
    AskForTurns(Turns::kLong);
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  }).join();
}

TEST(WaitLadder, SetsTheTimerSlackOfItsThread) {
  std::thread([] {
    WaitLadder ladder;
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK), 1000);
  }).join();
}

}  // namespace
}  // namespace stagecoach
