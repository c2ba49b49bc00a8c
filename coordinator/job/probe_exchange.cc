#include "coordinator/job/probe_exchange.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/frame.h"
#include "common/wire/handshake.h"

namespace stagecoach {
namespace {

constexpr int64_t kProbeProgressUs = 500000;
constexpr int64_t kCheckUs = 1000000;
constexpr int64_t kWorkUs = 300000000;
constexpr int64_t kNoLimitUs = int64_t{1} << 60;

absl::StatusCode CodeOf(int code) {
  const bool known =
      code > static_cast<int>(absl::StatusCode::kOk) && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kInternal;
}

}  // namespace

ProbeExchange::ProbeExchange(Endpoint* endpoint, const std::vector<pb::Hello>& stages, EngineChannel* channel)
    : endpoint_(endpoint),
      stages_(stages),
      channel_(channel),
      pool_(kMaxSetupFrameBytes, 0),
      roster_(stages, kNoLimitUs, MonotonicUs()) {}

absl::Status ProbeExchange::Open() {
  for (const pb::Hello& stage : stages_) {
    RETURN_IF_ERROR(endpoint_->OpenReceive(Channel::kTelemetry, stage.rank(), kMaxTelemetryFrameBytes, 2));
    RETURN_IF_ERROR(OpenPingAnswers(endpoint_, stage.rank()));
  }
  return absl::OkStatus();
}

std::string ProbeExchange::NameOf(int stage) const {
  return StageName(stage, stages_[static_cast<size_t>(stage)].host());
}

absl::Status ProbeExchange::Order(int stage, pb::ProbeOrder order) {
  if (open_.empty()) answers_.clear();
  order.set_number(++last_order_);
  std::shared_ptr<FrameBuffer> buffer = pool_.Acquire();
  RETURN_IF_ERROR(EncodeControl({}, order, buffer.get()));
  RETURN_IF_ERROR(endpoint_->Send(Channel::kSetup, RankOf(stage), std::move(buffer)));
  if (!order.has_end()) open_[stage] = last_order_;
  return absl::OkStatus();
}

absl::Status ProbeExchange::TurnWhile(absl::FunctionRef<bool()> goes_on, int64_t most_us) {
  const int64_t deadline_us = MonotonicUs() + most_us;
  while (goes_on() && MonotonicUs() < deadline_us) RETURN_IF_ERROR(Turn());
  return absl::OkStatus();
}

absl::Status ProbeExchange::AwaitAnswers(int64_t most_us) {
  RETURN_IF_ERROR(TurnWhile([this] { return !open_.empty(); }, most_us));
  open_.clear();
  return absl::OkStatus();
}

absl::Status ProbeExchange::AwaitAll() {
  RETURN_IF_ERROR(TurnWhile([this] { return !open_.empty(); }, kWorkUs));
  if (open_.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(NameOf(open_.begin()->first),
                                             " has not measured what it was told to within ",
                                             absl::FormatDuration(absl::Microseconds(kWorkUs))));
}

absl::Status ProbeExchange::AwaitWork() {
  RETURN_IF_ERROR(AwaitAll());
  for (const auto& [stage, answer] : answers_) {
    if (answer.code() == 0) continue;
    return absl::Status(CodeOf(answer.code()), absl::StrCat(NameOf(stage), ": ", answer.error()));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ProbeExchange::AwaitMeter(LinkMeter* meter, int64_t most_us) {
  meter_ = meter;
  absl::Status status = meter->Begin();
  if (status.ok()) status = TurnWhile([meter] { return !meter->done(); }, most_us);
  meter_ = nullptr;
  RETURN_IF_ERROR(status);
  return meter->done();
}

absl::Status ProbeExchange::Turn() {
  absl::StatusOr<std::optional<ReceivedFrame>> polled = endpoint_->Poll();
  absl::Status status = polled.status();
  const bool arrived = polled.ok() && polled->has_value();
  if (arrived) status = Take(**polled);
  if (absl::IsInvalidArgument(status)) {  // nothing that a user could change
    return absl::UnavailableError(absl::StrCat("received a bad frame: ", status.message()));
  }
  RETURN_IF_ERROR(status);
  if (arrived) {
    ladder_.Progressed();
  } else {
    ladder_.Wait();
  }
  const int64_t now = MonotonicUs();
  if (now >= next_progress_us_) RETURN_IF_ERROR(SendProgress());
  if (now < next_check_us_) return absl::OkStatus();
  next_check_us_ = now + kCheckUs;
  return roster_.CheckAlive(now, -1);
}

absl::Status ProbeExchange::Take(const ReceivedFrame& frame) {
  const int stage = roster_.StageOfRank(frame.source()).value();  // no other receive is open
  if (frame.channel() == Channel::kResult) return meter_ != nullptr ? meter_->Take(frame) : absl::OkStatus();
  ASSIGN_OR_RETURN(const ControlBody body, DecodeControl({}, frame.bytes()));
  if (const auto* heartbeat = std::get_if<pb::Heartbeat>(&body)) {
    if (heartbeat->stage() == stage) roster_.Heard(*heartbeat, MonotonicUs());
    return absl::OkStatus();
  }
  if (const auto* failure = std::get_if<pb::StageFailure>(&body)) {
    return absl::Status(CodeOf(failure->code()), failure->message());
  }
  const auto* answer = std::get_if<pb::ProbeAnswer>(&body);
  if (answer == nullptr || answer->stage() != stage) {
    return absl::InternalError(absl::StrCat(NameOf(stage), " sent what is no answer of its own"));
  }
  const auto open = open_.find(stage);
  if (open == open_.end() || open->second != answer->number()) return absl::OkStatus();  // given up before
  open_.erase(open);
  answers_[stage] = *answer;
  return absl::OkStatus();
}

absl::Status ProbeExchange::ReportProgress(double done, const std::string& doing) {
  done_ = done;
  doing_ = doing;
  return SendProgress();
}

absl::Status ProbeExchange::SendProgress() {
  next_progress_us_ = MonotonicUs() + kProbeProgressUs;
  RETURN_IF_ERROR(channel_->CheckPeer());
  pb::ProbeReport report;
  report.set_done(done_);
  report.set_doing(doing_);
  return Send(report);
}

absl::Status ProbeExchange::Send(const pb::ProbeReport& report) {
  if (report.complete()) next_progress_us_ = kNoLimitUs;  // it is the last one
  pb::EngineMessage message;
  *message.mutable_probe_report() = report;
  return channel_->Send(message);
}

absl::Status ProbeExchange::AwaitShutdown() {
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<pb::EngineMessage> message, channel_->Receive());
    if (message.has_value() && message->has_shutdown()) return absl::OkStatus();
    RETURN_IF_ERROR(Turn());
  }
}

absl::Status ProbeExchange::Drain(int64_t most_us) {
  return TurnWhile([this] { return endpoint_->SendsPending(); }, most_us);
}

}  // namespace stagecoach
