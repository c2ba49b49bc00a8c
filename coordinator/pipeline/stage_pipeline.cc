#include "coordinator/pipeline/stage_pipeline.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr int64_t kCheckUs = 100000;  // how often the roster is searched for lost stages
constexpr int64_t kIdleUs = 900000;   // after this long without traffic the stages' communication threads sleep long

// What arrives and fails its checks was damaged on its way, or its stage went wrong: nothing that a user did, and a new
// job may do better.
absl::Status BadFrame(absl::string_view sender, const absl::Status& status) {
  return absl::UnavailableError(absl::StrCat("lost ", sender, ": it sent a bad frame: ", status.message()));
}

}  // namespace

StagePipeline::StagePipeline(Endpoint* endpoint, const std::vector<pb::Hello>& hellos, const FrameLimits& limits,
                             int64_t progress_timeout_us, std::function<int64_t()> now_us)
    : endpoint_(endpoint),
      now_us_(std::move(now_us)),
      limits_(limits),
      roster_(hellos, progress_timeout_us, now_us_()),
      step_pool_(limits.MaxStepHeaderBytes(), 0),
      control_pool_(kMaxSetupFrameBytes, 0) {}

absl::StatusOr<std::unique_ptr<StagePipeline>> StagePipeline::Start(
    Endpoint* endpoint, const std::vector<pb::StageAssignment>& assignments, const std::vector<pb::Hello>& hellos,
    const FrameLimits& limits, int64_t progress_timeout_us, std::function<int64_t()> now_us,
    std::unique_ptr<WeightService> weights) {
  auto pipeline = std::unique_ptr<StagePipeline>(
      new StagePipeline(endpoint, hellos, limits, progress_timeout_us, std::move(now_us)));
  pipeline->weights_ = std::move(weights);
  const int stages = pipeline->stages();
  const int in_flight = assignments.front().in_flight();
  RETURN_IF_ERROR(endpoint->OpenReceive(Channel::kResult, pipeline->RankOf(stages - 1), limits.MaxResultFrameBytes(),
                                        in_flight + 1));
  for (int stage = 0; stage < stages; ++stage) {
    RETURN_IF_ERROR(endpoint->OpenReceive(Channel::kTelemetry, pipeline->RankOf(stage), kMaxTelemetryFrameBytes, 2));
    if (pipeline->weights_ != nullptr) {
      RETURN_IF_ERROR(
          endpoint->OpenReceive(Channel::kWeights, pipeline->RankOf(stage), kMaxWeightHeaderBytes, kWeightCredit));
    }
    RETURN_IF_ERROR(pipeline->SendControl(stage, {}, assignments[stage]));
  }
  return pipeline;
}

absl::Status StagePipeline::Submit(const MicroBatch& batch) {
  if (batch.number != next_submit_) {
    return absl::InternalError(absl::StrCat("micro-batch ", batch.number, " submitted, expected ", next_submit_));
  }
  const int64_t now = now_us_();
  if (now - last_traffic_us_ > kIdleUs) RETURN_IF_ERROR(WakeStages());
  last_traffic_us_ = now;
  if (next_submit_ == next_result_) roster_.WorkHandedOut(now);
  std::shared_ptr<FrameBuffer> buffer = step_pool_.Acquire();
  RETURN_IF_ERROR(EncodeStep(limits_, StepFrame{.batch = batch}, buffer.get()));
  RETURN_IF_ERROR(endpoint_->Send(Channel::kStep, RankOf(0), std::move(buffer)));
  ++next_submit_;
  return absl::OkStatus();
}

absl::Status StagePipeline::SendControl(int stage, const JobEpoch& epoch, const ControlBody& body) {
  std::shared_ptr<FrameBuffer> buffer = control_pool_.Acquire();
  RETURN_IF_ERROR(EncodeControl(epoch, body, buffer.get()));
  return endpoint_->Send(Channel::kSetup, RankOf(stage), std::move(buffer));
}

// The stages after the first would each sleep until the frame before them is done; an empty frame ends their sleeps at
// once.
absl::Status StagePipeline::WakeStages() {
  for (int stage = 1; stage < stages(); ++stage) {
    RETURN_IF_ERROR(SendControl(stage, limits_.job, pb::Heartbeat()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<StepResult>> StagePipeline::Poll() {
  while (true) {
    absl::StatusOr<std::optional<ReceivedFrame>> polled = endpoint_->Poll();
    if (absl::IsInvalidArgument(polled.status()))
      return BadFrame("a stage", polled.status());  // longer than any can be
    RETURN_IF_ERROR(polled.status());
    const std::optional<ReceivedFrame>& frame = *polled;
    if (!frame.has_value()) break;
    if (frame->channel() == Channel::kTelemetry) {
      RETURN_IF_ERROR(TakeTelemetry(*frame));
      continue;
    }
    if (frame->channel() == Channel::kWeights) {
      RETURN_IF_ERROR(TakeWeightRequest(*frame));
      continue;
    }
    if (next_result_ == next_submit_) {
      return BadFrame(roster_.Describe(stages() - 1), absl::InvalidArgumentError("a result, and nothing is in flight"));
    }
    absl::StatusOr<StepResult> result = DecodeResult(limits_, frame->bytes(), next_result_);
    if (!result.ok()) return BadFrame(roster_.Describe(stages() - 1), result.status());
    ++next_result_;
    last_traffic_us_ = now_us_();
    roster_.ResultArrived(last_traffic_us_);
    return std::optional<StepResult>(*std::move(result));
  }
  RETURN_IF_ERROR(SendWeights());
  if (const int64_t now = now_us_(); now >= next_check_us_) {
    // A coordinator that was itself stopped for a while must hear the stages before it judges them.
    const bool late = next_check_us_ > 0 && now - next_check_us_ > Roster::kSilenceUs / 2;
    next_check_us_ = now + (late ? 2 * Roster::kSilenceUs / 6 : kCheckUs);
    const bool working = next_result_ < next_submit_;
    if (!late) RETURN_IF_ERROR(roster_.CheckAlive(now, working ? static_cast<int64_t>(next_result_) : -1));
  }
  return std::optional<StepResult>();
}

absl::Status StagePipeline::TakeWeightRequest(const ReceivedFrame& frame) {
  const int stage = roster_.StageOfRank(frame.source()).value();
  const absl::Status taken =
      weights_ != nullptr
          ? weights_->Take(stage, frame.bytes())
          : absl::InvalidArgumentError("a request for weights, and all stages have said that they are ready");
  return taken.ok() ? taken : BadFrame(roster_.Describe(stage), taken);
}

absl::Status StagePipeline::SendWeights() {
  if (roster_.AllReady()) weights_ = nullptr;  // with its thread and its memory
  if (weights_ == nullptr) return absl::OkStatus();
  while (std::optional<WeightService::Answer> answer = weights_->Next()) {
    RETURN_IF_ERROR(endpoint_->Send(Channel::kWeights, RankOf(answer->stage), std::move(answer->frame)));
  }
  return absl::OkStatus();
}

absl::Status StagePipeline::TakeTelemetry(const ReceivedFrame& frame) {
  const int stage = roster_.StageOfRank(frame.source()).value();  // no other receive is open
  const absl::StatusOr<ControlBody> decoded = DecodeControl(limits_.job, frame.bytes());
  if (!decoded.ok()) return WithStage(stage, BadFrame(roster_.Describe(stage), decoded.status()));
  const ControlBody& body = *decoded;
  const int64_t now = now_us_();
  if (const auto* heartbeat = std::get_if<pb::Heartbeat>(&body); heartbeat != nullptr && heartbeat->stage() == stage) {
    roster_.Heard(*heartbeat, now);
  } else if (const auto* ready = std::get_if<pb::StageReady>(&body); ready != nullptr && ready->stage() == stage) {
    if (weights_ != nullptr) {
      // As a damaged frame: nothing that a user did.
      if (const absl::Status same = weights_->CheckReceived(*ready); !same.ok()) {
        return absl::UnavailableError(absl::StrCat("lost ", roster_.Describe(stage), ": it ", same.message()));
      }
    }
    roster_.Heard(*ready, now);
  } else if (const auto* failure = std::get_if<pb::StageFailure>(&body);
             failure != nullptr && failure->stage() == stage) {
    const absl::Status status = WithStage(stage, {static_cast<absl::StatusCode>(failure->code()), failure->message()});
    // A damaged frame is the network's fault, not the stage's: a new job may do better.
    if (roster_.AllReady() && absl::IsDataLoss(status))
      return WithStage(stage, absl::UnavailableError(status.message()));
    return status.ok() ? absl::InternalError(absl::StrCat("stage ", stage, " failed without a reason")) : status;
  } else {
    return BadFrame(roster_.Describe(stage), absl::InvalidArgumentError("unexpected telemetry, or of another stage"));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
