#include "coordinator/serve/metrics/bubble_window.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

constexpr int64_t kSecondUs = 1000000;

pb::JobStatistics Work(double busy_s, double compute_s_of_each, uint64_t prompt_rows = 0) {
  pb::JobStatistics statistics;
  statistics.set_busy_s(busy_s);
  statistics.set_prefill_rows(prompt_rows);
  for (int stage = 0; stage < 2; ++stage) statistics.add_stages()->set_compute_s(compute_s_of_each);
  return statistics;
}

TEST(BubbleWindow, ForgetsWhatIsOlderThanItIsAskedFor) {
  BubbleWindow window;
  EXPECT_EQ(window.Over(kSecondUs), 0);
  window.Take(Work(0, 0), 0);
  EXPECT_EQ(window.Over(kSecondUs), 0);
  // Busy for half of each second with all stages, then with half of them.
  int64_t now_us = 0;
  double busy_s = 0, compute_s = 0;
  const auto seconds = [&](int count, double share) {
    for (int i = 0; i < 10 * count; ++i) {
      busy_s += 0.05;
      compute_s += 0.05 * share;
      window.Take(Work(busy_s, compute_s), now_us += kSecondUs / 10);
    }
  };
  seconds(120, 1);
  EXPECT_NEAR(window.Over(60 * kSecondUs), 0, 1e-6);
  seconds(15, 0.5);
  EXPECT_NEAR(window.Over(kSecondUs), 0.5, 1e-6);
  EXPECT_NEAR(window.Over(30 * kSecondUs), 0.25, 0.01);
  EXPECT_NEAR(window.Over(60 * kSecondUs), 0.125, 0.01);
  EXPECT_NEAR(window.Over(1000 * kSecondUs), 0.125, 0.01) << "more than a minute is not kept";
}

// Beside what was computed, what of the time the ideal pipeline would have idled too.
pb::JobStatistics WorkWithFloor(double busy_s, double compute_s_of_each, double floor) {
  pb::JobStatistics statistics = Work(busy_s, compute_s_of_each);
  statistics.set_bubble_floor(floor);
  return statistics;
}

TEST(BubbleWindow, ItsFloorIsOfTheSameTimeHoweverDifferentTheLoadWasBefore) {
  BubbleWindow window;
  EXPECT_EQ(window.FloorOver(60 * kSecondUs), 0);
  // One sequence for an hour: of two stages one has to idle. Then so many that the least is a tenth.
  double busy_s = 0, compute_s = 0, ideal_s = 0;
  int64_t now_us = 0;
  const auto seconds = [&](int count, double share, double ideal_share) {
    for (int i = 0; i < count; ++i) {
      busy_s += 1;
      compute_s += share;
      ideal_s += share / ideal_share;
      window.Take(WorkWithFloor(busy_s, compute_s, 1 - compute_s / ideal_s), now_us += kSecondUs);
    }
  };
  seconds(3600, 0.5, 0.5);
  EXPECT_NEAR(window.FloorOver(60 * kSecondUs), 0.5, 1e-6);
  seconds(120, 0.6, 0.9);
  EXPECT_NEAR(window.FloorOver(60 * kSecondUs), 0.1, 1e-6);
  EXPECT_NEAR(window.Over(60 * kSecondUs), 0.4, 1e-6);
  seconds(120, 0.5, 0.5);
  EXPECT_NEAR(window.FloorOver(60 * kSecondUs), 0.5, 1e-6);
  EXPECT_NEAR(window.Over(60 * kSecondUs), 0.5, 1e-6);
}

TEST(BubbleWindow, WithoutWorkThereIsNoBubbleAndARelaunchBeginsAnew) {
  BubbleWindow window;
  window.Take(Work(100, 50), 0);
  window.Take(Work(100, 50), 10 * kSecondUs);
  EXPECT_EQ(window.Over(kSecondUs), 0);
  window.Take(Work(1, 1), 11 * kSecondUs);
  EXPECT_EQ(window.Over(kSecondUs), 0);
  window.Take(Work(2, 1.5), 12 * kSecondUs);
  EXPECT_NEAR(window.Over(kSecondUs), 0.5, 1e-6);
}

TEST(BubbleWindow, AJobOfMoreStagesCountsInAnotherMeasure) {
  BubbleWindow window;
  for (int second = 0; second <= 10; ++second) window.Take(Work(100 + second, 90 + second), second * kSecondUs);
  pb::JobStatistics more = Work(111, 101);
  more.add_stages()->set_compute_s(0.5);
  window.Take(more, 11 * kSecondUs);
  more.set_busy_s(112);
  for (pb::StageSummary& stage : *more.mutable_stages()) stage.set_compute_s(stage.compute_s() + 1);
  window.Take(more, 12 * kSecondUs);
  EXPECT_NEAR(window.Over(60 * kSecondUs), 0, 1e-6);
}

TEST(BubbleWindow, ManyStatusesAtOnceAreOnePoint) {
  BubbleWindow window;
  for (int i = 0; i <= 1000; ++i) window.Take(Work(i * 0.001, 0), i * 1000);
  EXPECT_NEAR(window.Over(kSecondUs), 1, 1e-6);
  EXPECT_NEAR(window.Over(300000), 1, 1e-6);
}

TEST(BubbleWindow, ThePromptRateIsThatOfTheTimeWithPrompts) {
  BubbleWindow window;
  EXPECT_EQ(window.PromptRate(30 * kSecondUs, 0), 0);
  // Prompts of 100 tokens, each half a second of work, one every ten seconds; tokens of answers are made in between.
  double busy_s = 0;
  uint64_t rows = 0;
  for (int second = 0; second <= 60; ++second) {
    const bool prompt = second % 10 == 6;
    busy_s += prompt ? 0.5 : 0.3;
    rows += prompt ? 100 : 0;
    window.Take(Work(busy_s, 0, rows), second * kSecondUs);
    EXPECT_NEAR(window.PromptRate(30 * kSecondUs, second * kSecondUs), second < 6 ? 0 : 200, 1) << second;
  }
  window.Take(Work(busy_s + 1, 0, rows + 1000), 61 * kSecondUs);
  EXPECT_NEAR(window.PromptRate(kSecondUs / 2, 61 * kSecondUs), 1000, 1);
  EXPECT_NEAR(window.PromptRate(30 * kSecondUs, 61 * kSecondUs), 1300 / 2.5, 1);
}

TEST(BubbleWindow, RemembersThePromptRateOfAServerThatIdled) {
  BubbleWindow window;
  for (int i = 0; i <= 5; ++i) window.Take(Work(i, i, static_cast<uint64_t>(250 * i)), i * kSecondUs);
  for (int i = 6; i < 600; ++i) window.Take(Work(5, 5, 1250), i * kSecondUs);
  EXPECT_NEAR(window.PromptRate(30 * kSecondUs, 600 * kSecondUs), 250, 1);
}

}  // namespace
}  // namespace stagecoach
