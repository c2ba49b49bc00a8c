#include "coordinator/session/session_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kTurn = absl::Seconds(1);  // at most
constexpr int64_t kPublishUs = 100000;

using Finished = pb::RequestFinished;

SessionEvent Ended(RequestId id, Finished::Reason reason, Finished::Code code, absl::string_view error) {
  SessionEvent event = FinishedEvent(id, reason);
  event.finished->set_code(code);
  event.finished->set_error(std::string(error));
  return event;
}

Finished::Code CodeOfEnd(const absl::Status& ended) {
  if (absl::IsCancelled(ended)) return Finished::CODE_STOPPED;
  return absl::IsUnavailable(ended) ? Finished::CODE_STAGES_LOST : Finished::CODE_ENGINE;
}

}  // namespace

int64_t SessionStatus::context_tokens() const {
  const int64_t pool = int64_t{ready.blocks()} * ready.block_tokens();
  return std::min<int64_t>(ready.context(), pool + 1);  // the last token of an answer takes no room in the pool
}

SessionThread::SessionThread(std::unique_ptr<Session> session, SessionListener* listener)
    : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      listener_(listener),
      session_(std::move(session)),
      status_(std::make_shared<SessionStatus>()) {
  CHECK_GE(wake_, 0);
  session_->WatchDescriptor(wake_);
}

SessionThread::~SessionThread() {
  session_.reset();
  close(wake_);
}

absl::Status SessionThread::Submit(RequestId id, GenerationRequest request) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (ended_.has_value() && !ended_->ok()) return *ended_;
    if (ended_.has_value() || drain_ || stop_) {
      return absl::FailedPreconditionError("the session is ending and takes no more requests");
    }
    if (room_.has_value()) {
      RETURN_IF_ERROR(CheckRoom(static_cast<int64_t>(request.prompt.size()), request.max_new_tokens, *room_));
    }
    RETURN_IF_ERROR(CheckNextId(id, last_id_));
    last_id_ = id;
    unfinished_.emplace(id, request.priority_class);
    ++unfinished_by_class_[static_cast<size_t>(request.priority_class)];
    commands_.push_back({id, std::move(request)});
  }
  Wake();
  return absl::OkStatus();
}

void SessionThread::Cancel(RequestId id) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (!unfinished_.contains(id)) return;
    commands_.push_back({id, std::nullopt});
  }
  Wake();
}

void SessionThread::Ask(bool* flag) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    *flag = true;
  }
  Wake();
}

void SessionThread::Wake() {
  const int error = errno;
  const uint64_t one = 1;
  // It fails only when as many wake-ups wait as fit the counter.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
  errno = error;
}

void SessionThread::ClearWake() {
  uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t n = read(wake_, &wakes, sizeof(wakes));  // fails when there were none
}

void SessionThread::Consumed(int64_t tokens) {
  const int64_t left = unconsumed_.fetch_sub(tokens) - tokens;
  CHECK_GE(left, 0);
  if (left < kLowTokens && paused_) Wake();
}

int64_t SessionThread::TokensIn(const SessionEvent& event) {
  int64_t tokens = static_cast<int64_t>(event.tokens.size());
  for (const TargetLogprobs& scores : event.scores) tokens += static_cast<int64_t>(scores.logprobs.size());
  return tokens;
}

std::shared_ptr<const SessionStatus> SessionThread::Status() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return status_;
}

absl::Status SessionThread::Run() {
  absl::Status ended;
  while (ended.ok() && !Done()) ended = Turn();
  session_->ReadEngine(true);
  // What is wrong with the end of a job that has done its work is not the requests' business.
  session_->Finish().status().IgnoreError();
  // It may have brought the last events of what was stopped.
  absl::StatusOr<std::vector<SessionEvent>> last = session_->NextBatch(absl::ZeroDuration());
  if (last.ok()) Deliver(*std::move(last));
  if (ended.ok() && stopped_) ended = absl::CancelledError("the session was stopped");
  FailUnfinished(ended);
  Publish(/*now=*/true);
  return ended;
}

absl::Status SessionThread::Turn() {
  PauseOrRead();
  ASSIGN_OR_RETURN(std::vector<SessionEvent> events, session_->NextBatch(kTurn));
  ClearWake();  // before anything that a wake-up is for: whoever wakes us from here on gets a turn after this one
  Deliver(std::move(events));
  Publish(/*now=*/false);
  listener_->OnTurn();
  return absl::OkStatus();
}

// Takes what the other threads asked for; whether it is time to end.
bool SessionThread::Done() {
  TakeCommands();
  const std::lock_guard<std::mutex> lock(mu_);
  return stopped_ || (drained_ && unfinished_.empty());
}

void SessionThread::TakeCommands() {
  std::vector<Command> commands;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    commands.swap(commands_);
    drained_ = drain_;
    stopped_ = stop_;
  }
  std::vector<SessionEvent> refused;
  for (Command& command : commands) {
    if (!command.request.has_value()) {
      session_->Cancel(command.id);
    } else if (const absl::Status taken = session_->Submit(command.id, *std::move(command.request)); !taken.ok()) {
      // A job with less room has come up since the caller was told that it is taken.
      const auto code = absl::IsOutOfRange(taken) ? Finished::CODE_NO_ROOM : Finished::CODE_INVALID;
      refused.push_back(Ended(command.id, Finished::REASON_REJECTED, code, taken.message()));
    }
  }
  Deliver(std::move(refused));
}

void SessionThread::PauseOrRead() {
  bool pauses = mark_.Waits(static_cast<size_t>(unconsumed_));
  if (pauses) {
    // Whoever consumes from here on sees it and wakes us; who did just before is seen here.
    paused_ = true;
    pauses = mark_.Waits(static_cast<size_t>(unconsumed_));
  }
  paused_ = pauses;
  session_->ReadEngine(!pauses);
}

void SessionThread::Deliver(std::vector<SessionEvent> events) {
  if (events.empty()) return;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    for (const SessionEvent& event : events) {
      unconsumed_ += TokensIn(event);
      const auto entry = unfinished_.find(event.request);
      if (!event.finished.has_value() || entry == unfinished_.end()) continue;
      --unfinished_by_class_[static_cast<size_t>(entry->second)];
      unfinished_.erase(entry);
    }
  }
  listener_->OnEvents(std::move(events));
}

// Whoever was taken and whoever waits to be taken hears that there is an end; from here on nobody is taken.
void SessionThread::FailUnfinished(const absl::Status& ended) {
  std::vector<SessionEvent> events;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    ended_ = ended;
    commands_.clear();
    for (const auto& [id, priority_class] : unfinished_) {
      events.push_back(Ended(id, Finished::REASON_FAILED, CodeOfEnd(ended), ended.message()));
    }
    unfinished_.clear();
    unfinished_by_class_ = {};
  }
  listener_->OnEnding(ended);
  if (!events.empty()) listener_->OnEvents(std::move(events));
}

void SessionThread::Publish(bool now) {
  using State = SessionStatus::State;
  const pb::JobReady* ready = session_->ready();
  State state = State::kReady;
  if (!session_->job_ready()) state = ready == nullptr ? State::kLoading : State::kRecovering;
  if (drained_) state = State::kDraining;
  const int64_t now_us = MonotonicUs();
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (ended_.has_value()) state = State::kEnded;
    if (!now && state == status_->state && now_us - published_us_ < kPublishUs) return;
  }
  published_us_ = now_us;
  auto status = std::make_shared<SessionStatus>();
  status->state = state;
  status->job_ready = session_->job_ready();
  status->relaunches = session_->relaunches();
  status->progress = session_->load_progress();
  if (ready != nullptr) status->ready = *ready;
  status->engine = session_->engine_status();
  status->statistics = session_->statistics();
  status->losses = session_->losses();
  const std::lock_guard<std::mutex> lock(mu_);
  status->unfinished = static_cast<int64_t>(unfinished_.size());
  status->unfinished_by_class = unfinished_by_class_;
  if (ready != nullptr) room_ = {ready->context(), ready->blocks(), ready->block_tokens()};
  status_ = std::move(status);
}

}  // namespace stagecoach
