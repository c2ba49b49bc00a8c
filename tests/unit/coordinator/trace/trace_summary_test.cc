#include "coordinator/trace/trace_summary.h"

#include <numeric>
#include <random>
#include <vector>

#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/trace/made_up_run.h"

namespace stagecoach {
namespace {

using testing::MadeUpRun;

TraceSummary Of(const MadeUpRun& run) {
  TraceJob job = run.Recorded();
  job.header.simulated = true;
  EXPECT_TRUE(AlignTrace(&job).ok());
  return SummarizeTrace(job);
}

int64_t In(const TraceSummary& summary, int stage, StageState state) {
  return summary.stages[static_cast<size_t>(stage)][static_cast<size_t>(state)];
}

void ExpectSharesAddUp(const BubbleCauses& causes) {
  EXPECT_NEAR(causes.coordinator + causes.hop + causes.imbalance + causes.few_sequences + causes.fill_drain +
                  causes.void_guesses,
              causes.bubble, 1e-9);
}

TEST(TraceSummary, AccountsForEveryMicrosecondOfAScheduleDoneByHand) {
  // One sequence through two stages: turn 10, hop 100, stage 0 3000, send 40 of the hop, hop, stage 1 2000, hop.
  const TraceSummary summary =
      Of({.compute_us = {3000, 2000}, .micro_batches = 10, .turn_us = 10, .hop_us = 100, .send_us = 40});
  const int64_t round = 10 + 100 + 3000 + 100 + 2000 + 100;
  EXPECT_EQ(summary.wall_us, 10 * round - 10);  // the first turn comes before the first submission
  EXPECT_EQ(summary.micro_batches, 10);
  EXPECT_EQ(summary.decode_rows, 10);
  EXPECT_EQ(In(summary, 0, StageState::kCompute), 10 * 3000);
  EXPECT_EQ(In(summary, 0, StageState::kSend), 9 * 40);  // the last one's is not known
  EXPECT_EQ(In(summary, 0, StageState::kWaitUpstream), 10 * 100);
  EXPECT_EQ(In(summary, 0, StageState::kWaitDownstream), 10 * (100 + 2000 + 100) - 9 * 40);
  EXPECT_EQ(In(summary, 0, StageState::kIdle), 9 * 10);
  EXPECT_EQ(In(summary, 1, StageState::kWaitUpstream), 10 * (100 + 3000 + 100));
  EXPECT_EQ(In(summary, 1, StageState::kIdle), 9 * 10);
}

TEST(TraceSummary, OneSequenceIsTooFew) {
  const BubbleCauses causes = Of({.compute_us = {1000, 1000, 1000, 1000}, .micro_batches = 100}).causes;
  EXPECT_NEAR(causes.bubble, 0.75, 1e-9);
  EXPECT_NEAR(causes.few_sequences, 0.75 * 99 / 100, 0.01);
  EXPECT_STREQ(causes.Main(), "too few sequences");
  ExpectSharesAddUp(causes);
}

TEST(TraceSummary, FullPipelinesHaveOnlyFillAndDrain) {
  const BubbleCauses causes = Of({.compute_us = {1000, 1000, 1000}, .in_flight = 3, .micro_batches = 8}).causes;
  EXPECT_NEAR(causes.fill_drain, 2.0 / 10, 1e-9);  // (S - 1) / (micro-batches + S - 1)
  EXPECT_NEAR(causes.bubble, causes.fill_drain, 1e-9);
  EXPECT_STREQ(causes.Main(), "fill and drain");
}

TEST(TraceSummary, AStageThatIsSlowerIsAnImbalance) {
  const BubbleCauses causes = Of({.compute_us = {1000, 3000}, .in_flight = 2, .micro_batches = 1000}).causes;
  EXPECT_NEAR(causes.bubble, 1 - 2.0 / 3, 0.01);
  EXPECT_NEAR(causes.imbalance, causes.bubble, 0.01);
  EXPECT_NEAR(causes.floor, causes.bubble, 0.01);
  EXPECT_STREQ(causes.Main(), "imbalance");
  ExpectSharesAddUp(causes);
}

TEST(TraceSummary, HopsAndTurnsAreNamedWhereTheyKeepStagesWaiting) {
  const BubbleCauses hop =
      Of({.compute_us = {1000, 1000}, .in_flight = 2, .micro_batches = 1000, .hop_us = 500}).causes;
  EXPECT_NEAR(hop.bubble, 1 - 2000.0 / 3500, 0.01);
  EXPECT_NEAR(hop.floor, 0, 0.01) << "which faster links would reach";
  EXPECT_NEAR(hop.hop, hop.bubble, 0.01);
  EXPECT_STREQ(hop.Main(), "hop");
  const BubbleCauses turn =
      Of({.compute_us = {1000, 1000}, .in_flight = 2, .micro_batches = 1000, .turn_us = 500}).causes;
  EXPECT_NEAR(turn.coordinator, turn.bubble, 0.01);
  EXPECT_STREQ(turn.Main(), "coordinator");
  ExpectSharesAddUp(hop);
  ExpectSharesAddUp(turn);
}

TEST(TraceSummary, VoidRowsAreComputedButNoWork) {
  TraceJob job = MadeUpRun{.compute_us = {1000, 1000}, .in_flight = 2, .micro_batches = 100}.Recorded();
  for (size_t i = 0; i < job.steps.size(); ++i) {  // a row that is known, one that held, one that is void, both
    TraceStep& step = job.steps[i];
    const auto row = [i](GuessRecord guess) {
      return TraceSlice{.sequence = 1, .start = static_cast<int64_t>(i), .count = 1, .sample = true, .guess = guess};
    };
    step.decode_rows = i % 4 == 0 || i % 4 == 3 ? 1 : 0;
    step.slices = {row(i % 4 == 0 ? GuessRecord::kNone : i % 4 == 1 ? GuessRecord::kRight : GuessRecord::kVoid)};
    if (i % 4 == 3) step.slices.insert(step.slices.begin(), row(GuessRecord::kNone));
  }
  job.header.simulated = true;
  ASSERT_TRUE(AlignTrace(&job).ok());
  const TraceSummary summary = SummarizeTrace(job);
  EXPECT_EQ(summary.guessed_rows, 75);
  EXPECT_EQ(summary.void_rows, 50);
  EXPECT_EQ(summary.void_us, (std::vector<double>{37500, 37500})) << "all of 25 steps, half of 25";
  EXPECT_EQ(In(summary, 0, StageState::kCompute), 100'000) << "busy all the same";
  EXPECT_NEAR(summary.causes.void_guesses, 0.375, 0.01);
  EXPECT_NEAR(summary.causes.bubble, 0.375, 0.02);
  EXPECT_NEAR(summary.causes.floor, summary.causes.bubble, 1e-9);
  EXPECT_STREQ(summary.causes.Main(), "void guesses");
  ExpectSharesAddUp(summary.causes);
}

TEST(TraceSummary, WithoutComputingThereIsNoFloor) {
  const BubbleCauses causes = Of({.compute_us = {0, 0}, .in_flight = 2, .micro_batches = 10, .hop_us = 500}).causes;
  EXPECT_EQ(causes.floor, 0);
  EXPECT_EQ(causes.bubble, 1);
  ExpectSharesAddUp(causes);
}

TEST(TraceSummary, TimeWithoutRequestsIsNoBubble) {
  TraceJob job = MadeUpRun{.compute_us = {1000}, .micro_batches = 2}.Recorded();
  TraceStep& late = job.steps[1];  // its request came a second later
  for (int64_t* us : {&late.ready_us, &late.submit_us, &late.confirm_us}) *us += 1000000;
  for (int64_t* us : {&late.stages[0].received_us, &late.stages[0].start_us, &late.stages[0].end_us}) *us += 1000000;
  ASSERT_TRUE(AlignTrace(&job).ok());
  const TraceSummary summary = SummarizeTrace(job);
  EXPECT_EQ(In(summary, 0, StageState::kIdle), 1000000);
  EXPECT_EQ(summary.causes.busy_us, 2000);
  EXPECT_EQ(summary.causes.bubble, 0);
  EXPECT_STREQ(summary.causes.Main(), "");
}

TEST(TraceSummary, AddsUpForAnyTimesWhatever) {
  std::mt19937_64 random(3);
  const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(-most, most)(random); };
  for (int round = 0; round < 300; ++round) {
    const int64_t most = round % 3 == 0 ? int64_t{1} << 52 : 2000;
    TraceJob job = MadeUpRun{.compute_us = {1, 1, 1}, .micro_batches = round % 20}.Recorded();
    for (TraceStep& step : job.steps) {
      for (int64_t* us : {&step.ready_us, &step.submit_us, &step.confirm_us}) *us = draw(most);
      for (TraceSpan& span : step.stages) {
        span = {draw(most), draw(most), draw(most), draw(most), draw(most)};
      }
    }
    job.aligned = true;
    job.clocks.resize(3);
    const TraceSummary summary = SummarizeTrace(job);
    for (const StateSums& stage : summary.stages) {
      ASSERT_EQ(std::accumulate(stage.begin(), stage.end(), int64_t{0}), summary.wall_us);
      for (const int64_t us : stage) ASSERT_GE(us, 0);
    }
    ExpectSharesAddUp(summary.causes);
    ASSERT_GE(summary.causes.floor, 0);
    ASSERT_GE(summary.causes.bubble, 0);
    ASSERT_LE(summary.causes.bubble, 1);
  }
}

}  // namespace
}  // namespace stagecoach
