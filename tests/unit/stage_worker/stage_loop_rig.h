#ifndef STAGECOACH_TESTS_UNIT_STAGE_WORKER_STAGE_LOOP_RIG_H_
#define STAGECOACH_TESTS_UNIT_STAGE_WORKER_STAGE_LOOP_RIG_H_

// One real stage with a tiny model on the loopback transport; the test is all the other ranks.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/model/footprint.h"
#include "common/model/model_description.h"
#include "common/transport/loopback.h"
#include "common/transport/wait_ladder.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "stage_worker/stage_loop.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {

inline constexpr uint64_t kRunId = 77;
inline constexpr int64_t kLayers = 4;
inline constexpr int kBlockTokens = 16;
inline constexpr int kRows = 3;  // of the first sequence's first step
inline constexpr int64_t kSecond = 1'000'000;
inline constexpr int64_t kHangUs = 60 * kSecond;  // what never comes is a failure, not a hang

// Against the order of ranks: nothing may follow from a rank's number.
constexpr int RankOf(int stage, int stages) { return stages - stage; }

// What the coordinator has heard of the stage.
struct Heard {
  std::vector<pb::Heartbeat> heartbeats;
  std::optional<pb::StageReady> ready;
  std::optional<pb::StageFailure> failure;
};

class StageLoopTest : public ::testing::Test {
 protected:
  StageLoopTest() : path_(testing::WriteTinyModel(dir_.File("tiny.gguf"), {.layers = kLayers})) {}
  ~StageLoopTest() override {
    if (!stage_thread_.joinable()) return;
    world_->Abort();
    stage_thread_.join();
  }

  pb::StageAssignment Assignment(int stage, int stages) const {
    pb::StageAssignment assignment;
    assignment.set_run_id(kRunId);
    assignment.set_epoch(1);
    assignment.set_model_path(path_);
    *assignment.mutable_fingerprints() = ToProto(OpenModel(path_, {}).value()->file->fingerprints());
    assignment.set_stage(stage);
    assignment.set_stages(stages);
    assignment.set_rank(RankOf(stage, stages));
    if (stage > 0) assignment.set_previous_rank(RankOf(stage - 1, stages));
    if (stage + 1 < stages) assignment.set_next_rank(RankOf(stage + 1, stages));
    assignment.set_first_layer(kLayers * stage / stages);
    assignment.set_last_layer(kLayers * (stage + 1) / stages);
    assignment.set_owns_embedding(stage == 0);
    assignment.set_owns_head(stage + 1 == stages);
    assignment.set_block_tokens(kBlockTokens);
    assignment.add_group_blocks(32);
    assignment.set_kv_type(pb::KV_TYPE_F16);
    assignment.set_wire_type(pb::WIRE_TYPE_F32);
    assignment.set_threads(1);
    assignment.set_context(256);
    assignment.set_max_rows(64);
    assignment.set_max_slices(8);
    assignment.set_max_open_tokens(512);
    assignment.set_in_flight(4);
    assignment.set_isa(pb::INSTRUCTION_SET_SCALAR);
    assignment.set_q2_layout("auto");
    return assignment;
  }

  // What the coordinator's plan leaves for the stage's buffers.
  static uint64_t PlannedBytes(const pb::StageAssignment& assignment) {
    const auto model = OpenModel(assignment.model_path(), {});
    StepLimits limits;
    limits.max_rows = assignment.max_rows();
    limits.max_slices = assignment.max_slices();
    limits.context = assignment.context();
    limits.threads = assignment.threads();
    const FrameLimits frames = LimitsOf(assignment, (*model)->hyper.hidden, (*model)->hyper.vocab);
    return ScratchSizesOf(**model, assignment.first_layer(), assignment.last_layer(), assignment.owns_head(), limits)
               .bytes() +
           frames.StageFrameBytes(assignment.owns_head(), assignment.in_flight());
  }

  // Starts the stage on a thread of its own; this test is the others. The stage's clock stands still.
  void Start(int stage, int stages, FaultHook faults = nullptr) {
    assignment_ = Assignment(stage, stages);
    Connect(std::move(faults));
    Run(assignment_);
  }
  // The same by an assignment that differs from that of the endpoints.
  void StartWith(int stage, int stages, const std::function<void(pb::StageAssignment*)>& change) {
    assignment_ = Assignment(stage, stages);
    Connect();
    pb::StageAssignment changed = assignment_;
    change(&changed);
    limits_.job = EpochOf(changed);
    limits_.most_guesses = changed.most_guesses();
    Run(changed);
  }
  void Run(const pb::StageAssignment& assignment) {
    stage_thread_ = std::thread([this, assignment] {
      const std::unique_ptr<Endpoint> endpoint = world_->Connect(assignment_.rank());
      status_ = StageLoop(endpoint.get(), assignment, [this] { return now_us_.load(); }).Run();
    });
  }
  // From its first word on.
  void StartServing() {
    assignment_ = Assignment(0, 1);
    Connect();
    stage_thread_ = std::thread([this] { status_ = ServeStage(world_->Connect(1).get()); });
  }
  void SendSetup(const JobEpoch& job, const ControlBody& body) {
    auto buffer = std::make_shared<FrameBuffer>(kMaxSetupFrameBytes, 0);
    ASSERT_TRUE(EncodeControl(job, body, buffer.get()).ok());
    ASSERT_TRUE(coordinator_->Send(Channel::kSetup, 1, std::move(buffer)).ok());
  }

  void Connect(FaultHook faults = nullptr) {
    heard_ = {};
    passed_on_.clear();
    const int rank = assignment_.rank();
    limits_ = LimitsOf(assignment_, /*hidden=*/64, /*vocab=*/320);
    world_ = std::make_unique<LoopbackWorld>(assignment_.stages() + 1, std::move(faults));
    coordinator_ = world_->Connect(0);
    ASSERT_TRUE(coordinator_->OpenReceive(Channel::kTelemetry, rank, kMaxTelemetryFrameBytes, 4).ok());
    if (assignment_.owns_head()) {
      ASSERT_TRUE(coordinator_->OpenReceive(Channel::kResult, rank, limits_.MaxResultFrameBytes(), 8).ok());
    } else {
      next_ = world_->Connect(assignment_.next_rank());
      ASSERT_TRUE(next_->OpenReceive(Channel::kStep, rank, limits_.MaxStepFrameBytes(), 8).ok());
      ASSERT_TRUE(next_->OpenReceive(Channel::kSetup, rank, kMaxTelemetryFrameBytes, 8).ok());
    }
    if (!assignment_.owns_embedding()) previous_ = world_->Connect(assignment_.previous_rank());
  }

  // The steps of one sequence: its prompt, then a row each.
  static MicroBatch Step(uint64_t number) {
    MicroBatch batch;
    batch.number = number;
    SequenceSlice slice{.sequence = 1, .sample = true};
    if (number == 0) {
      OpenSequence open;
      open.sequence = 1;
      open.prompt = {5, 6, 7};
      batch.open.push_back(open);
      slice.count = kRows;
      slice.tokens = open.prompt;
      slice.new_blocks = {{3}};
    } else {
      slice.start = kRows + static_cast<int32_t>(number) - 1;
      slice.count = 1;
      slice.tokens = {static_cast<TokenId>(8 + number)};
      if (slice.start % kBlockTokens == 0) slice.new_blocks = {{3 + slice.start / kBlockTokens}};
    }
    batch.slices.push_back(slice);
    return batch;
  }
  // One row of the sequence, before its next block.
  static MicroBatch Row(uint64_t number, int32_t start, TokenId token, bool guess) {
    return {.number = number,
            .slices = {{.sequence = 1, .start = start, .count = 1, .tokens = {token}, .sample = true, .guess = guess}}};
  }
  // As stages pass it on.
  static MicroBatch WithoutTokens(MicroBatch batch) {
    for (SequenceSlice& slice : batch.slices) {
      if (!slice.guess) slice.tokens.clear();
    }
    return batch;
  }
  static MicroBatch Shutdown(uint64_t number) { return {.number = number, .shutdown = true}; }

  // The frame as the rank before the stage sends it.
  void Send(const MicroBatch& batch) {
    auto buffer = std::make_shared<FrameBuffer>(limits_.MaxStepHeaderBytes(), limits_.MaxStepPayloadBytes());
    StepFrame frame{.batch = batch, .has_hidden = previous_ != nullptr};
    for (int stage = 0; stage < assignment_.stage(); ++stage) frame.times.push_back({.stage = stage});
    if (frame.has_hidden) {
      frame.batch = WithoutTokens(batch);
      const std::vector<float> hidden(static_cast<size_t>(batch.rows()) * limits_.hidden,
                                      0.25f + static_cast<float>(batch.number));
      EncodeHidden(limits_.wire_type, hidden.data(), hidden.size(), buffer->payload());
    }
    const absl::Status encoded = EncodeStep(limits_, frame, buffer.get());
    ASSERT_TRUE(encoded.ok()) << encoded;
    ASSERT_TRUE(Before()->Send(Channel::kStep, assignment_.rank(), std::move(buffer)).ok());
  }
  Endpoint* Before() { return previous_ != nullptr ? previous_.get() : coordinator_.get(); }

  // Polls until `done`, or until it takes too long.
  template <typename Done>
  bool Poll(Done done) {
    const int64_t deadline_us = MonotonicUs() + kHangUs;
    WaitLadder ladder;
    while (MonotonicUs() < deadline_us) {
      Collect();
      if (done()) return true;
      if (heard_.failure.has_value()) {
        ADD_FAILURE() << heard_.failure->message();
        return false;
      }
      ladder.Wait();
    }
    return false;
  }

  // Takes what has arrived for the test's ranks.
  void Collect() {
    while (std::optional<ReceivedFrame> frame = TakeFrom(coordinator_.get())) {
      if (frame->channel() == Channel::kTelemetry) {
        Hear(*frame);
      } else {
        results_.push_back(DecodeResult(limits_, frame->bytes(), results_.size()).value());
      }
    }
    while (next_ != nullptr) {
      const std::optional<ReceivedFrame> frame = TakeFrom(next_.get());
      if (!frame.has_value()) break;
      if (frame->channel() == Channel::kSetup) {
        ++woken_;
        continue;
      }
      auto step = DecodeStep(limits_, frame->bytes(), passed_on_.size(), /*expect_hidden=*/true).value();
      passed_on_.push_back({step.batch, step.times});
    }
    if (previous_ != nullptr) TakeFrom(previous_.get());  // finishes its sends
  }
  static std::optional<ReceivedFrame> TakeFrom(Endpoint* endpoint) {
    auto frame = endpoint->Poll();
    return frame.ok() ? *std::move(frame) : std::nullopt;  // after an abort there is nothing
  }
  void Hear(const ReceivedFrame& frame) {
    const auto body = DecodeControl(limits_.job, frame.bytes()).value();
    if (const auto* heartbeat = std::get_if<pb::Heartbeat>(&body)) heard_.heartbeats.push_back(*heartbeat);
    if (const auto* ready = std::get_if<pb::StageReady>(&body)) heard_.ready = *ready;
    if (const auto* failure = std::get_if<pb::StageFailure>(&body)) heard_.failure = *failure;
  }

  bool AwaitReady() {
    return Poll([this] { return heard_.ready.has_value(); });
  }
  // Waits for the stage's end and gives what Run returned.
  absl::Status Join() {
    stage_thread_.join();
    Collect();
    return status_;
  }
  // The end by the frame behind that many steps, which each led to a result or were passed on.
  void ExpectShutdownAfter(uint64_t steps) {
    Send(Shutdown(steps));
    ASSERT_TRUE(Poll([&] { return results_.size() + passed_on_.size() == steps + 1; }));
    EXPECT_TRUE(Join().ok()) << status_;
  }
  // The end of a stage that reports a failure: it waits until the report has been taken.
  void ExpectFailure(absl::StatusCode code, const std::string& message) {
    const bool heard = Poll([this] { return heard_.failure.has_value(); });
    EXPECT_TRUE(heard) << message;
    if (!heard) world_->Abort();  // else the stage may never end
    EXPECT_EQ(Join().code(), code) << message << ": " << status_;
    ASSERT_TRUE(heard_.failure.has_value());
    EXPECT_THAT(heard_.failure->message(), HasSubstr(message));
  }

  struct PassedOn {
    MicroBatch batch;
    std::vector<StageTimes> times;
  };

  testing::TempDir dir_;
  std::string path_;
  pb::StageAssignment assignment_;
  FrameLimits limits_;
  std::unique_ptr<LoopbackWorld> world_;
  std::unique_ptr<Endpoint> coordinator_, previous_, next_;
  std::atomic<int64_t> now_us_{5 * kSecond};
  std::thread stage_thread_;
  absl::Status status_ = absl::UnknownError("still running");  // written by the stage's thread

  Heard heard_;
  std::vector<StepResult> results_;
  std::vector<PassedOn> passed_on_;
  int woken_ = 0;  // empty frames to the next stage
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_STAGE_WORKER_STAGE_LOOP_RIG_H_
