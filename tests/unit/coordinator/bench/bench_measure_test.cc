#include "coordinator/bench/bench_measure.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/bench/fake_engine.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

TEST(DecodeWindow, CountsFromTheLastFirstTokenOn) {
  DecodeWindow window(2, 4, 100);
  window.Note(1, 100, 1, 10);
  window.Note(1, 150, 1, 11);  // beside the other's prompt
  window.Note(2, 200, 1, 10);  // all have started
  window.Note(1, 300, 1, 12);
  window.Note(2, 300, 1, 11);
  window.Note(1, 400, 1, 13);
  window.Note(2, 400, 1, 12);
  EXPECT_FALSE(window.done());  // more of that result may come
  window.Note(1, 500, 1, 14);
  ASSERT_TRUE(window.done());
  EXPECT_EQ(window.sample().us, 200);
  EXPECT_EQ(window.sample().tokens, 4);
  EXPECT_EQ(window.sample().passes, 2);
  EXPECT_EQ(window.sample().positions, 12 + 11 + 13 + 12);
}

TEST(DecodeWindow, LeavesOutTheOtherTokensOfTheResultThatStartsIt) {
  DecodeWindow window(2, 1, 100);
  window.Note(1, 100, 1, 5);
  window.Note(2, 200, 1, 5);
  window.Note(1, 200, 1, 6);
  window.Note(1, 260, 1, 7);
  window.Note(1, 300, 1, 8);
  ASSERT_TRUE(window.done());
  EXPECT_EQ(window.sample().us, 60);
  EXPECT_EQ(window.sample().tokens, 1);
  EXPECT_EQ(window.sample().passes, 1);
}

TEST(DecodeWindow, CountsAResultWholeEvenWhenFewerTokensWereWanted) {
  DecodeWindow window(1, 1, 100);
  window.Note(1, 10, 1, 1);
  window.Note(1, 20, 3, 4);
  window.Note(1, 30, 1, 5);
  ASSERT_TRUE(window.done());
  EXPECT_EQ(window.sample().tokens, 3);
  EXPECT_EQ(window.sample().positions, 4 + 3 + 2);
  window.Note(1, 40, 1, 6);  // nothing is counted any more
  EXPECT_EQ(window.sample().tokens, 3);
}

TEST(DecodeWindow, EndsWithTheFirstSequenceThatDoes) {
  DecodeWindow window(2, 8, 100);
  window.Note(1, 100, 1, 10);
  window.Note(2, 100, 1, 10);
  for (int step = 1; step <= 2; ++step) {
    window.Note(1, 100 + 50 * step, 1, 10 + step);
    window.Note(2, 100 + 50 * step, 1, 10 + step);
  }
  window.Ended();
  ASSERT_TRUE(window.done());
  EXPECT_FALSE(window.missed());
  EXPECT_EQ(window.sample().us, 100);
  EXPECT_EQ(window.sample().tokens, 4);
  EXPECT_EQ(window.sample().passes, 2);
  window.Ended();
  EXPECT_FALSE(window.missed());
}

TEST(DecodeWindow, IsMissedWhenOneEndsBeforeTheLastHasBegunOrSoonAfter) {
  DecodeWindow never(2, 8, 100);
  never.Note(1, 100, 1, 10);
  never.Ended();
  EXPECT_TRUE(never.missed());
  EXPECT_FALSE(never.done());
  DecodeWindow soon(2, 8, 100);
  soon.Note(1, 100, 1, 10);
  soon.Note(2, 100, 1, 10);
  soon.Note(1, 150, 3, 13);
  soon.Ended();
  EXPECT_TRUE(soon.missed());
  EXPECT_FALSE(soon.done());
}

TEST(DecodeWindow, IsMissedWhenOneIsTooFarAheadWhenTheLastBegins) {
  DecodeWindow window(2, 8, 3);
  window.Note(1, 100, 3, 12);
  EXPECT_FALSE(window.missed());
  window.Note(1, 110, 1, 13);
  EXPECT_TRUE(window.missed());
  window.Note(2, 120, 1, 10);
  EXPECT_FALSE(window.done());
}

TEST(BenchRunner, MeasuresAgainWhatEndedBeforeTheLastSequenceHadBegun) {
  const BenchTest test = {.generated = 4, .depth = 3, .sequences = 2};
  const BenchScheduling scheduling;
  const int64_t most = MaxNewTokens(test, scheduling);
  int submitted = 0;
  FakeEngine engine;
  const auto run = engine.Join();
  engine.Play([&](const pb::EngineMessage& message) {
    if (message.has_cancel()) return engine.Finish(message.cancel().request(), pb::RequestFinished::REASON_CANCELLED);
    if (!message.has_submit()) return;
    ++submitted;
    if (submitted == 1) {  // all of it, before the second is looked at
      for (int64_t i = 0; i < most; ++i) engine.Token(1, 10 + i);
      engine.Finish(1, pb::RequestFinished::REASON_LENGTH);
    }
    if (submitted < 4) return;
    for (int64_t i = 0; i < most; ++i) {
      engine.Token(3, 1000 + 100 * i);
      engine.Token(4, 1000 + 100 * i);
    }
  });
  BenchRunner runner(run.get(), scheduling, /*vocab=*/100, SamplingParams());
  ASSERT_TRUE(runner.AwaitReady().ok());
  const absl::StatusOr<BenchSample> sample = runner.Run(test);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->tokens, 8);
  EXPECT_EQ(sample->us, 400);
  EXPECT_EQ(sample->passes, 4);
}

TEST(BenchRunner, SaysSoWhenItsSequencesNeverDecodeTogether) {
  FakeEngine engine;
  const auto run = engine.Join();
  const BenchTest test = {.generated = 4, .depth = 3, .sequences = 2};
  engine.Play([&](const pb::EngineMessage& message) {
    if (message.has_cancel()) return engine.Finish(message.cancel().request(), pb::RequestFinished::REASON_CANCELLED);
    if (!message.has_submit() || message.submit().request() % 2 == 0) return;
    for (int64_t i = 0; i < message.submit().max_new_tokens(); ++i) engine.Token(message.submit().request(), i);
    engine.Finish(message.submit().request(), pb::RequestFinished::REASON_LENGTH);
  });
  BenchRunner runner(run.get(), BenchScheduling(), /*vocab=*/100, SamplingParams());
  ASSERT_TRUE(runner.AwaitReady().ok());
  const absl::StatusOr<BenchSample> sample = runner.Run(test);
  EXPECT_EQ(sample.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(sample.status().message()), HasSubstr("tg4 @ d3 x2: in 20 attempts"));
}

}  // namespace
}  // namespace stagecoach
