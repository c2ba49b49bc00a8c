#include "coordinator/engine/bubble_meter.h"

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

// A result that spent `compute_us` on each of two stages.
StepResult Result(uint64_t number, int64_t compute_us) {
  StepResult result;
  result.number = number;
  for (int stage = 0; stage < 2; ++stage) {
    result.times.push_back({.stage = stage, .received_us = 0, .start_us = 100, .end_us = 100 + compute_us});
  }
  return result;
}

TEST(BubbleMeter, OneSequenceOverTwoStagesCannotDoBetterThanHalf) {
  BubbleMeter meter(2);
  int64_t now = 0;
  for (uint64_t i = 0; i < 10; ++i) {  // each waits for the one before: 2 x 100 us of work in 250 us
    meter.Submitted(i, now);
    now += 250;
    meter.Confirmed(Result(i, 100), now);
  }
  EXPECT_DOUBLE_EQ(meter.Floor(), 0.5);
  EXPECT_DOUBLE_EQ(meter.Measured(0), 1 - 2000.0 / (2 * 2500.0));
  EXPECT_EQ(meter.busy_us(0), 2500);
}

TEST(BubbleMeter, TwoIndependentMicroBatchesFillTwoStagesButForFillAndDrain) {
  BubbleMeter meter(2);
  constexpr int kCount = 50;
  meter.Submitted(0, 0);
  meter.Submitted(1, 0);
  for (uint64_t i = 0; i < kCount; ++i) {
    meter.Confirmed(Result(i, 100), 100 * (i + 2));
    if (i + 2 < kCount) meter.Submitted(i + 2, 100 * (i + 2));
  }
  EXPECT_NEAR(meter.Floor(), 1.0 / (kCount + 1), 1e-9);  // (S-1)/(S-1+M)
  EXPECT_NEAR(meter.Measured(0), meter.Floor(), 1e-9);
}

TEST(BubbleMeter, ATimeInWhichThePipelineNeverEmptiesIsBusyWhileItLasts) {
  BubbleMeter meter(2);
  meter.Submitted(0, 0);
  meter.Submitted(1, 0);
  for (uint64_t i = 0; i < 50; ++i) {
    meter.Confirmed(Result(i, 100), 100 * (static_cast<int64_t>(i) + 2));
    meter.Submitted(i + 2, 100 * (static_cast<int64_t>(i) + 2));
  }
  EXPECT_EQ(meter.busy_us(5100), 5100);
  EXPECT_DOUBLE_EQ(meter.Measured(5100), 1 - 50 * 200 / (2 * 5100.0));
}

TEST(BubbleMeter, AHopIsWhatSendsTookOfLate) {
  BubbleMeter meter(2);
  int64_t now = 0;
  const auto sent = [&](uint64_t number, int64_t start_us, int64_t us) {
    StepResult result = Result(number, 10);
    result.times[0].send_start_us = start_us;
    result.times[0].send_us = us;
    meter.Submitted(number, now);
    meter.Confirmed(result, now += 100000);
  };
  sent(0, 0, 0);  // there was none
  EXPECT_EQ(meter.hop_us(0), 0);
  sent(1, 5, 800);
  EXPECT_EQ(meter.hop_us(0), 800);
  sent(2, 5, 800);  // the same once more
  sent(3, 9, 1600);
  EXPECT_EQ(meter.hop_us(0), 900);
  EXPECT_EQ(meter.hop_us(1), 0);
  for (uint64_t i = 4; i < 60; ++i) sent(i, static_cast<int64_t>(10 * i), 40);
  EXPECT_NEAR(static_cast<double>(meter.hop_us(0)), 40, 1);
}

TEST(BubbleMeter, IdleTimeWithoutWorkIsNotABubble) {
  BubbleMeter meter(2);
  meter.Submitted(0, 0);
  meter.Confirmed(Result(0, 100), 200);
  meter.Submitted(1, 1000000);
  meter.Confirmed(Result(1, 100), 1000200);
  EXPECT_EQ(meter.busy_us(0), 400);
  EXPECT_DOUBLE_EQ(meter.Measured(0), 0.5);
}

TEST(BubbleMeter, NoStageIsBelievedToHaveWorkedLongerThanTheMicroBatchWasInFlight) {
  BubbleMeter meter(2);
  int64_t now = 1000000;
  for (uint64_t i = 0; i < 100; ++i) {
    meter.Submitted(i, now);
    now += 250;
    StepResult result = Result(i, 100);
    result.times[1] = {.stage = 1, .start_us = 0, .end_us = INT64_MAX, .send_us = INT64_MAX};
    meter.Confirmed(result, now);
  }
  EXPECT_EQ(meter.compute_us(0), 100 * 100);
  EXPECT_EQ(meter.compute_us(1), 100 * 250);
  EXPECT_EQ(meter.send_us(0), 0);
  EXPECT_LE(meter.send_us(1), 100 * 100 * 250);
  EXPECT_GE(meter.Measured(0), 0);
  EXPECT_LE(meter.Measured(0), 1);
}

TEST(BubbleMeter, ASendThatIsToldTwiceCountsOnce) {
  BubbleMeter meter(2);
  for (uint64_t i = 0; i < 4; ++i) {
    meter.Submitted(i, static_cast<int64_t>(i) * 1000);
    StepResult result = Result(i, 100);
    result.times[0].send_us = 7;
    result.times[0].send_start_us = i < 3 ? 50 : 3050;
    meter.Confirmed(result, static_cast<int64_t>(i) * 1000 + 500);
  }
  EXPECT_EQ(meter.send_us(0), 14);
}

TEST(BubbleMeter, WithoutWorkThereIsNoBubble) {
  const BubbleMeter meter(3);
  EXPECT_EQ(meter.Measured(0), 0);
  EXPECT_EQ(meter.Floor(), 0);
}

}  // namespace
}  // namespace stagecoach
