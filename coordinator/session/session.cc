#include "coordinator/session/session.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/job_proto.h"
#include "coordinator/request/sequence.h"
#include "coordinator/session/run_summary.h"

namespace stagecoach {
namespace {

// However long a wait took by the clock (the front may have been stopped), at most this much counts as silence.
constexpr absl::Duration kMostSilencePerWait = absl::Seconds(1);
constexpr char kFinished[] = "the session is finished and takes no more requests";
// Beyond the stage timeout, for the work in flight when the job was told to end.
constexpr absl::Duration kShutdownSlack = absl::Seconds(10);

absl::StatusCode CodeOf(const pb::JobFailed& failed) {
  const bool known = failed.code() > static_cast<int>(absl::StatusCode::kOk) &&
                     failed.code() <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return known ? static_cast<absl::StatusCode>(failed.code()) : absl::StatusCode::kInternal;
}

// With an engine in this process, under somebody else's launcher: nothing to supervise, and a loss is final.
class JoinedSession : public Session {
 public:
  JoinedSession(int descriptor, pb::ConfigureJob job) : Session(std::move(job)) { Connect(descriptor); }

 protected:
  absl::Status OnLost(const std::string& what) override {
    RecordLoss(lost_stage(), what);
    CloseJob();
    return absl::UnavailableError(what.empty() ? "the engine went away" : what);
  }
};

}  // namespace

absl::Status Session::Submit(RequestId id, GenerationRequest request) {
  const absl::Status taken = Take(id, std::move(request));
  if (job_ready_) SendSubmissions();
  return taken;
}

absl::Status Session::SubmitAll(RequestId first, std::vector<GenerationRequest> requests) {
  absl::Status taken;
  for (GenerationRequest& request : requests) {
    if (taken.ok()) taken = Take(first++, std::move(request));
  }
  if (job_ready_) SendSubmissions();
  return taken;
}

absl::Status Session::Take(RequestId id, GenerationRequest request) {
  if (finished_) return absl::FailedPreconditionError(kFinished);
  if (first_ready_.has_value()) {
    RETURN_IF_ERROR(CheckRoom(static_cast<int64_t>(request.prompt.size()), request.max_new_tokens,
                              {ready_.context(), ready_.blocks(), ready_.block_tokens()}));
  }
  RETURN_IF_ERROR(journal_.Add(id, std::move(request)));
  if (job_ready_) unsent_.push_back(id);
  return absl::OkStatus();
}

void Session::Cancel(RequestId request) {
  if (!journal_.Cancel(request)) return;
  if (!given_.contains(request)) {  // no job knows of it
    TakeEvent(journal_.FinishCancelled(request));
    return;
  }
  pb::EngineMessage message;
  message.mutable_cancel()->set_request(request);
  SendToEngine(message);
}

absl::StatusOr<std::optional<SessionEvent>> Session::Next(absl::Duration timeout) {
  RETURN_IF_ERROR(AwaitEvents(timeout));
  if (events_.empty()) return std::nullopt;
  SessionEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

absl::StatusOr<std::vector<SessionEvent>> Session::NextBatch(absl::Duration timeout) {
  RETURN_IF_ERROR(AwaitEvents(timeout));
  std::vector<SessionEvent> events(std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
  events_.clear();
  return events;
}

absl::Status Session::AwaitEvents(absl::Duration timeout) {
  const int64_t start_us = MonotonicUs();
  std::optional<Wake> wake;
  while (true) {
    // What was produced before the end is delivered before the end is told.
    if (!events_.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(final_);
    const absl::Duration left = timeout - absl::Microseconds(MonotonicUs() - start_us);
    if (std::exchange(changed_, false) || wake == Wake::kInterrupted ||
        (wake.has_value() && left <= absl::ZeroDuration())) {
      return absl::OkStatus();
    }
    final_ = Prepare();
    if (!final_.ok()) continue;
    wake = Wait(std::max(left, absl::ZeroDuration()));
    const absl::Status pumped = Pump();
    if (final_.ok()) final_ = pumped;  // a send within it may have failed for good
  }
}

Session::Wake Session::Wait(absl::Duration most) {
  const int64_t start_us = MonotonicUs();
  waits_.clear();
  waits_.push_back({watched_, POLLIN, 0});  // poll() skips negative descriptors
  const bool writes = channel_ != nullptr && channel_->WritePending();
  const int events = (reads_ ? POLLIN : 0) | (writes ? POLLOUT : 0);
  waits_.push_back({channel_ != nullptr ? channel_->descriptor() : -1, static_cast<short>(events), 0});
  AddWaits(&waits_);
  const int64_t milliseconds =
      absl::ToInt64Milliseconds(absl::Ceil(std::min(most, longest_wait()), absl::Milliseconds(1)));
  const int ready = poll(waits_.data(), waits_.size(), static_cast<int>(milliseconds));
  const bool interrupted = ready < 0 && errno == EINTR;
  if (ready < 0) {
    for (pollfd& wait : waits_) wait.revents = 0;
  }
  waited_ = absl::Microseconds(std::max<int64_t>(MonotonicUs() - start_us, 1));
  if (interrupted || waits_[0].revents != 0) return Wake::kInterrupted;
  return ready > 0 ? Wake::kActivity : Wake::kTimeout;
}

absl::Status Session::Pump() {
  if (reads_) silence_ += std::min(waited_, kMostSilencePerWait);
  received_ = false;
  if (channel_ != nullptr && (waits_[1].revents & POLLOUT) != 0) {
    channel_->Flush().IgnoreError();  // a peer that is gone shows when we read, after everything it sent
  }
  // The end of the connection is read even by those who do not read now.
  if ((waits_[1].revents & ~POLLOUT) != 0) RETURN_IF_ERROR(ReceiveSome());
  if (!unsent_.empty()) SendSubmissions();  // whichever of these made room
  return Supervise(waited_, absl::MakeConstSpan(waits_).subspan(2));
}

// What one read of the socket brings: a front that is slow leaves the rest to the engine, which then waits.
absl::Status Session::ReceiveSome() {
  while (channel_ != nullptr) {
    absl::StatusOr<std::optional<pb::EngineMessage>> message = channel_->Receive();
    if (absl::IsUnavailable(message.status())) return OnLost("");
    if (!message.ok()) return absl::InternalError(message.status().message());
    if (!message->has_value()) return absl::OkStatus();
    heard_ = true;
    received_ = true;
    silence_ = absl::ZeroDuration();
    const bool more = channel_->Buffered();
    RETURN_IF_ERROR(Handle(**message));
    if (!more) return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Session::Handle(const pb::EngineMessage& message) {
  switch (message.body_case()) {
    case pb::EngineMessage::kProgress:
      progress_ = message.progress();
      changed_ = true;
      return absl::OkStatus();
    case pb::EngineMessage::kProbeReport:
      probe_report_ = message.probe_report();
      changed_ = true;
      return absl::OkStatus();
    case pb::EngineMessage::kReady: return HandleReady(message.ready());
    case pb::EngineMessage::kEvents: return HandleEvents(message.events());
    case pb::EngineMessage::kStatus:
      status_ = message.status();
      ended_ = status_.ended();
      return absl::OkStatus();
    case pb::EngineMessage::kFailed: return HandleFailed(message.failed());
    default:
      return absl::InternalError(absl::StrCat("the engine sent a message of kind ",
                                              static_cast<int>(message.body_case()), ", which engines do not send"));
  }
}

absl::Status Session::HandleEvents(const pb::RequestEvents& events) {
  for (const pb::TokenDelta& delta : events.tokens()) {
    ASSIGN_OR_RETURN(std::optional<SessionEvent> event, journal_.RecordTokens(delta));
    if (event.has_value()) event->at_us = events.at_us();
    TakeEvent(std::move(event));
  }
  for (const pb::PrefillProgress& progress : events.prefills()) {
    ASSIGN_OR_RETURN(std::optional<SessionEvent> event, journal_.RecordPrefill(progress));
    if (event.has_value()) events_.push_back(*std::move(event));
  }
  for (const pb::RequestFinished& finished : events.finished()) {
    if (finished.reason() == pb::RequestFinished::REASON_REJECTED && journal_.answered(finished.request())) {
      return absl::InternalError(
          absl::StrCat("the engine rejected a request that was being answered: ", finished.error()));
    }
    ASSIGN_OR_RETURN(std::optional<SessionEvent> event, journal_.RecordFinished(finished));
    TakeEvent(std::move(event));
  }
  return absl::OkStatus();
}

void Session::TakeEvent(std::optional<SessionEvent> event) {
  if (!event.has_value()) return;
  const RequestId request = event->request;
  const bool ended = event->finished.has_value();
  events_.push_back(*std::move(event));
  if (ended) given_.erase(request);
  if (ended ? suspects_.Ended(request) : suspects_.Progressed(request)) ReleaseHeld();
}

absl::Status Session::HandleReady(const pb::JobReady& ready) {
  if (job_ready_) return absl::InternalError("the engine said twice that the job is ready");
  if (!first_ready_.has_value()) {
    first_ready_ = ready;
    context_given_ = job_.context() > 0;
    *job_.mutable_fingerprints() = ready.fingerprints();
    job_.set_context(ready.context());  // however much memory is free at a relaunch
    job_.set_bf16_dot(ready.bf16_dot());
    job_.set_step_log_append(true);
    job_.set_trace_append(true);
  } else if (FromProto(first_ready_->fingerprints()) != FromProto(ready.fingerprints())) {
    return absl::DataLossError(
        absl::StrCat("model file '", job_.model_path(), "' changed while the job was down; start again"));
  } else if (const int64_t needed = NeededKvTokens(), pool = int64_t{ready.blocks()} * ready.block_tokens();
             needed > pool) {  // for what was taken since this job was told what it must hold
    return OnLost(absl::StrCat("the KV cache has room for ", pool,
                               " tokens, what was accepted while the job came up needs ", needed));
  }
  ready_ = ready;
  most_pool_tokens_ = std::max(most_pool_tokens_, int64_t{ready.blocks()} * ready.block_tokens());
  job_ready_ = true;
  changed_ = true;
  const int64_t now_us = MonotonicUs();
  for (StageLoss& loss : losses_) {
    if (loss.recovered_us == 0) loss.recovered_us = now_us;
  }
  const std::vector<RequestId> unfinished = journal_.OrderOfResubmission();
  unsent_.assign(unfinished.begin(), unfinished.end());
  SendSubmissions();
  return absl::OkStatus();
}

absl::Status Session::HandleFailed(const pb::JobFailed& failed) {
  if (failed.has_stage()) lost_stage_ = failed.stage();
  // Memory that is short at a relaunch may come back, and requests that were taken wait for it.
  const bool short_of_memory = was_ready() && CodeOf(failed) == absl::StatusCode::kResourceExhausted;
  if (failed.lost() || short_of_memory || GoesOnWithout(failed)) return OnLost(failed.message());
  return absl::Status(CodeOf(failed),
                      failed.message().empty() ? "the engine failed without a reason" : failed.message());
}

void Session::SendToEngine(const pb::EngineMessage& message) {
  if (channel_ != nullptr) HandleSent(channel_->Send(message));
}

void Session::HandleSent(const absl::Status& sent) {
  // A peer that is gone shows when we read; anything else is ours.
  if (!sent.ok() && !absl::IsUnavailable(sent) && final_.ok()) final_ = sent;
}

// As many as the engine keeps up with, in one go; the rest follows when it has read some.
void Session::SendSubmissions() {
  pb::EngineMessage message;
  while (!unsent_.empty() && !engine_behind_.Waits(channel_->pending_bytes())) {
    const RequestId request = unsent_.front();
    unsent_.pop_front();
    if (!journal_.unfinished(request)) continue;  // cancelled
    if (!suspects_.MayRun(request)) {
      held_.push_back(request);
      continue;
    }
    *message.mutable_submit() = journal_.Submission(request);
    given_.insert(request);
    HandleSent(channel_->Queue(message));
  }
  HandleSent(channel_->Flush());
}

std::optional<int> Session::StageOfRank(int rank) const {
  if (!job_ready_) return std::nullopt;
  for (const pb::StageSummary& stage : ready_.stages()) {
    if (stage.rank() == rank) return stage.stage();
  }
  return std::nullopt;
}

void Session::ReleaseHeld() {
  if (!job_ready_) return;
  unsent_.insert(unsent_.end(), held_.begin(), held_.end());
  held_.clear();
  SendSubmissions();
}

// A relaunch must hold the largest request that was taken, and a context that was asked for as far as the first job
// did. A context that came of the memory of that time is no promise.
int64_t Session::NeededKvTokens() const {
  if (!first_ready_.has_value()) return 0;
  const int64_t context = first_ready_->context();
  const int64_t first_pool = int64_t{first_ready_->blocks()} * first_ready_->block_tokens();
  return std::max(context_given_ ? std::min(context, first_pool) : 0, journal_.LargestNeed(context, most_pool_tokens_));
}

void Session::Connect(int descriptor) {
  Disconnect();
  ended_ = false;
  channel_ = std::make_unique<EngineChannel>(descriptor);
  job_.set_min_kv_tokens(NeededKvTokens());
  pb::EngineMessage message;
  *message.mutable_configure() = job_;
  SendToEngine(message);
}

void Session::Disconnect() {
  channel_.reset();
  unsent_.clear();
  held_.clear();
  given_.clear();
  engine_behind_ = kFrontToEngine;
  heard_ = false;
  job_ready_ = false;
  silence_ = absl::ZeroDuration();
  progress_.Clear();
  lost_stage_.reset();
}

void Session::RecordLoss(std::optional<int> stage, const std::string& what) {
  StageLoss loss = {.number = ++losses_noted_, .what = what, .at_us = MonotonicUs()};
  if (stage.has_value() && *stage >= 0 && *stage < ready_.stages_size()) {
    loss.stage = stage;
    // A job that was not ready may have been elsewhere.
    if (job_ready_) loss.host = ready_.stages(*stage).host();
  }
  if (losses_.size() == kMostLosses) losses_.erase(losses_.begin());
  losses_.push_back(std::move(loss));
  changed_ = true;
}

void Session::CloseJob(absl::string_view crash) {
  const std::vector<RequestId> given(given_.begin(), given_.end());
  Disconnect();
  if (const std::optional<RequestId> guilty = suspects_.Lost(!crash.empty(), given); guilty.has_value()) {
    events_.push_back(
        journal_.FinishFailed(*guilty, absl::StrCat("computing it ended a stage each time, the last time: ", crash)));
  }
  if (status_.has_statistics()) AddStatistics(status_.statistics(), &sum_);
  status_.Clear();
  for (SessionEvent& event : journal_.FinishComplete(ready_.context())) TakeEvent(std::move(event));
}

pb::JobStatistics Session::statistics() const {
  pb::JobStatistics sum = sum_;
  if (status_.has_statistics()) AddStatistics(status_.statistics(), &sum);
  return sum;
}

absl::StatusOr<pb::JobStatistics> Session::Finish() {
  absl::Status ended = final_;
  watched_ = -1;
  reads_ = true;
  if (ended.ok() && job_ready_) {
    finishing_ = true;
    ended = AwaitStatistics();
    if (ended.ok()) AwaitJobEnd();
  }
  CloseJob();
  finished_ = true;
  final_ = absl::FailedPreconditionError(kFinished);
  if (sum_.stages_size() > 0) return sum_;
  RETURN_IF_ERROR(ended);
  return absl::UnavailableError("the job ended before it reported statistics");
}

absl::Status Session::AwaitStatistics() {
  pb::EngineMessage message;
  message.mutable_shutdown();
  SendToEngine(message);
  const absl::Duration most = absl::Seconds(job_.stage_timeout_s()) + kShutdownSlack;
  const int64_t start_us = MonotonicUs();
  while (true) {
    const absl::Duration left = most - absl::Microseconds(MonotonicUs() - start_us);
    if (left <= absl::ZeroDuration()) break;
    Wait(left);
    absl::Status pumped = Pump();
    if (pumped.ok()) pumped = final_;
    if (ended_) return absl::OkStatus();  // even if the connection has ended since
    RETURN_IF_ERROR(pumped);
  }
  return absl::UnavailableError("the job did not end in order");
}

std::unique_ptr<Session> Session::Join(int descriptor, pb::ConfigureJob job) {
  return std::make_unique<JoinedSession>(descriptor, std::move(job));
}

}  // namespace stagecoach
