#include "common/transport/wait_ladder.h"

#include <sys/prctl.h>

#include <thread>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using Kind = WaitPolicy::Pause::Kind;

constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kForEver = 3600 * kSecond;

// A thread that polls in no time, and to which nothing happens, on a clock of its own that starts at 0.
class Waiting {
 public:
  // Waits until `end_us`; the number of tries.
  int TriesUntil(int64_t end_us) {
    int tries = 0;
    for (; now_us_ < end_us; ++tries) {
      const WaitPolicy::Pause pause = policy_.Next(now_us_);
      now_us_ += pause.kind == Kind::kSleep ? pause.sleep_us : 1;
    }
    return tries;
  }

 private:
  int64_t now_us_ = 0;
  WaitPolicy policy_{0};
};

TEST(WaitPolicy, TriesAgainAtOnceThenYieldsThenSleepsLongerAndLonger) {
  WaitPolicy policy(0);
  EXPECT_EQ(policy.Next(0).kind, Kind::kNone);
  EXPECT_EQ(policy.Next(1).kind, Kind::kYield);
  EXPECT_EQ(policy.Next(99).kind, Kind::kYield);
  int64_t last_us = 0;
  for (int i = 0; i < 20; ++i) {
    const WaitPolicy::Pause pause = policy.Next(100 + 200 * i);
    ASSERT_EQ(pause.kind, Kind::kSleep);
    EXPECT_GE(pause.sleep_us, last_us);
    last_us = pause.sleep_us;
    EXPECT_TRUE(i > 0 || pause.sleep_us == 20) << pause.sleep_us;
  }
  EXPECT_EQ(last_us, 200);
  EXPECT_EQ(policy.Next(kSecond - 1).sleep_us, 200);
}

TEST(WaitPolicy, IdleSleepsGrowWithTheTimeOfIdlenessFromFourToTwentyMilliseconds) {
  WaitPolicy policy(0);
  policy.Next(0);
  EXPECT_EQ(policy.Next(kSecond).sleep_us, 4'000);
  EXPECT_EQ(policy.Next(2 * kSecond).sleep_us, 8'000);
  EXPECT_EQ(policy.Next(5 * kSecond).sleep_us, 20'000);
  EXPECT_EQ(policy.Next(6 * kSecond).sleep_us, 20'000);
  EXPECT_EQ(policy.Next(kForEver).sleep_us, 20'000);
}

TEST(WaitPolicy, IsIdleAfterASecondWithoutProgressUntilThereIsSome) {
  WaitPolicy policy(0);
  EXPECT_FALSE(policy.idle(kSecond - 1));
  EXPECT_TRUE(policy.idle(kSecond));
  policy.Progressed(kSecond);
  EXPECT_FALSE(policy.idle(kSecond));
  EXPECT_EQ(policy.Next(kSecond).kind, Kind::kNone);
  EXPECT_EQ(policy.Next(kSecond + 1).kind, Kind::kYield);
  EXPECT_EQ(policy.Next(kSecond + 100).sleep_us, 20) << "the first sleep is a short one again";
}

TEST(WaitPolicy, AThreadThatHasBeenIdleForFiveSecondsTriesFiftyTimesASecond) {
  Waiting waiting;
  EXPECT_LE(waiting.TriesUntil(kSecond), 100 + 10 + 5000) << "the rungs before, and sleeps of 200 us";
  EXPECT_LE(waiting.TriesUntil(5 * kSecond), 405) << "250 ln 5";
  EXPECT_LE(waiting.TriesUntil(65 * kSecond), 60 * 50);
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

TEST(WaitLadder, SetsTheTimerSlackOfItsThread) {
  std::thread([] {
    WaitLadder ladder;
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK), 1000);
  }).join();
}

}  // namespace
}  // namespace stagecoach
