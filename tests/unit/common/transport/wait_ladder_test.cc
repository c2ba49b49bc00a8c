#include <sys/prctl.h>

#include <thread>

#include "common/base/clock.h"
#include "common/transport/endpoint.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(WaitLadder, SetsTheTimerSlackOfItsThread) {
  std::thread([] {
    WaitLadder ladder;
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK), 1000);
  }).join();
}

TEST(WaitLadder, IsIdleAfterASecondWithoutProgressUntilThereIsSome) {
  WaitLadder ladder;
  EXPECT_FALSE(ladder.idle());
  const int64_t begin_us = MonotonicUs();
  int waits = 0;
  while (!ladder.idle()) {
    ladder.Wait();
    ++waits;
  }
  EXPECT_GE(MonotonicUs() - begin_us, 1'000'000);
  EXPECT_GT(waits, 10);
  ladder.Progressed();
  EXPECT_FALSE(ladder.idle());
}

TEST(WaitLadder, SleepsFewerTimesTheLongerItWaits) {
  WaitLadder ladder;
  const auto waits_until_us = [&](int64_t begin_us, int64_t us) {
    int waits = 0;
    for (; MonotonicUs() - begin_us < us; ++waits) ladder.Wait();
    return waits;
  };
  const int64_t begin_us = MonotonicUs();
  waits_until_us(begin_us, 10'000);
  // At least 200 us each from here on: not more than 5 waits a millisecond, however fast the machine is.
  EXPECT_LE(waits_until_us(begin_us, 110'000), 500);
}

TEST(WaitLadder, AWakeEndsOneSleep) {
  WaitLadder ladder;
  while (!ladder.idle()) ladder.Wait();
  const int64_t begin_us = MonotonicUs();
  for (int i = 0; i < 1000; ++i) {
    ladder.Wake();
    ladder.Wait();
  }
  EXPECT_LT(MonotonicUs() - begin_us, 1000 * 2'000) << "as long as the sleeps that were to be ended";
  const int64_t after_us = MonotonicUs();
  for (int i = 0; i < 10; ++i) ladder.Wait();
  EXPECT_GE(MonotonicUs() - after_us, 10 * 2'000) << "a wake ended more than one sleep";
}

}  // namespace
}  // namespace stagecoach
