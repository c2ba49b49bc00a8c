// The pipeline alone, over the loopback transport: the stages are scripts that this test plays, one turn at a time, and
// the clock stands still until the test moves it.

#include "coordinator/pipeline/stage_pipeline.h"

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/model_description.h"
#include "common/transport/loopback.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/pipeline/roster.h"
#include "coordinator/plan/job_plan.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

constexpr int kStages = 3;
constexpr JobEpoch kEpoch = {.run_id = 77, .epoch = 1};
constexpr int64_t kSecond = 1'000'000;
constexpr uint64_t kMiB = uint64_t{1} << 20;

// Against the order of ranks: nothing may follow from a rank's number.
constexpr int RankOf(int stage) { return kStages - stage; }

pb::Hello HelloOf(int stage, uint64_t available_bytes) {
  pb::Hello hello;
  hello.set_role(pb::Hello::ROLE_STAGE);
  hello.set_rank(RankOf(stage));
  hello.set_host(absl::StrCat("node", stage));
  hello.set_pid(100 + stage);
  hello.set_allowed_cores(2);
  hello.set_available_memory_bytes(available_bytes);
  hello.add_isas(pb::INSTRUCTION_SET_SCALAR);
  return hello;
}

pb::ConfigureJob Job() {
  pb::ConfigureJob job;
  JobSettings settings;
  settings.cpu_bind = CpuBind::kNone;
  settings.max_num_seqs = 4;
  settings.policy = Policy::kInterleaved;
  settings.max_num_batched_tokens = 64;
  settings.prefill_chunk = 64;
  settings.block_tokens = 16;
  settings.prefix_caching = false;
  SetJobSettings(settings, &job);
  return job;
}

// A stage as far as the coordinator sees it: what it receives, and what it is told to say.
class ScriptedStage {
 public:
  ScriptedStage(LoopbackWorld* world, int stage)
      : stage_(stage), endpoint_(world->Connect(RankOf(stage))), pool_(1 << 20, 0) {
    EXPECT_TRUE(endpoint_->OpenReceive(Channel::kSetup, kCoordinatorRank, kMaxSetupFrameBytes, 4).ok());
    EXPECT_TRUE(endpoint_->OpenReceive(Channel::kStep, kCoordinatorRank, kMaxSetupFrameBytes, 8).ok());
  }

  // Reads what has arrived.
  void Turn() {
    while (true) {
      const auto frame = endpoint_->Poll().value();
      if (!frame.has_value()) return;
      if (frame->channel() == Channel::kStep) {
        const auto step = DecodeStep(limits, frame->bytes(), steps.size(), /*expect_hidden=*/false).value();
        steps.push_back(step.batch);
        continue;
      }
      const auto body = DecodeControl(assignments.empty() ? JobEpoch{} : kEpoch, frame->bytes()).value();
      if (const auto* assignment = std::get_if<pb::StageAssignment>(&body)) assignments.push_back(*assignment);
      if (std::holds_alternative<pb::Heartbeat>(body)) ++wake_ups;
    }
  }

  void Say(const ControlBody& body, const JobEpoch& epoch = kEpoch) {
    std::shared_ptr<FrameBuffer> buffer = pool_.Acquire();
    ASSERT_TRUE(EncodeControl(epoch, body, buffer.get()).ok());
    ASSERT_TRUE(endpoint_->Send(Channel::kTelemetry, kCoordinatorRank, std::move(buffer)).ok());
  }
  void SayReady() {
    pb::StageReady ready;
    ready.set_stage(stage_);
    ready.set_weight_bytes(1000 + stage_);
    Say(ready);
  }
  void Beat(uint64_t steps_done = 0, uint64_t bytes_loaded = 0) {
    pb::Heartbeat heartbeat;
    heartbeat.set_stage(stage_);
    heartbeat.set_steps_done(steps_done);
    heartbeat.set_bytes_to_load(100);
    heartbeat.set_bytes_loaded(bytes_loaded);
    Say(heartbeat);
  }
  void Fail(absl::StatusCode code, const std::string& message) {
    pb::StageFailure failure;
    failure.set_stage(stage_);
    failure.set_code(static_cast<int>(code));
    failure.set_message(message);
    Say(failure);
  }
  void SendResult(const StepResult& result) {
    std::shared_ptr<FrameBuffer> buffer = pool_.Acquire();
    ASSERT_TRUE(EncodeResult(limits, result, buffer.get()).ok());
    ASSERT_TRUE(endpoint_->Send(Channel::kResult, kCoordinatorRank, std::move(buffer)).ok());
  }

  FrameLimits limits;
  std::vector<pb::StageAssignment> assignments;
  std::vector<MicroBatch> steps;
  int wake_ups = 0;

 private:
  const int stage_;
  std::unique_ptr<Endpoint> endpoint_;
  FramePool pool_;
};

struct StagePipelineTest : ::testing::Test {
  // `available`: memory of the stages' hosts, bytes.
  void Start(FaultHook faults = nullptr, std::vector<uint64_t> available = {900 * kMiB, 900 * kMiB, 900 * kMiB}) {
    model_ = OpenModel("dummy://tiny/f32").value();
    hellos_.clear();
    for (int stage = 0; stage < kStages; ++stage) hellos_.push_back(HelloOf(stage, available[stage]));
    plan_ = PlanJob(Job(), hellos_, *model_, kEpoch).value();
    limits_ = LimitsOf(plan_.stages[0], model_->hyper.hidden, model_->hyper.vocab);
    pipeline_.reset();
    stages_.clear();
    world_ = std::make_unique<LoopbackWorld>(kStages + 1, std::move(faults));
    coordinator_ = world_->Connect(kCoordinatorRank);
    for (int stage = 0; stage < kStages; ++stage) {
      stages_.push_back(std::make_unique<ScriptedStage>(world_.get(), stage));
      stages_.back()->limits = limits_;
    }
    auto pipeline = StagePipeline::Start(coordinator_.get(), plan_.stages, hellos_, limits_,
                                         /*progress_timeout_us=*/60 * kSecond, [this] { return now_us_; });
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    pipeline_ = *std::move(pipeline);
    TurnAll();
  }
  void StartReady(FaultHook faults = nullptr) {
    Start(std::move(faults));
    for (auto& stage : stages_) stage->SayReady();
    ASSERT_EQ(Poll(), std::nullopt);
    ASSERT_TRUE(pipeline_->roster().AllReady());
  }

  void TurnAll() {
    for (auto& stage : stages_) stage->Turn();
  }
  std::optional<StepResult> Poll() { return pipeline_->Poll().value(); }
  // What Poll fails with, its message held against `words`.
  absl::StatusCode Failure(const std::string& words) {
    const absl::Status status = pipeline_->Poll().status();
    EXPECT_THAT(status.message(), HasSubstr(words));
    return status.code();
  }

  // One row of one sequence.
  static MicroBatch Step(uint64_t number) {
    MicroBatch batch;
    batch.number = number;
    SequenceSlice slice{.sequence = 1, .start = static_cast<int32_t>(number), .count = 1, .sample = true};
    slice.tokens = {static_cast<TokenId>(number)};
    if (number == 0) {
      batch.open.push_back({.sequence = 1, .prompt = {0}});
      slice.new_blocks = {{3}};
    }
    batch.slices.push_back(slice);
    return batch;
  }
  static StepResult ResultOf(uint64_t number) {
    StepResult result;
    result.number = number;
    result.sampled.push_back({1, static_cast<int32_t>(number) + 1, static_cast<TokenId>(number) + 5, -0.5f, {}});
    for (int stage = 0; stage < kStages; ++stage) result.times.push_back({.stage = stage});
    return result;
  }

  int64_t now_us_ = 10 * kSecond;
  std::shared_ptr<const ModelDescription> model_;
  std::vector<pb::Hello> hellos_;
  JobPlan plan_;
  FrameLimits limits_;
  std::unique_ptr<LoopbackWorld> world_;
  std::unique_ptr<Endpoint> coordinator_;
  std::vector<std::unique_ptr<ScriptedStage>> stages_;  // by stage
  std::unique_ptr<StagePipeline> pipeline_;
};

// --- from the handshake to readiness ---------------------------------------------------------------------------------

TEST_F(StagePipelineTest, TellsEachStageFirstOfAllWhatItIsAndBetweenWhichRanks) {
  Start();
  for (int stage = 0; stage < kStages; ++stage) {
    ASSERT_EQ(stages_[stage]->assignments.size(), 1u) << stage;
    const pb::StageAssignment& assignment = stages_[stage]->assignments[0];
    EXPECT_EQ(assignment.stage(), stage);
    EXPECT_EQ(assignment.stages(), kStages);
    EXPECT_EQ(assignment.rank(), RankOf(stage));
    EXPECT_EQ(assignment.previous_rank(), stage == 0 ? kCoordinatorRank : RankOf(stage - 1));
    EXPECT_EQ(assignment.next_rank(), stage == kStages - 1 ? kCoordinatorRank : RankOf(stage + 1));
    EXPECT_EQ(assignment.run_id(), kEpoch.run_id);
    EXPECT_EQ(assignment.epoch(), kEpoch.epoch);
    EXPECT_EQ(assignment.owns_embedding(), stage == 0);
    EXPECT_EQ(assignment.owns_head(), stage == kStages - 1);
    EXPECT_TRUE(stages_[stage]->steps.empty());
  }
}

TEST_F(StagePipelineTest, EveryStageGetsThePoolThatThePoorestOfThemCanHold) {
  Start();
  const int32_t rich = stages_[0]->assignments.at(0).group_blocks(0);
  uint64_t least = kMiB;  // memory with which a stage can be at all
  const auto plan = [&] { return PlanJob(Job(), {hellos_[0], HelloOf(1, least), hellos_[2]}, *model_, kEpoch); };
  while (!plan().ok()) least += kMiB / 4;
  Start(nullptr, {900 * kMiB, least, 900 * kMiB});
  const int32_t poor = stages_[1]->assignments.at(0).group_blocks(0);
  EXPECT_LT(poor, rich);
  for (const auto& stage : stages_) EXPECT_THAT(stage->assignments.at(0).group_blocks(), ElementsAre(poor));
}

TEST_F(StagePipelineTest, IsReadyWhenTheLastStageIsInWhateverOrderTheyCome) {
  Start();
  for (const int stage : {2, 0, 1}) {
    EXPECT_FALSE(pipeline_->roster().AllReady());
    stages_[stage]->Beat(0, /*bytes_loaded=*/50);
    stages_[stage]->SayReady();
    EXPECT_EQ(Poll(), std::nullopt);
    EXPECT_EQ(pipeline_->roster().stage(stage).ready.weight_bytes(), 1000u + stage);
  }
  EXPECT_TRUE(pipeline_->roster().AllReady());
  EXPECT_EQ(pipeline_->roster().bytes_loaded(), 150u);
  EXPECT_EQ(pipeline_->roster().bytes_to_load(), 300u);
}

TEST_F(StagePipelineTest, AStageWithAnotherModelFileOrWithoutMemoryEndsTheJobForGood) {
  const std::pair<absl::StatusCode, std::string> cases[] = {
      {absl::StatusCode::kDataLoss, "stage 1 on node1: model file 'm' is not the one the coordinator opened"},
      {absl::StatusCode::kResourceExhausted, "stage 1 on node1: not enough memory"}};
  for (const auto& [code, message] : cases) {
    Start();
    stages_[0]->SayReady();
    stages_[1]->Fail(code, message);
    EXPECT_EQ(Failure(message), code);
  }
}

TEST_F(StagePipelineTest, AFailureWithoutAReasonIsNotMistakenForSuccess) {
  Start();
  stages_[1]->Fail(absl::StatusCode::kOk, "");
  EXPECT_EQ(Failure("stage 1 failed without a reason"), absl::StatusCode::kInternal);
}

// --- work ------------------------------------------------------------------------------------------------------------

TEST_F(StagePipelineTest, StepsGoToTheFirstStageAndResultsComeFromTheLastInTheirOrder) {
  StartReady();
  for (uint64_t number = 0; number < 3; ++number) ASSERT_TRUE(pipeline_->Submit(Step(number)).ok());
  TurnAll();
  EXPECT_THAT(stages_[0]->steps, ElementsAre(Step(0), Step(1), Step(2)));
  EXPECT_TRUE(stages_[1]->steps.empty());
  EXPECT_TRUE(stages_[2]->steps.empty());
  EXPECT_EQ(Poll(), std::nullopt);
  for (uint64_t number = 0; number < 3; ++number) stages_[2]->SendResult(ResultOf(number));
  for (uint64_t number = 0; number < 3; ++number) EXPECT_EQ(Poll(), ResultOf(number));
  EXPECT_EQ(Poll(), std::nullopt);
  TurnAll();
  EXPECT_FALSE(pipeline_->SendsPending());
}

TEST_F(StagePipelineTest, TakesMicroBatchesInTheOrderOfTheirNumbersOnly) {
  StartReady();
  EXPECT_EQ(pipeline_->Submit(Step(1)).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(pipeline_->Submit(Step(0)).ok());
  EXPECT_EQ(pipeline_->Submit(Step(0)).code(), absl::StatusCode::kInternal);
}

TEST_F(StagePipelineTest, AResultOutOfOrderIsALossOfTheLastStage) {
  StartReady();
  for (uint64_t number = 0; number < 2; ++number) ASSERT_TRUE(pipeline_->Submit(Step(number)).ok());
  stages_[2]->SendResult(ResultOf(1));
  EXPECT_EQ(Failure("lost stage 2 on node2 (process 102)"), absl::StatusCode::kUnavailable);
}

TEST_F(StagePipelineTest, AResultOfNothingIsALossOfTheLastStage) {
  StartReady();
  stages_[2]->SendResult(ResultOf(0));
  EXPECT_EQ(Failure("lost stage 2 on node2 (process 102): it sent a bad frame: a result, and nothing is in flight"),
            absl::StatusCode::kUnavailable);
}

TEST_F(StagePipelineTest, TheShutdownFrameTravelsLikeWork) {
  StartReady();
  ASSERT_TRUE(pipeline_->Submit(Step(0)).ok());
  ASSERT_TRUE(pipeline_->Submit({.number = 1, .shutdown = true}).ok());
  TurnAll();
  ASSERT_EQ(stages_[0]->steps.size(), 2u);
  EXPECT_TRUE(stages_[0]->steps[1].shutdown);
  StepResult last = ResultOf(1);
  last.sampled.clear();
  stages_[2]->SendResult(ResultOf(0));
  stages_[2]->SendResult(last);
  EXPECT_EQ(Poll(), ResultOf(0));
  EXPECT_EQ(Poll(), last);
  EXPECT_FALSE(pipeline_->SendsPending());
}

TEST_F(StagePipelineTest, AfterIdlenessTheStagesBehindTheFirstAreWokenOnce) {
  StartReady();
  ASSERT_TRUE(pipeline_->Submit(Step(0)).ok());
  TurnAll();
  const int before = stages_[1]->wake_ups;
  ASSERT_TRUE(pipeline_->Submit(Step(1)).ok());
  TurnAll();
  EXPECT_EQ(stages_[1]->wake_ups, before) << "work is in flight";
  now_us_ += kSecond;
  ASSERT_TRUE(pipeline_->Submit(Step(2)).ok());
  TurnAll();
  EXPECT_EQ(stages_[0]->wake_ups, 0) << "its step wakes it";
  EXPECT_EQ(stages_[1]->wake_ups, before + 1);
  EXPECT_EQ(stages_[2]->wake_ups, before + 1);
}

// --- losses ----------------------------------------------------------------------------------------------------------

TEST_F(StagePipelineTest, AStageThatFallsSilentIsLostWithItsNumberHostAndProcess) {
  StartReady();
  for (int second = 0; second < 7; ++second) {
    now_us_ += kSecond;
    for (const int stage : {0, 2}) stages_[stage]->Beat();
    if (second < 5) {
      EXPECT_EQ(Poll(), std::nullopt) << second;
    }
  }
  EXPECT_EQ(Failure("lost stage 1 on node1 (process 101): no heartbeat for 7.0 s"), absl::StatusCode::kUnavailable);
}

TEST_F(StagePipelineTest, WorkThatGetsNowhereIsLostWithTheStageThatHoldsIt) {
  StartReady();
  ASSERT_TRUE(pipeline_->Submit(Step(0)).ok());
  for (int second = 0; second < 60; ++second) {
    now_us_ += kSecond;
    for (int stage = 0; stage < kStages; ++stage) stages_[stage]->Beat(/*steps_done=*/stage < 2 ? 1 : 0);
    ASSERT_EQ(Poll(), std::nullopt) << second;
  }
  now_us_ += kSecond;
  for (int stage = 0; stage < kStages; ++stage) stages_[stage]->Beat(stage < 2 ? 1 : 0);
  // Their counters moved with the first heartbeat, a second after the work was handed out.
  now_us_ += kSecond;
  for (int stage = 0; stage < kStages; ++stage) stages_[stage]->Beat(stage < 2 ? 1 : 0);
  EXPECT_EQ(Failure("lost stage 2 on node2 (process 102): working without progress"), absl::StatusCode::kUnavailable);
}

TEST_F(StagePipelineTest, ACoordinatorThatWasItselfStoppedHearsTheStagesBeforeItJudgesThem) {
  StartReady();
  now_us_ += 100 * kSecond;  // nothing was read all the while
  EXPECT_EQ(Poll(), std::nullopt);
  for (auto& stage : stages_) stage->Beat();
  now_us_ += 3 * kSecond;
  EXPECT_EQ(Poll(), std::nullopt);
}

TEST_F(StagePipelineTest, AStageThatReportsABadFrameIsALossAndItsOwnErrorIsNot) {
  StartReady();
  stages_[1]->Fail(absl::StatusCode::kDataLoss, "stage 1 on node1: received a bad frame");
  EXPECT_EQ(Failure("received a bad frame"), absl::StatusCode::kUnavailable);
  StartReady();
  stages_[1]->Fail(absl::StatusCode::kResourceExhausted, "stage 1 on node1: not enough memory");
  EXPECT_EQ(Failure("not enough memory"), absl::StatusCode::kResourceExhausted);
}

TEST_F(StagePipelineTest, WhateverAStageSaysThatMakesNoSenseIsALossOfThatStage) {
  pb::Heartbeat of_another;
  of_another.set_stage(2);
  pb::StageReady of_none;
  of_none.set_stage(-1);
  pb::StageFailure failure;
  failure.set_stage(kStages);
  const std::pair<ControlBody, JobEpoch> cases[] = {
      {pb::Hello(), kEpoch},
      {pb::StageAssignment(), kEpoch},
      {of_another, kEpoch},
      {of_none, kEpoch},
      {failure, kEpoch},
      {pb::Heartbeat(), {kEpoch.run_id, kEpoch.epoch + 1}},
      {pb::Heartbeat(), {kEpoch.run_id + 1, kEpoch.epoch}},
  };
  for (const auto& [body, epoch] : cases) {
    StartReady();
    stages_[1]->Say(body, epoch);
    EXPECT_EQ(Failure("lost stage 1 on node1 (process 101): it sent a bad frame"), absl::StatusCode::kUnavailable)
        << body.index();
  }
}

// A frame that is damaged on its way from a stage.
FaultHook Damage(Channel channel, int stage, uint64_t index, Fault fault) {
  return [=](Channel on, int source, int, uint64_t i) {
    return on == channel && source == RankOf(stage) && i == index ? fault : Fault{};
  };
}

TEST_F(StagePipelineTest, DamagedTelemetryIsALossOfItsStage) {
  for (const Fault fault :
       {Fault{.kind = Fault::Kind::kCorrupt, .offset = 2}, Fault{.kind = Fault::Kind::kCorrupt, .offset = 12},
        Fault{.kind = Fault::Kind::kTruncate, .offset = 9}, Fault{.kind = Fault::Kind::kTruncate}}) {
    StartReady(Damage(Channel::kTelemetry, 1, /*index=*/1, fault));
    stages_[1]->Beat();
    EXPECT_EQ(Failure("lost stage 1 on node1 (process 101): it sent a bad frame"), absl::StatusCode::kUnavailable)
        << fault.offset;
  }
}

TEST_F(StagePipelineTest, ADamagedResultIsALossOfTheLastStage) {
  for (const Fault fault :
       {Fault{.kind = Fault::Kind::kCorrupt, .offset = 2}, Fault{.kind = Fault::Kind::kCorrupt, .offset = 40},
        Fault{.kind = Fault::Kind::kTruncate, .offset = 30}}) {
    StartReady(Damage(Channel::kResult, 2, /*index=*/0, fault));
    ASSERT_TRUE(pipeline_->Submit(Step(0)).ok());
    stages_[2]->SendResult(ResultOf(0));
    EXPECT_EQ(Failure("lost stage 2 on node2 (process 102): it sent a bad frame"), absl::StatusCode::kUnavailable)
        << fault.offset;
  }
}

TEST_F(StagePipelineTest, TimesThatNoClockGivesAreABadResult) {
  StepResult result = ResultOf(0);
  result.times[1] = {.stage = 1, .received_us = 5, .start_us = 5, .end_us = std::numeric_limits<int64_t>::min()};
  StartReady();
  ASSERT_TRUE(pipeline_->Submit(Step(0)).ok());
  stages_[2]->SendResult(result);
  EXPECT_EQ(Failure("times[1]"), absl::StatusCode::kUnavailable);
}

TEST_F(StagePipelineTest, AFrameLongerThanAnyCanBeIsALoss) {
  pb::Hello large;
  large.set_host(std::string(2 * kMaxTelemetryFrameBytes, 'x'));
  StartReady();
  stages_[1]->Say(large);
  EXPECT_EQ(Failure("frame on channel telemetry from rank 2 has "), absl::StatusCode::kUnavailable);
}

constexpr int64_t kSecondUs = 1000000;

std::vector<pb::Hello> TwoStages() {
  std::vector<pb::Hello> hellos(2);
  hellos[0].set_rank(5);
  hellos[0].set_host("alpha");
  hellos[0].set_pid(10);
  hellos[1].set_rank(2);
  hellos[1].set_host("beta");
  hellos[1].set_pid(20);
  return hellos;
}

pb::Heartbeat Beat(int stage, uint64_t steps) {
  pb::Heartbeat heartbeat;
  heartbeat.set_stage(stage);
  heartbeat.set_steps_done(steps);
  return heartbeat;
}

pb::StageReady Ready(int stage) {
  pb::StageReady ready;
  ready.set_stage(stage);
  return ready;
}

struct RosterTest : ::testing::Test {
  RosterTest() : roster_(TwoStages(), /*progress_timeout_us=*/60 * kSecondUs, /*now_us=*/0) {}

  void BecomeReady() {
    roster_.Heard(Ready(0), 0);
    roster_.Heard(Ready(1), 0);
  }
  // Both stages beat every second until `until`, without moving a counter.
  void BeatUntil(int64_t until, uint64_t steps0, uint64_t steps1) {
    for (int64_t now = 0; now <= until; now += kSecondUs) {
      roster_.Heard(Beat(0, steps0), now);
      roster_.Heard(Beat(1, steps1), now);
    }
  }

  Roster roster_;
};

TEST_F(RosterTest, KnowsWhichRankIsWhichStage) {
  EXPECT_EQ(roster_.stage(0).rank, 5);
  EXPECT_EQ(roster_.StageOfRank(2), 1);
  EXPECT_EQ(roster_.StageOfRank(1), std::nullopt);
}

TEST_F(RosterTest, ALossSaysForProgramsTooWhichStageItIsAbout) {
  BecomeReady();
  for (int64_t now = 0; now <= 7 * kSecondUs; now += kSecondUs) roster_.Heard(Beat(0, 0), now);
  const absl::Status lost = roster_.CheckAlive(7 * kSecondUs, -1);
  EXPECT_EQ(LostStage(lost), 1) << lost;
  EXPECT_EQ(LostStage(absl::UnavailableError("the front is gone")), std::nullopt);
}

TEST_F(RosterTest, IdlenessIsNotLackOfProgress) {
  BecomeReady();
  BeatUntil(500 * kSecondUs, 5, 5);
  EXPECT_TRUE(roster_.CheckAlive(500 * kSecondUs, -1).ok());
}

TEST_F(RosterTest, LoadingWithoutMovingBytesIsALossOfTheStageThatIsNotReady) {
  roster_.Heard(Ready(0), 0);
  BeatUntil(61 * kSecondUs, 0, 0);
  const absl::Status status = roster_.CheckAlive(61 * kSecondUs, -1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("stage 1 on beta (process 20): loading without progress"));
}

TEST_F(RosterTest, StreamedBytesAndMemoryAreProgressBeforeAnyWeightIsLoaded) {
  for (const auto set : {&pb::Heartbeat::set_bytes_streamed, &pb::Heartbeat::set_bytes_touched}) {
    Roster roster(TwoStages(), /*progress_timeout_us=*/60 * kSecondUs, /*now_us=*/0);
    for (int64_t now = 0; now <= 61 * kSecondUs; now += kSecondUs) {
      pb::Heartbeat heartbeat = Beat(0, 0);
      (heartbeat.*set)(now > 50 * kSecondUs ? 50 : static_cast<uint64_t>(now / kSecondUs));
      roster.Heard(heartbeat, now);
      roster.Heard(Beat(1, 0), now);
    }
    EXPECT_TRUE(roster.CheckAlive(61 * kSecondUs, -1).ok());
  }
}

TEST_F(RosterTest, FindingOutWhatGrammarsAllowIsProgressOfAMicroBatch) {
  BecomeReady();
  for (int64_t now = 0; now <= 90 * kSecondUs; now += kSecondUs) {
    pb::Heartbeat heartbeat = Beat(1, 4);
    heartbeat.set_grammar_mask_ns(now > 50 * kSecondUs ? 50 : static_cast<uint64_t>(now / kSecondUs));
    roster_.Heard(Beat(0, 5), now);
    roster_.Heard(heartbeat, now);
  }
  EXPECT_TRUE(roster_.CheckAlive(90 * kSecondUs, 4).ok());
}

TEST_F(RosterTest, AMovingCounterRestartsTheProgressClock) {
  BecomeReady();
  BeatUntil(50 * kSecondUs, 5, 4);
  pb::Heartbeat moved = Beat(1, 4);
  moved.set_layers_done(1);
  roster_.Heard(moved, 50 * kSecondUs);
  for (int64_t now = 51; now <= 100; ++now) {
    roster_.Heard(Beat(0, 5), now * kSecondUs);
    roster_.Heard(moved, now * kSecondUs);
  }
  EXPECT_TRUE(roster_.CheckAlive(100 * kSecondUs, 4).ok());
}

}  // namespace
}  // namespace stagecoach
