#include "coordinator/job/channel_front.h"

#include <poll.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/wire/step_messages.h"

namespace stagecoach {
namespace {

SubmitCommand CommandOf(const pb::SubmitRequest& request) {
  SubmitCommand command;
  command.request = request.request();
  SequenceSpec& spec = command.spec;
  spec.prompt.assign(request.prompt().begin(), request.prompt().end());
  spec.output.assign(request.output().begin(), request.output().end());
  spec.sampling = FromProto(request.sampling());
  spec.max_new_tokens = request.max_new_tokens();
  spec.stop_tokens.assign(request.stop_tokens().begin(), request.stop_tokens().end());
  spec.score_from = request.score_prompt() ? request.score_from() : -1;
  command.reports_progress = request.report_progress();
  spec.salt = request.cache_salt();
  spec.tenant = request.tenant();
  if (request.has_weight()) spec.weight = request.weight();
  if (request.has_priority_class()) spec.priority_class = static_cast<PriorityClass>(request.priority_class());
  return command;
}

pb::RequestFinished::Code CodeOf(const RequestEnd& end) {
  if (!end.reason.has_value())
    return end.no_room ? pb::RequestFinished::CODE_NO_ROOM : pb::RequestFinished::CODE_INVALID;
  return end.reason == FinishReason::kInvalidLogits ? pb::RequestFinished::CODE_INVALID_LOGITS
                                                    : pb::RequestFinished::CODE_UNSPECIFIED;
}

pb::RequestCost ToProto(const RequestCost& cost) {
  pb::RequestCost out;
  out.set_queue_us(cost.queue_us);
  out.set_prefill_us(cost.prefill_us);
  out.set_cached_tokens(cost.cached_tokens);
  out.set_preemptions(cost.preemptions);
  return out;
}

pb::RequestFinished::Reason ReasonOf(const std::optional<FinishReason>& reason) {
  if (!reason.has_value()) return pb::RequestFinished::REASON_REJECTED;
  switch (*reason) {
    case FinishReason::kStop: return pb::RequestFinished::REASON_STOP;
    case FinishReason::kLength: return pb::RequestFinished::REASON_LENGTH;
    case FinishReason::kCancelled: return pb::RequestFinished::REASON_CANCELLED;
    case FinishReason::kScored: return pb::RequestFinished::REASON_SCORED;
    case FinishReason::kInvalidLogits: return pb::RequestFinished::REASON_FAILED;
  }
  return pb::RequestFinished::REASON_UNSPECIFIED;
}

}  // namespace

absl::StatusOr<std::optional<FrontCommand>> ChannelFront::Next() {
  // One read of the socket a turn.
  if (std::exchange(drained_, false)) return std::optional<FrontCommand>();
  ASSIGN_OR_RETURN(const std::optional<pb::EngineMessage> message, channel_->Receive());
  if (!message.has_value()) return std::optional<FrontCommand>();
  drained_ = !channel_->Buffered();
  switch (message->body_case()) {
    case pb::EngineMessage::kSubmit: return std::optional<FrontCommand>(CommandOf(message->submit()));
    case pb::EngineMessage::kCancel: return std::optional<FrontCommand>(CancelCommand{message->cancel().request()});
    case pb::EngineMessage::kWatch: return std::optional<FrontCommand>(WatchCommand{message->watch().often()});
    case pb::EngineMessage::kShutdown: return std::optional<FrontCommand>(ShutdownCommand());
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected message ", static_cast<int>(message->body_case()), " from the front"));
  }
}

absl::Status ChannelFront::Publish(const RequestEvents& events) {
  pb::EngineMessage message;
  pb::RequestEvents* out = message.mutable_events();
  out->set_at_us(events.at_us);
  for (const RequestDelta& delta : events.deltas) {
    pb::TokenDelta* tokens = out->add_tokens();
    tokens->set_request(delta.request);
    for (const SampledToken& token : delta.tokens) *tokens->add_tokens() = ToProto(token);
    for (const TargetLogprobs& scores : delta.scores) *tokens->add_scores() = ToProto(scores);
    for (const RowChecksums& checksums : delta.checksums) *tokens->add_checksums() = ToProto(checksums);
    if (delta.cost.has_value()) *tokens->mutable_cost() = ToProto(*delta.cost);
  }
  for (const RequestEnd& end : events.ends) {
    pb::RequestFinished* finished = out->add_finished();
    finished->set_request(end.request);
    finished->set_reason(ReasonOf(end.reason));
    finished->set_error(end.error);
    finished->set_code(CodeOf(end));
    *finished->mutable_cost() = ToProto(end.cost);
  }
  for (const PromptProgress& prompt : events.prompts) {
    pb::PrefillProgress* progress = out->add_prefills();
    progress->set_request(prompt.request);
    progress->set_processed(prompt.processed);
    progress->set_total(prompt.total);
    progress->set_cached(prompt.cached);
  }
  return channel_->Send(message);
}

absl::Status ChannelFront::Report(const EngineStatus& status) {
  if (channel_->WritePending()) return absl::OkStatus();  // it has not read what it has
  pb::EngineMessage message;
  *message.mutable_status() = report_->Status(status);
  return channel_->Send(message);
}

bool ChannelFront::Wait(int64_t most_us) {
  pollfd descriptor{.fd = channel_->descriptor(), .events = POLLIN, .revents = 0};
  if (channel_->WritePending()) descriptor.events |= POLLOUT;
  return poll(&descriptor, 1, static_cast<int>(most_us / 1000)) > 0;
}

}  // namespace stagecoach
