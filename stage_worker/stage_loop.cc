#include "stage_worker/stage_loop.h"

#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "common/wire/handshake.h"

namespace stagecoach {
namespace {

constexpr int64_t kHeartbeatUs = 1000000;

// Missing memory or threads are this rank's own, final error; they must be reported.
template <typename Work>
absl::Status Guarded(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "not enough memory for weights, scratch and frames; lower `max_num_batched_tokens`, `max_num_seqs` "
        "or `micro_batches`");
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start the compute threads: ", error.what(), "; lower `threads`"));
  }
}

}  // namespace

absl::Status ReportFailure(const JobEpoch& job, int stage, const absl::Status& failure, FramePool* pool,
                           Endpoint* endpoint) {
  constexpr int64_t kDeadlineUs = 2000000;
  pb::StageFailure report;
  report.set_stage(stage);
  report.set_code(static_cast<int>(failure.code()));
  report.set_message(
      absl::StrCat(StageName(stage, HostName()), ": ", failure.message().substr(0, kMaxTelemetryFrameBytes / 4)));
  std::shared_ptr<FrameBuffer> buffer = pool->Acquire();
  RETURN_IF_ERROR(EncodeControl(job, report, buffer.get()));
  RETURN_IF_ERROR(endpoint->Send(Channel::kTelemetry, kCoordinatorRank, std::move(buffer)));
  const int64_t deadline_us = MonotonicUs() + kDeadlineUs;
  WaitLadder ladder;
  while (endpoint->SendsPending() && MonotonicUs() < deadline_us) {
    RETURN_IF_ERROR(endpoint->Poll().status());
    ladder.Wait();
  }
  return absl::OkStatus();
}

StageLoop::StageLoop(Endpoint* endpoint, const pb::StageAssignment& assignment, std::function<int64_t()> now_us)
    : endpoint_(endpoint),
      assignment_(assignment),
      now_us_(std::move(now_us)),
      stream_(assignment.weights() == pb::WEIGHT_SOURCE_STREAM
                  ? std::make_unique<WeightStream>(EpochOf(assignment), [this] { ladder_.Wake(); })
                  : nullptr),
      computation_(assignment, endpoint->rank(), endpoint->size(), stream_.get()),
      control_pool_(kMaxTelemetryFrameBytes, 0) {}

absl::Status StageLoop::Run() {
  std::thread computing([this] {
    AskForTurns(Turns::kLong);  // for the gang too
    compute_status_ = Guarded([this] { return Compute(); });
    outgoing_.End();
    ladder_.Wake();
  });
  const absl::Status communicated = Guarded([this] { return Communicate(); });
  // Threads that wait for weights wait no longer: who would bring them has ended.
  if (stream_ != nullptr) stream_->Stop(communicated.ok() ? absl::CancelledError("the stage ends") : communicated);
  incoming_.End();
  computing.join();
  const absl::Status failure = compute_status_.ok() ? communicated : compute_status_;
  if (failure.ok()) return failure;
  const absl::Status reported =
      ReportFailure(EpochOf(assignment_), assignment_.stage(), failure, &control_pool_, endpoint_);
  if (!reported.ok()) LogError(reported.message());
  return failure;
}

// --- computing thread ------------------------------------------------------------------------------------------------

absl::Status StageLoop::Compute() {
  RETURN_IF_ERROR(computation_.Load());
  loaded_ = true;
  ladder_.Wake();
  while (true) {
    while (incoming_.TakeWaits() && computation_.WorkAhead()) {
    }
    const int64_t begin_us = MonotonicUs();
    const std::optional<Incoming> incoming = incoming_.Take();
    wait_us_ += MonotonicUs() - begin_us;
    if (!incoming.has_value()) return absl::OkStatus();
    std::unique_lock<std::mutex> lock(send_mu_);
    const FrameSend last_send = last_send_;
    lock.unlock();
    ASSIGN_OR_RETURN(StageComputation::Step step,
                     computation_.Compute(incoming->frame.bytes(), incoming->received_us, last_send));
    outgoing_.Push(std::move(step.frame));
    ladder_.Wake();
    if (step.shutdown) return absl::OkStatus();
  }
}

// --- communication thread --------------------------------------------------------------------------------------------

absl::Status StageLoop::Communicate() {
  if (stream_ != nullptr) {
    answered_us_ = now_us_();
    RETURN_IF_ERROR(endpoint_->OpenReceive(Channel::kWeights, kCoordinatorRank, kMaxWeightFrameBytes, kWeightCredit));
  }
  while (!outgoing_.Exhausted() || endpoint_->SendsPending()) {
    ASSIGN_OR_RETURN(const bool progressed, CommunicateOnce());
    if (progressed) {
      ladder_.Progressed();
    } else {
      ladder_.Wait();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> StageLoop::CommunicateOnce() {
  bool progressed = false;
  if (loaded_ && !announced_) {
    RETURN_IF_ERROR(AnnounceReady());
    announced_ = true;
  }
  if (stream_ != nullptr) {
    ASSIGN_OR_RETURN(progressed, CarryWeights());
  }
  while (std::optional<OutgoingFrame> out = outgoing_.TryTake()) {
    if (out->channel == Channel::kStep) RETURN_IF_ERROR(WakeNextStage(out->destination));
    RETURN_IF_ERROR(endpoint_->Send(out->channel, out->destination, std::move(out->buffer)));
    progressed = true;
  }
  absl::StatusOr<std::optional<ReceivedFrame>> polled = endpoint_->Poll();
  if (absl::IsInvalidArgument(polled.status())) return BadFrame(polled.status());  // longer than any can be
  RETURN_IF_ERROR(polled.status());
  if (std::optional<ReceivedFrame>& frame = *polled; frame.has_value()) {
    progressed = true;
    // In a running job, a frame on the set-up channel only wakes this thread up: work is coming.
    if (frame->channel() == Channel::kWeights) {
      RETURN_IF_ERROR(DeliverWeights(*std::move(frame)));
    } else if (frame->channel() == Channel::kStep) {
      incoming_.Push({*std::move(frame), MonotonicUs()});
      ladder_.Arrived();
    }
  }
  NoteSend();
  if (const int64_t now = now_us_(); now >= next_heartbeat_us_) {
    next_heartbeat_us_ = now + kHeartbeatUs;
    RETURN_IF_ERROR(SendHeartbeat());
  }
  return progressed;
}

// Without copies from process to process, MPI delivers a large frame in pieces, a few at each poll of its receiver. A
// stage idle for more than a second polls every 4 to 20 ms, and pieces do not count as progress: 4 MiB of hidden states
// took 0.5 s. An empty frame arrives whole and ends those sleeps.
absl::Status StageLoop::WakeNextStage(int next) {
  const int64_t now = now_us_();
  const bool may_be_idle = now - step_sent_us_ >= WaitPolicy::kIdleAfterUs / 2;
  step_sent_us_ = now;
  return may_be_idle ? SendControl(Channel::kSetup, next, pb::Heartbeat()) : absl::OkStatus();
}

void StageLoop::NoteSend() {
  const EndpointCounters counters = endpoint_->counters();
  if (counters.last_send_start_us == noted_send_us_) return;
  noted_send_us_ = counters.last_send_start_us;
  const std::lock_guard<std::mutex> lock(send_mu_);
  last_send_ = {counters.last_send_start_us, static_cast<int64_t>(counters.last_send_us)};
}

absl::StatusOr<bool> StageLoop::CarryWeights() {
  const int64_t now = now_us_();
  if (!stream_->waiting()) answered_us_ = now;
  bool sent = false;
  while (true) {
    ASSIGN_OR_RETURN(std::shared_ptr<const FrameBuffer> request, stream_->NextRequest());
    if (request == nullptr) break;
    RETURN_IF_ERROR(endpoint_->Send(Channel::kWeights, kCoordinatorRank, std::move(request)));
    sent = true;
  }
  const int64_t silent_us = now - answered_us_;
  if (silent_us <= static_cast<int64_t>(assignment_.weights_timeout_us())) return sent;
  return absl::UnavailableError(
      absl::StrCat("asked the coordinator for weights, and none came for ", silent_us / 1000000, " s"));
}

absl::Status StageLoop::DeliverWeights(ReceivedFrame frame) {
  answered_us_ = now_us_();
  const absl::Status taken = stream_->Deliver(std::move(frame));
  // Damaged on its way: a new job may do better.
  if (absl::IsInvalidArgument(taken)) {
    return absl::UnavailableError(absl::StrCat("received bad weights: ", taken.message()));
  }
  return taken;
}

absl::Status StageLoop::AnnounceReady() {
  if (assignment_.stage() > 0) {  // the first one's is open
    RETURN_IF_ERROR(endpoint_->OpenReceive(Channel::kSetup, assignment_.previous_rank(), kMaxTelemetryFrameBytes, 1));
  }
  // One more receive than the window, so that a frame never waits for its buffer.
  RETURN_IF_ERROR(endpoint_->OpenReceive(Channel::kStep, assignment_.previous_rank(),
                                         computation_.limits().MaxStepFrameBytes(), assignment_.in_flight() + 1));
  return SendControl(Channel::kTelemetry, kCoordinatorRank, computation_.Ready());
}

absl::Status StageLoop::SendControl(Channel channel, int destination, const ControlBody& body) {
  std::shared_ptr<FrameBuffer> buffer = control_pool_.Acquire();
  RETURN_IF_ERROR(EncodeControl(EpochOf(assignment_), body, buffer.get()));
  return endpoint_->Send(channel, destination, std::move(buffer));
}

absl::Status StageLoop::SendHeartbeat() {
  pb::Heartbeat heartbeat = computation_.Progress();
  heartbeat.set_resident_bytes(ResidentBytes());
  const EndpointCounters counters = endpoint_->counters();
  heartbeat.set_send_us(counters.send_us);
  heartbeat.set_bytes_sent(counters.bytes_sent);
  heartbeat.set_wait_us(wait_us_);
  return SendControl(Channel::kTelemetry, kCoordinatorRank, heartbeat);
}

}  // namespace stagecoach
