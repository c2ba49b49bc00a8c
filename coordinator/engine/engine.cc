#include "coordinator/engine/engine.h"

#include <poll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/step/step_check.h"
#include "common/wire/frame.h"
#include "common/wire/step_messages.h"

namespace stagecoach {
namespace {

constexpr int64_t kAliveUs = 1000000;  // the front hears something at least this often
constexpr int kIdleWaitMs = 250;       // while idle: heartbeats are read this often

pb::RequestFinished::Reason ReasonOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return pb::RequestFinished::REASON_STOP;
    case FinishReason::kLength: return pb::RequestFinished::REASON_LENGTH;
    case FinishReason::kCancelled: return pb::RequestFinished::REASON_CANCELLED;
    case FinishReason::kScored: return pb::RequestFinished::REASON_SCORED;
    case FinishReason::kInvalidLogits: return pb::RequestFinished::REASON_FAILED;
  }
  return pb::RequestFinished::REASON_UNSPECIFIED;
}

SequenceSpec SpecOf(const pb::SubmitRequest& request, SequenceId id) {
  SequenceSpec spec;
  spec.id = id;
  spec.prompt.assign(request.prompt().begin(), request.prompt().end());
  spec.output.assign(request.output().begin(), request.output().end());
  spec.sampling = FromProto(request.sampling());
  spec.max_new_tokens = request.max_new_tokens();
  spec.stop_tokens.assign(request.stop_tokens().begin(), request.stop_tokens().end());
  spec.score_from = request.score_prompt() ? request.score_from() : -1;
  return spec;
}

}  // namespace

Engine::Engine(Pipeline* pipeline, const SchedulerOptions& options, int64_t vocab, EngineChannel* front,
               StepLog* step_log)
    : pipeline_(pipeline),
      front_(front),
      step_log_(step_log),
      vocab_(vocab),
      scheduler_(options),
      bubble_(pipeline->stages()) {}

absl::Status Engine::Step() {
  RETURN_IF_ERROR(TakeMessages());
  if (!front_behind_.Waits(front_->pending_bytes())) {
    while (std::optional<MicroBatch> batch = scheduler_.Next()) RETURN_IF_ERROR(Submit(*std::move(batch)));
  }
  ASSIGN_OR_RETURN(const std::optional<StepResult> result, pipeline_->Poll());
  if (result.has_value()) RETURN_IF_ERROR(TakeResult(*result));
  if (events_.has_events()) return SayEvents();
  if (result.has_value()) return absl::OkStatus();
  Rest();
  // A front that has something to read hears us.
  if (front_->WritePending() || MonotonicUs() - last_said_us_ < kAliveUs) return front_->Flush();
  pb::EngineMessage alive;
  alive.mutable_alive();
  return Say(alive);
}

absl::Status Engine::TakeMessages() {
  do {
    ASSIGN_OR_RETURN(const std::optional<pb::EngineMessage> message, front_->Receive());
    if (!message.has_value()) return absl::OkStatus();
    ladder_.Progressed();
    switch (message->body_case()) {
      case pb::EngineMessage::kSubmit: RETURN_IF_ERROR(TakeRequest(message->submit())); break;
      case pb::EngineMessage::kCancel: RETURN_IF_ERROR(CancelRequest(message->cancel().request())); break;
      case pb::EngineMessage::kShutdown: shutting_down_ = true; return absl::OkStatus();
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("unexpected message ", static_cast<int>(message->body_case()), " from the front"));
    }
  } while (front_->Buffered());
  return absl::OkStatus();
}

absl::Status Engine::TakeRequest(const pb::SubmitRequest& request) {
  if (sequence_of_.contains(request.request())) {
    return absl::InvalidArgumentError(absl::StrCat("the front submitted request ", request.request(), " twice"));
  }
  const SequenceId id = next_sequence_++;
  absl::Status status = CheckTokenIds("prompt", request.prompt(), vocab_);
  if (status.ok()) status = CheckTokenIds("output", request.output(), vocab_);
  SequenceSpec spec = SpecOf(request, id);
  if (status.ok()) status = CheckSamplingParams(spec.sampling, vocab_);
  if (status.ok()) status = scheduler_.Add(std::move(spec));
  if (absl::IsFailedPrecondition(status)) {
    Finish(request.request(), pb::RequestFinished::REASON_LENGTH, "");
    return absl::OkStatus();
  }
  if (!status.ok()) {
    Finish(request.request(), pb::RequestFinished::REASON_REJECTED, status.message());
    return absl::OkStatus();
  }
  request_of_[id] = request.request();
  sequence_of_[request.request()] = id;
  return absl::OkStatus();
}

absl::Status Engine::CancelRequest(RequestId request) {
  const auto entry = sequence_of_.find(request);
  if (entry == sequence_of_.end()) return absl::OkStatus();  // it finished while the message was on its way
  RETURN_IF_ERROR(scheduler_.Cancel(entry->second));
  Finish(request, pb::RequestFinished::REASON_CANCELLED, "");
  return absl::OkStatus();
}

absl::Status Engine::Submit(MicroBatch batch) {
  batch.number = next_number_++;
  RETURN_IF_ERROR(pipeline_->Submit(batch));
  bubble_.Submitted(batch.number, MonotonicUs());
  in_flight_.push_back({std::move(batch), TraceUs()});
  ladder_.Progressed();
  return absl::OkStatus();
}

absl::Status Engine::TakeResult(const StepResult& result) {
  ladder_.Progressed();
  const int64_t arrived_us = MonotonicUs();
  bubble_.Confirmed(result, arrived_us);
  if (in_flight_.empty())
    return absl::InternalError(absl::StrCat("a result for micro-batch ", result.number, " that nobody submitted"));
  if (step_log_ != nullptr) step_log_->Write(in_flight_.front().batch, result, in_flight_.front().submit_us, TraceUs());
  in_flight_.pop_front();
  ASSIGN_OR_RETURN(const std::vector<SequenceEvent> events, scheduler_.Confirm(result));
  for (const SequenceEvent& event : events) RETURN_IF_ERROR(TakeEvent(event));
  if (events_.has_events()) events_.mutable_events()->set_at_us(arrived_us);
  return absl::OkStatus();
}

absl::Status Engine::TakeEvent(const SequenceEvent& event) {
  const auto entry = request_of_.find(event.sequence);
  if (entry == request_of_.end()) return absl::OkStatus();  // cancelled
  const RequestId request = entry->second;
  if (!event.tokens.empty() || !event.scores.empty()) {
    pb::TokenDelta* delta = events_.mutable_events()->add_tokens();
    delta->set_request(request);
    for (const SampledToken& token : event.tokens) *delta->add_tokens() = ToProto(token);
    for (const TargetLogprobs& scores : event.scores) *delta->add_scores() = ToProto(scores);
  }
  if (preempt_at_output_ > 0 && !event.tokens.empty() && !event.finished.has_value()) {
    const Sequence* sequence = scheduler_.Find(event.sequence);
    if (sequence != nullptr && sequence->output().size() == sequence->spec().output.size() + preempt_at_output_) {
      const absl::Status preempted = scheduler_.Preempt(event.sequence);
      if (!absl::IsFailedPrecondition(preempted)) RETURN_IF_ERROR(preempted);  // it may have been preempted just now
    }
  }
  if (event.finished.has_value()) Finish(request, ReasonOf(*event.finished), event.error);
  return absl::OkStatus();
}

void Engine::Finish(RequestId request, pb::RequestFinished::Reason reason, absl::string_view error) {
  if (const auto entry = sequence_of_.find(request); entry != sequence_of_.end()) {
    request_of_.erase(entry->second);
    sequence_of_.erase(entry);
  }
  pb::RequestFinished* finished = events_.mutable_events()->add_finished();
  finished->set_request(request);
  finished->set_reason(reason);
  finished->set_error(std::string(error));
}

absl::Status Engine::SayEvents() {
  const absl::Status said = Say(events_);
  events_.clear_body();
  return said;
}

absl::Status Engine::Say(const pb::EngineMessage& message) {
  last_said_us_ = MonotonicUs();
  return front_->Send(message);
}

// With work in flight the ladder; idle for a second, sleep on the front's socket: a request ends it at once.
void Engine::Rest() {
  if (!in_flight_.empty() || !ladder_.idle()) {
    ladder_.Wait();
    return;
  }
  pollfd descriptor{.fd = front_->descriptor(), .events = POLLIN, .revents = 0};
  if (front_->WritePending()) descriptor.events |= POLLOUT;
  if (poll(&descriptor, 1, kIdleWaitMs) > 0) ladder_.Progressed();
}

absl::Status Engine::ShutDownStages() {
  MicroBatch last;
  last.number = next_number_++;
  last.shutdown = true;
  RETURN_IF_ERROR(pipeline_->Submit(last));
  in_flight_.push_back({std::move(last), TraceUs()});
  while (!in_flight_.empty()) {
    ASSIGN_OR_RETURN(const std::optional<StepResult> result, pipeline_->Poll());
    if (result.has_value()) {
      bubble_.Confirmed(*result,
                        MonotonicUs());  // work that a cancel left in flight was work; the shutdown frame is none
      if (step_log_ != nullptr && in_flight_.size() > 1) {
        step_log_->Write(in_flight_.front().batch, *result, in_flight_.front().submit_us, TraceUs());
      }
      in_flight_.pop_front();
    } else {
      ladder_.Wait();
    }
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
