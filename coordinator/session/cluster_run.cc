#include "coordinator/session/cluster_run.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/wire/job_proto.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/trace/trace_file.h"

namespace stagecoach {
namespace {

// How long cancelled requests may take to end. A launcher that was told to end gives its ranks a second.
constexpr int64_t kCancelUs = 2000000;
constexpr int64_t kCancelWhenTerminatedUs = 200000;

double Seconds(int64_t us) { return static_cast<double>(us) * 1e-6; }

absl::StatusOr<std::unique_ptr<Session>> JoinOrLaunch(LaunchOptions options, int engine_descriptor) {
  if (engine_descriptor >= 0) {
    options.job.set_stages(options.stages);
    return Session::Join(engine_descriptor, std::move(options.job));
  }
  absl::StatusOr<std::unique_ptr<Session>> launched = Session::Launch(options);
  if (!launched.ok()) return LaunchFailure(launched.status());
  return launched;
}

std::string LoadText(const pb::LoadProgress& load) {
  const double total = static_cast<double>(load.bytes_to_load());
  const double loaded = static_cast<double>(load.bytes_loaded());
  if (total <= 0) return "starting the stages";
  return ProgressText("loading", loaded / total,
                      absl::StrFormat("%.1f of %.1f MiB", loaded / 1048576, total / 1048576));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterRun>> ClusterRun::Open(LaunchOptions options, int engine_descriptor,
                                                             bool show_progress) {
  SignalWatch& signals = SignalWatch::Get();
  const bool joined = engine_descriptor >= 0;
  const std::string trace = options.job.trace();
  const std::string emulated_link = EmulatedLinkText(FromProto(options.job.emulated_link()));
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session, OpenSession(std::move(options), engine_descriptor));
  session->WatchDescriptor(signals.descriptor());
  return std::unique_ptr<ClusterRun>(new ClusterRun(std::move(session), trace, emulated_link, joined, show_progress));
}

ClusterRun::ClusterRun(std::unique_ptr<Session> session, std::string trace, std::string emulated_link, bool joined,
                       bool show_progress)
    : session_(std::move(session)),
      trace_(std::move(trace)),
      emulated_link_(std::move(emulated_link)),
      joined_(joined),
      signals_(SignalWatch::Get()),
      progress_(show_progress),
      start_us_(MonotonicUs()) {}

ClusterRun::~ClusterRun() {
  session_.reset();  // which watches it
  if (waits_ >= 0) close(waits_);
}

// The session watches one descriptor: one that is readable when the signals' or the input is.
void ClusterRun::WatchInput(int descriptor) {
  if (descriptor == input_) return;
  epoll_event event = {};
  event.events = EPOLLIN;
  if (waits_ < 0) {
    waits_ = epoll_create1(EPOLL_CLOEXEC);
    CHECK_GE(waits_, 0);
    CHECK_EQ(epoll_ctl(waits_, EPOLL_CTL_ADD, signals_.descriptor(), &event), 0);
    session_->WatchDescriptor(waits_);
  }
  if (input_ >= 0) epoll_ctl(waits_, EPOLL_CTL_DEL, input_, nullptr);
  input_ = descriptor;
  if (input_ >= 0) epoll_ctl(waits_, EPOLL_CTL_ADD, input_, &event);  // EPERM for a regular file
}

void ClusterRun::Cancel(RequestId request) {
  session_->Cancel(request);
  // What is still on its way is nobody's answer any more, and not counted.
  const auto found = running_.find(request);
  if (found == running_.end()) return;
  ++totals_.requests;
  totals_.prompt_tokens += found->second.prompt_tokens;
  running_.erase(found);
}

absl::StatusOr<RequestId> ClusterRun::Submit(GenerationRequest request) {
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const RequestId id = ++last_id_;
  if (absl::Status status = session_->Submit(id, std::move(request)); !status.ok()) return status;
  running_[id] = {MonotonicUs(), prompt_tokens};
  return id;
}

absl::StatusOr<RequestId> ClusterRun::SubmitAll(std::vector<GenerationRequest> requests) {
  const RequestId first = last_id_ + 1;
  last_id_ += requests.size();
  std::vector<int64_t> prompt_tokens;
  prompt_tokens.reserve(requests.size());
  for (const GenerationRequest& request : requests)
    prompt_tokens.push_back(static_cast<int64_t>(request.prompt.size()));
  RETURN_IF_ERROR(session_->SubmitAll(first, std::move(requests)));
  const int64_t now_us = MonotonicUs();
  for (size_t i = 0; i < prompt_tokens.size(); ++i) running_[first + i] = {now_us, prompt_tokens[i]};
  return first;
}

absl::StatusOr<std::optional<SessionEvent>> ClusterRun::Next(absl::Duration most) {
  const bool loading = session_->ready() == nullptr;
  if (loading) progress_.Draw(LoadText(session_->load_progress()));
  const absl::Duration timeout = StopRequested() ? absl::Milliseconds(50)
                                 : loading       ? absl::Milliseconds(100)
                                                 : absl::Seconds(1);
  absl::StatusOr<std::optional<SessionEvent>> event = session_->Next(std::min(timeout, most));
  signals_.Clear();
  if (!event.ok()) {
    failed_ = true;
    progress_.Clear();
    return JobFailure(event.status());
  }
  RecordReady();
  if (event->has_value()) Count(**event);
  return event;
}

absl::Status ClusterRun::AwaitReady() {
  while (ready() == nullptr) {
    if (StopRequested()) return absl::CancelledError("interrupted while the stages were loading");
    RETURN_IF_ERROR(Next().status());
  }
  return absl::OkStatus();
}

void ClusterRun::RecordReady() {
  if (ready_us_ != 0 || session_->ready() == nullptr) return;
  ready_us_ = MonotonicUs();
  progress_.Clear();
  const pb::JobReady& ready = *session_->ready();
  LogVerbose(absl::StrCat("ready after ", absl::StrFormat("%.3f", Seconds(ready_us_ - start_us_)),
                          " s: ", ready.stages_size(), " stages, context ", ready.context(), ", ", ready.blocks(),
                          " KV blocks of ", ready.block_tokens(), " tokens"));
  if (!ready.speculation().empty()) LogVerbose(ready.speculation());
  for (const pb::StageSummary& stage : ready.stages()) {
    LogVerbose(absl::StrCat("stage ", stage.stage(), " on ", stage.host(), ": layers ", stage.first_layer(), "-",
                            stage.last_layer() - 1, ", ", InstructionSetName(stage.isa()), ", ", stage.threads(),
                            stage.threads() == 1 ? " thread" : " threads", " on CPUs ", CpuList(stage)));
  }
  if (ready.has_draft()) LogVerbose(absl::StrCat("the draft on ", ready.draft().host()));
}

void ClusterRun::Count(const SessionEvent& event) {
  auto found = running_.find(event.request);
  if (found == running_.end()) return;
  Running& running = found->second;
  if (!event.tokens.empty()) {
    const int64_t now = event.at_us;  // when they were there, not when this process came to read them
    totals_.decode_tokens += static_cast<int64_t>(event.tokens.size());
    if (first_token_us_ == 0) first_token_us_ = now;
    last_token_us_ = now;
    if (!running.has_token) {
      running.has_token = true;
      ++totals_.requests_with_tokens;
      first_token_sum_us_ += now - std::max(running.submitted_us, ready_us_);
    }
  }
  if (!event.finished.has_value()) return;
  if (event.finished->reason() != pb::RequestFinished::REASON_REJECTED) {
    ++totals_.requests;
    totals_.prompt_tokens += running.prompt_tokens;
    totals_.cached_tokens += event.finished->cost().cached_tokens();
  }
  if (event.finished->reason() == pb::RequestFinished::REASON_FAILED) ++totals_.failed;
  running_.erase(found);
}

bool ClusterRun::GiveUp() {
  if (!StopRequested()) {
    stop_us_ = 0;  // an earlier one may have been forgotten
    return false;
  }
  const int64_t now = MonotonicUs();
  if (stop_us_ == 0) stop_us_ = now;
  const int64_t patience = joined_ && signals_.terminated() ? kCancelWhenTerminatedUs : kCancelUs;
  return signals_.stops() > 1 || session_->ready() == nullptr || now - stop_us_ > patience;
}

double ClusterRun::SecondsSinceReady() const { return ready_us_ == 0 ? 0 : Seconds(MonotonicUs() - ready_us_); }

double ClusterRun::LoadSeconds() const { return Seconds((ready_us_ == 0 ? MonotonicUs() : ready_us_) - start_us_); }

RunSummary ClusterRun::Finish() {
  // A world that a launcher started can only end well in order, so it is brought up even if there was nothing to do.
  while (joined_ && !failed_ && session_->ready() == nullptr && !StopRequested()) {
    if (!Next().ok()) break;
  }
  progress_.Clear();
  for (const auto& [id, running] : running_) {  // those that a signal or a loss cut short
    ++totals_.requests;
    totals_.prompt_tokens += running.prompt_tokens;
  }
  RunSummary summary;
  totals_.seconds = SecondsSinceReady();
  totals_.load_s = LoadSeconds();
  totals_.decode_s = Seconds(last_token_us_ - first_token_us_);
  if (totals_.requests_with_tokens > 0) {
    totals_.first_token_s = Seconds(first_token_sum_us_) / static_cast<double>(totals_.requests_with_tokens);
  }
  totals_.relaunches = session_->relaunches();
  summary.totals = totals_;
  summary.emulated_link = emulated_link_;
  if (session_->ready() != nullptr) summary.ready = *session_->ready();
  signals_.EndAtSecondStop();
  const bool in_order = !failed_ && summary.ready.has_value() && !GiveUp() && !(joined_ && signals_.terminated());
  if (in_order) {
    const absl::Status ended = session_->Finish().status();
    if (!ended.ok()) LogVerbose(absl::StrCat("the job did not end in order: ", ended.message()));
  }
  if (pb::JobStatistics job = session_->statistics(); job.stages_size() > 0) {
    summary.totals.preemptions = static_cast<int64_t>(job.preemptions());
    summary.job = std::move(job);
  }
  summary.totals.relaunches = session_->relaunches();
  session_.reset();
  FinishTraceFile();
  return summary;
}

// When no job came up there is none, which was said.
void ClusterRun::FinishTraceFile() const {
  if (trace_.empty() || ready_us_ == 0) return;
  const absl::Status finished = FinishTrace(trace_);
  if (finished.ok()) return LogVerbose(absl::StrCat("the trace is in '", trace_, "'"));
  LogError(absl::StrCat("the trace '", trace_, "' is as the run left it: ", finished.message()));
}

absl::StatusOr<std::unique_ptr<Session>> OpenSession(LaunchOptions options, int engine_descriptor) {
  const std::string emulated_link = EmulatedLinkText(FromProto(options.job.emulated_link()));
  if (!emulated_link.empty()) {
    LogInfo(absl::StrCat("the links between all ranks are emulated: ", emulated_link));
  }
  if (engine_descriptor >= 0) {
    LogInfo(
        "under a launcher of your own a lost stage ends the run; a job that the coordinator launches itself is "
        "launched again and goes on");
  }
  return JoinOrLaunch(std::move(options), engine_descriptor);
}

absl::StatusOr<pb::ProbeReport> RunProbeJob(LaunchOptions options, int engine_descriptor, bool show_progress) {
  SignalWatch& signals = SignalWatch::Get();
  options.max_losses = 1;  // a measurement with a relaunch in it is none
  options.relaunch_timeout = absl::ZeroDuration();
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session, JoinOrLaunch(std::move(options), engine_descriptor));
  session->WatchDescriptor(signals.descriptor());
  ProgressLine progress(show_progress);
  while (!session->probe_report().complete()) {
    const pb::ProbeReport& report = session->probe_report();
    progress.Draw(session->job_ready() ? ProgressText("probing", report.done(), report.doing())
                                       : "starting the stages");
    const absl::Status status = session->Next(absl::Milliseconds(200)).status();
    signals.Clear();
    if (signals.stops() > 0) return absl::CancelledError("interrupted before everything was measured");
    if (!status.ok()) return JobFailure(status);
  }
  progress.Clear();
  pb::ProbeReport report = session->probe_report();
  signals.EndAtSecondStop();
  const absl::Status ended = session->Finish().status();
  if (!ended.ok()) LogVerbose(absl::StrCat("the job did not end in order: ", ended.message()));
  return report;
}

}  // namespace stagecoach
