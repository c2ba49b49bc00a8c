#include "stage_worker/stage_loop.h"

#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/unit/stage_worker/stage_loop_rig.h"

namespace stagecoach {
namespace {

TEST_F(StageLoopTest, AMiddleStagePassesFramesOnInTheirOrderWithItsTimesAdded) {
  constexpr uint64_t kSteps = 20;
  Start(1, 3);
  for (uint64_t number = 0; number < kSteps; ++number) Send(Step(number));  // more than its window, before it is ready
  ExpectShutdownAfter(kSteps);
  if (HasFatalFailure()) return;
  for (uint64_t number = 0; number < kSteps; ++number) {  // that numbers follow each other was checked at decoding
    const PassedOn& step = passed_on_[number];
    EXPECT_EQ(step.batch, WithoutTokens(Step(number)));
    ASSERT_EQ(step.times.size(), 2u);
    EXPECT_EQ(step.times[0].stage, 0);
    EXPECT_EQ(step.times[1].stage, 1);
    EXPECT_LE(step.times[1].received_us, step.times[1].start_us);
    EXPECT_LE(step.times[1].start_us, step.times[1].end_us);
  }
  EXPECT_TRUE(passed_on_.back().batch.shutdown);
  EXPECT_FALSE(heard_.failure.has_value());
}

// A frame of many pieces takes seconds to a stage that polls every 20 ms.
TEST_F(StageLoopTest, TheNextStageIsWokenBeforeAStepThatItMayHaveWaitedLongFor) {
  Start(1, 3);
  ASSERT_TRUE(AwaitReady());
  for (uint64_t number = 0; number < 4; ++number) {
    now_us_ += number == 2 ? kSecond / 2 : kSecond / 2 - 1;
    Send(Step(number));
    ASSERT_TRUE(Poll([&] { return passed_on_.size() == number + 1; }));
    Collect();  // what was sent before the step has arrived
    EXPECT_EQ(woken_, number < 2 ? 1 : 2) << "step " << number;
  }
  ExpectShutdownAfter(4);
}

TEST_F(StageLoopTest, TheLastStageSendsEveryResultStraightToTheCoordinator) {
  constexpr uint64_t kSteps = 6;
  Start(0, 1);
  ASSERT_TRUE(AwaitReady());
  EXPECT_EQ(heard_.ready->scratch_bytes(), PlannedBytes(Assignment(0, 1)));
  for (uint64_t number = 0; number < kSteps; ++number) Send(Step(number));
  ExpectShutdownAfter(kSteps);
  if (HasFatalFailure()) return;
  for (uint64_t number = 0; number < kSteps; ++number) {
    ASSERT_EQ(results_[number].sampled.size(), 1u);
    EXPECT_EQ(results_[number].sampled[0].sequence, 1u);
    EXPECT_EQ(results_[number].sampled[0].position, kRows + static_cast<int32_t>(number));
    EXPECT_EQ(results_[number].times.size(), 1u);
  }
  EXPECT_TRUE(results_.back().sampled.empty());
}

// The sequence's steps, under a grammar that the first one defines.
MicroBatch StepUnder(MicroBatch step, GrammarId grammar, std::string program) {
  step.define_grammars = {{grammar, std::move(program)}};
  step.open[0].grammar = grammar;
  return step;
}

TEST_F(StageLoopTest, GrammarsArePassedOn) {
  const MicroBatch first = StepUnder(Step(0), 3, testing::RunOfBytes('0', '9', 20));
  Start(1, 3);
  Send(first);
  ExpectShutdownAfter(1);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(passed_on_[0].batch.define_grammars, first.define_grammars);
  EXPECT_EQ(passed_on_[0].batch.open, first.open);
}

TEST_F(StageLoopTest, TheLastStageHoldsSequencesToTheirGrammars) {
  constexpr uint64_t kSteps = 6;
  Start(0, 1);
  Send(StepUnder(Step(0), 3, testing::RunOfBytes('0', '9', 20)));
  for (uint64_t number = 1; number < kSteps; ++number) Send(Step(number));
  MicroBatch last = Step(kSteps);
  last.free = {1};
  last.drop_grammars = {3};
  last.slices.clear();
  Send(last);
  ExpectShutdownAfter(kSteps + 1);
  ASSERT_FALSE(HasFatalFailure());
  for (uint64_t number = 0; number < kSteps; ++number) {
    const TokenId token = results_[number].sampled[0].token;
    EXPECT_TRUE(token >= '0' - 33 && token <= '9' - 33) << token;  // printable bytes come first
  }
}

TEST_F(StageLoopTest, AGrammarThatCannotBeEndsTheLastStageWithAnErrorThatNamesIt) {
  const std::string digits = testing::RunOfBytes('0', '9', 20);
  MicroBatch unknown = Step(0);
  unknown.open[0].grammar = 7;
  MicroBatch twice = Step(1), dropped = Step(1), output = StepUnder(Step(0), 7, digits);
  twice.define_grammars = {{7, digits}};
  dropped.drop_grammars = {7};
  output.open[0].output = {5};
  output.slices[0].sample = false;
  const struct {
    const char* error;
    std::vector<MicroBatch> steps;
  } cases[] = {{"grammar 7 is to be that of sequence 1, but is not there", {unknown}},
               {"grammar 7 is defined, but is there already", {StepUnder(Step(0), 7, digits), twice}},
               {"grammar 7 is dropped, but is that of 1 open sequences", {StepUnder(Step(0), 7, digits), dropped}},
               {"grammar 7 does not decode: ", {StepUnder(Step(0), 7, digits.substr(0, digits.size() / 2))}},
               {"grammar 7 does not allow the output of sequence 1: token 5 at place 0", {output}}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.error);
    results_.clear();
    Start(0, 1);
    for (const MicroBatch& step : one.steps) Send(step);
    ExpectFailure(absl::StatusCode::kDataLoss, one.error);
    if (HasFatalFailure()) return;
    EXPECT_EQ(results_.size(), one.steps.size() - 1);
  }
}

// The next frame is only sent once the test has the one before, whose send is then complete: every frame tells of it.
TEST_F(StageLoopTest, EveryFrameTellsWhenTheOneBeforeWasSent) {
  constexpr uint64_t kSteps = 6;
  Start(0, 1);
  ASSERT_TRUE(AwaitReady());
  for (uint64_t number = 0; number < kSteps; ++number) {
    Send(Step(number));
    ASSERT_TRUE(Poll([&] { return results_.size() == number + 1; })) << number;
  }
  ExpectShutdownAfter(kSteps);
  if (HasFatalFailure()) return;
  EXPECT_EQ(results_[0].times[0].send_start_us,
            0);  // that it was ready, and its heartbeats, are no frames of the pipeline
  for (uint64_t number = 1; number <= kSteps; ++number) {
    const StageTimes& times = results_[number].times[0];
    const StageTimes& before = results_[number - 1].times[0];
    EXPECT_GE(times.send_start_us, before.send_start_us);
    if (times.send_start_us == before.send_start_us) continue;  // it was not seen to be complete yet
    EXPECT_LE(times.send_start_us + times.send_us, times.start_us);
  }
  EXPECT_GT(results_[kSteps].times[0].send_start_us, 0);
}

TEST_F(StageLoopTest, NothingBehindTheShutdownFrameIsComputed) {
  Start(0, 1);
  Send(Step(0));
  Send(Shutdown(1));
  Send({.number = 2});
  ASSERT_TRUE(Poll([this] { return results_.size() == 2; }));
  EXPECT_TRUE(Join().ok()) << status_;
  EXPECT_EQ(results_.size(), 2u);
}

TEST_F(StageLoopTest, HeartbeatsGoByTheClockAndCountWhatWasDone) {
  Start(0, 1);
  ASSERT_TRUE(AwaitReady());
  Send(Step(0));
  Send(Step(1));
  ASSERT_TRUE(Poll([this] { return results_.size() == 2; }));
  EXPECT_EQ(heard_.heartbeats.size(), 1u) << "at the start, and no other while the clock stands still";
  for (size_t beat = 2; beat <= 4; ++beat) {
    now_us_ += kSecond;
    ASSERT_TRUE(Poll([&] { return heard_.heartbeats.size() == beat; }));
  }
  now_us_ += kSecond - 1;
  ExpectShutdownAfter(2);
  if (HasFatalFailure()) return;
  EXPECT_EQ(heard_.heartbeats.size(), 4u);

  const pb::Heartbeat& first = heard_.heartbeats.front();
  EXPECT_EQ(first.steps_done(), 0u);
  const pb::Heartbeat& last = heard_.heartbeats.back();
  EXPECT_EQ(last.stage(), 0);
  EXPECT_EQ(last.steps_done(), 2u);
  EXPECT_EQ(last.layers_done(), 2u * kLayers);
  EXPECT_GT(last.bytes_to_load(), 0u);
  EXPECT_EQ(last.bytes_loaded(), last.bytes_to_load());
  EXPECT_GT(last.resident_bytes(), 0u);
  EXPECT_LE(heard_.ready->tensor_bytes_read(), std::filesystem::file_size(path_));
  EXPECT_GT(heard_.ready->weight_bytes(), 0u);
}

TEST_F(StageLoopTest, AFrameThatOnlyWakesTheStageUpIsNoWork) {
  StartServing();
  SendSetup({}, assignment_);
  ASSERT_TRUE(AwaitReady());
  SendSetup(limits_.job, pb::Heartbeat());
  Send(Step(0));
  SendSetup(limits_.job, pb::Heartbeat());
  ExpectShutdownAfter(1);
}

TEST_F(StageLoopTest, ADamagedFrameEndsTheStageWithAReportAfterTheFramesBeforeIt) {
  for (const size_t offset : {0u, 6u, 20u, 40u}) {  // of the framing and of the header, which has a checksum
    SCOPED_TRACE(absl::StrCat("offset ", offset));
    Start(1, 3, [offset](Channel channel, int source, int, uint64_t index) {
      const bool hit = channel == Channel::kStep && source == RankOf(0, 3) && index == 2;
      return hit ? Fault{.kind = Fault::Kind::kCorrupt, .offset = offset} : Fault{};
    });
    for (uint64_t number = 0; number < 4; ++number) Send(Step(number));
    ExpectFailure(absl::StatusCode::kDataLoss, "received a bad frame");
    if (HasFatalFailure()) return;
    EXPECT_EQ(passed_on_.size(), 2u);
    EXPECT_EQ(heard_.failure->stage(), 1);
    EXPECT_EQ(heard_.failure->code(), static_cast<int>(absl::StatusCode::kDataLoss));
    EXPECT_THAT(heard_.failure->message(), HasSubstr("stage 1 on "));
  }
}

TEST_F(StageLoopTest, AFrameLongerThanAnyCanBeIsABadFrame) {
  Start(0, 1);
  ASSERT_TRUE(AwaitReady());
  StepFrame large{.batch = Step(0)};
  large.batch.define_grammars = {{1, std::string(limits_.MaxStepFrameBytes(), 'x')}};
  FrameLimits wide = limits_;
  wide.max_rows = 1 << 20;
  auto buffer = std::make_shared<FrameBuffer>(wide.MaxStepHeaderBytes(), 0);
  ASSERT_TRUE(EncodeStep(wide, large, buffer.get()).ok());
  ASSERT_TRUE(Before()->Send(Channel::kStep, assignment_.rank(), std::move(buffer)).ok());
  ExpectFailure(absl::StatusCode::kDataLoss, "expected at most");
}

TEST_F(StageLoopTest, FramesOutOfStepAreBadFrames) {
  const MicroBatch skipped = Step(1);
  MicroBatch unknown = Step(0);
  unknown.open.clear();
  MicroBatch gap = Step(0);
  gap.slices[0].start = 1;
  MicroBatch guess = Step(0);
  guess.slices[0].guess = true;
  const struct {
    const char* what;
    MicroBatch batch;
  } cases[] = {{"skipped", skipped}, {"unknown", unknown}, {"gap", gap}, {"guess", guess}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.what);
    Start(0, 1);
    Send(one.batch);
    ExpectFailure(absl::StatusCode::kDataLoss, "");
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(results_.empty());
}

TEST_F(StageLoopTest, AFrameWithoutTheChecksumsOfTheLayersBeforeIsABadFrame) {
  StartWith(1, 3, [](auto* assignment) { assignment->set_checksum_layers(kLayers); });
  Send(Step(0));
  ExpectFailure(absl::StatusCode::kDataLoss, "it has 0 checksums of layers, expected 3");
}

TEST_F(StageLoopTest, ChecksumsAreOfAllLayersOfTheModelOrOfNone) {
  for (const int32_t layers : {-1, 1, static_cast<int32_t>(kLayers) + 1, std::numeric_limits<int32_t>::max()}) {
    SCOPED_TRACE(layers);
    StartWith(1, 3, [layers](auto* assignment) { assignment->set_checksum_layers(layers); });
    ExpectFailure(absl::StatusCode::kInvalidArgument, "layers, expected 0 or 4");
    if (HasFatalFailure()) return;
  }
}

TEST_F(StageLoopTest, RoomForMostProbableTokensOfPromptsIsWithinItsRange) {
  for (const int32_t most : {-1, kMaxPromptLogprobs + 1, std::numeric_limits<int32_t>::max()}) {
    SCOPED_TRACE(most);
    StartWith(1, 3, [most](auto* assignment) { assignment->set_max_prompt_logprobs(most); });
    ExpectFailure(absl::StatusCode::kInvalidArgument, "`max_prompt_logprobs` is");
    if (HasFatalFailure()) return;
  }
}

TEST_F(StageLoopTest, TheEndOfTheJobEndsTheStageInWhateverItIsDoing) {
  for (const bool ready : {false, true}) {
    SCOPED_TRACE(ready ? "ready" : "not ready");
    Start(1, 3);
    if (ready) {
      ASSERT_TRUE(AwaitReady());
      Send(Step(0));
      ASSERT_TRUE(Poll([this] { return passed_on_.size() == 1; }));
    }
    world_->Abort();
    EXPECT_EQ(Join().code(), absl::StatusCode::kAborted) << status_;
  }
}

TEST_F(StageLoopTest, AFileThatIsNotTheCoordinatorsIsTheStagesOwnErrorAndItNeverGetsReady) {
  StartWith(0, 1, [](auto* assignment) { assignment->mutable_fingerprints(0)->set_header_hash(1); });
  ExpectFailure(absl::StatusCode::kDataLoss, "is not the one the coordinator opened");
  EXPECT_FALSE(heard_.ready.has_value());
}

TEST_F(StageLoopTest, AnAssignmentThatThisRankCannotBeInIsRefused) {
  const struct {
    std::function<void(pb::StageAssignment*)> change;
    const char* place;  // as it is shown
  } cases[] = {
      {[](auto* a) { a->set_rank(3); }, "stage 1 of 3 and rank 3 between ranks 3 and 1"},
      {[](auto* a) { a->set_stage(0); }, "stage 0 of 3 and rank 2 between ranks 3 and 1"},
      {[](auto* a) { a->set_stages(4); }, "stage 1 of 4"},
      {[](auto* a) { a->set_previous_rank(0); }, "between ranks 0 and 1"},
      {[](auto* a) { a->set_previous_rank(-1); }, "between ranks -1 and 1"},
      {[](auto* a) { a->set_next_rank(2); }, "between ranks 3 and 2"},
      {[](auto* a) { a->set_next_rank(4); }, "between ranks 3 and 4"},
      {[](auto* a) { a->set_owns_head(true); }, "but this is rank 2 of 4"},
      {[](auto* a) { a->set_epoch(0); }, "but this is rank 2 of 4"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.place);
    StartWith(1, 3, one.change);
    ExpectFailure(absl::StatusCode::kInvalidArgument, one.place);
    if (HasFatalFailure()) return;
  }
}

TEST_F(StageLoopTest, AFirstFrameThatIsNoAssignmentIsRefused) {
  StartServing();
  SendSetup({}, pb::Hello());
  EXPECT_EQ(Join().code(), absl::StatusCode::kInternal) << status_;
}

}  // namespace
}  // namespace stagecoach
