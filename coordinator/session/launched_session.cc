// A session whose jobs this process launches, watches and replaces.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "coordinator/launch/hosts/host_pool.h"
#include "coordinator/launch/launch_check.h"
#include "coordinator/launch/launcher.h"
#include "coordinator/launch/program_output.h"
#include "coordinator/session/relaunch_policy.h"
#include "coordinator/session/session.h"
#include "coordinator/session/start_watch.h"

namespace stagecoach {
namespace {

// However long a wait took by the clock (the front may have been stopped), it counts at most this much against the job.
constexpr absl::Duration kMostPerWait = absl::Seconds(1);
// mpirun names the rank that died and ends about 20 ms after its death; how long to wait for that on a busy machine.
constexpr absl::Duration kExitReportWait = absl::Seconds(2);
constexpr absl::Duration kExitReportWaitAfterLoss = absl::Milliseconds(500);
constexpr absl::Duration kOrderlyEnd = absl::Seconds(5);
// After so many losses of its draft a job goes on without one.
constexpr int kMostDraftLosses = 2;
constexpr char kHasEnded[] = " has ended";
constexpr char kIsStopped[] = " is stopped";

// This host's ranks that entered MPI_Init, by Open MPI's shared memory: vader_segment.<host>.<user>.<job>.<rank>.
std::set<int> RanksInMpi(const std::vector<std::string>& directories) {
  std::set<int> ranks;
  for (const std::string& directory : directories) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
      const std::string name = entry.path().filename().string();
      int rank = 0;
      if (absl::StartsWith(name, "vader_segment.") && absl::SimpleAtoi(name.substr(name.rfind('.') + 1), &rank))
        ranks.insert(rank);
    }
  }
  return ranks;
}

class LaunchedSession : public Session {
 public:
  LaunchedSession(const LaunchOptions& options, LaunchPlan plan);
  int relaunches() const override { return relaunches_; }

  // The first launch; later ones happen in Next.
  absl::Status Start();

 protected:
  absl::Status Prepare() override;
  absl::Status Supervise(absl::Duration waited, absl::Span<const pollfd> waits) override;
  absl::Status OnLost(const std::string& what) override;
  bool GoesOnWithout(const pb::JobFailed& failed) override;
  void AddWaits(std::vector<pollfd>* waits) const override;
  absl::Duration longest_wait() const override;
  void AwaitJobEnd() override;

 private:
  // A launch: asks the other hosts, if there are any, then starts the ranks.
  absl::Status Begin();
  absl::Status OnHostsAsked();
  absl::Status SuperviseStart(absl::Duration waited);
  Placement WithDraft(Placement placement);
  absl::Status StartRanks(const Placement& placement);
  absl::Status OnLauncherEnded(int exit_code);
  absl::Status Lose(const std::string& what, bool accusing = false, std::optional<int> stage = std::nullopt);
  absl::Status Lose(const RankDeath& death);
  std::string NameOf(int rank) const;
  std::optional<int> CauseOf(int rank) const;  // the stage that it is, or of a draft the number behind them
  bool IsDraft(std::optional<int> stage) const { return placement_.draft() != nullptr && stage == placement_.stages(); }
  void LeaveDraftOut(const std::string& why);
  void AwaitExitReport(absl::Duration most);
  std::string DescribeRanks() const;
  std::string DescribeOtherHosts() const;  // for a job that does not come up

  const LaunchPlan plan_;
  const absl::Duration startup_timeout_;
  const absl::Duration silence_timeout_;
  const int max_losses_;
  const absl::Duration relaunch_timeout_;
  std::string (*const wording_)(absl::string_view);
  const std::string launcher_args_;

  HostPool hosts_;
  Placement placement_;                 // of the present job, or the one before
  std::unique_ptr<Launcher> launcher_;  // of the present job; none between a loss and the next launch
  absl::Duration starting_;             // time since the launch
  absl::Duration startup_time_;         // after which it is lost unless it has reported
  MissingRanks missing_ranks_;          // of the present job, while it starts
  std::optional<StartWatch> watch_;     // likewise
  bool end_seen_ = false;               // the launcher has ended, and its engine was given a last chance to be heard
  int launches_ = 0;                    // of ranks
  int draft_losses_ = 0;
  bool draft_failed_ = false;  // the present job ends because its draft cannot run
  int relaunches_ = 0;
  RelaunchPolicy policy_;
  uint64_t progress_seen_ = 0;
  int64_t next_launch_us_ = 0;
};

}  // namespace

LaunchedSession::LaunchedSession(const LaunchOptions& options, LaunchPlan plan)
    : Session(options.job),
      plan_(std::move(plan)),
      startup_timeout_(options.startup_timeout),
      silence_timeout_(options.silence_timeout),
      max_losses_(options.max_losses),
      relaunch_timeout_(options.relaunch_timeout),
      wording_(options.wording),
      launcher_args_(options.launcher_args),
      hosts_(&plan_, options.host_timeout),
      policy_(MonotonicUs()) {}

absl::Status LaunchedSession::Start() { return Begin(); }

absl::Status LaunchedSession::Begin() {
  if (plan_.AllHere()) return StartRanks(WithDraft(plan_.PlaceAll()));
  hosts_.Ask(/*again=*/launches_ > 0, job());
  return absl::OkStatus();
}

absl::Status LaunchedSession::OnHostsAsked() {
  for (const std::string& news : hosts_.News()) LogInfo(news);
  const Placement placement = WithDraft(hosts_.Place());
  if (launches_ == 0 && placement.stages() < plan_.stages) {
    return absl::FailedPreconditionError(
        absl::StrCat("the hosts that can be used have ", placement.stages(), " of the ", plan_.stages,
                     " slots that are needed; left out: ", hosts_.DescribeLeftOut(),
                     "; repair them, name other hosts, or add spare ones to `hostfile`"));
  }
  if (placement.stages() == 0) return Lose(absl::StrCat("no host can be used: ", hosts_.DescribeLeftOut()));
  if (launches_ == 0 && hosts_.SpareLacksBf16Dot() && !job().has_bf16_dot()) job().set_bf16_dot(false);
  if (launches_ > 0 && placement.hosts != placement_.hosts) {
    LogInfo(absl::StrCat("the layers are now split over ", placement.stages(),
                         placement.stages() == 1 ? " stage: " : " stages: ", placement.Describe()));
  }
  if (job().layer_split_size() > 0 && job().layer_split_size() != placement.stages()) job().clear_layer_split();
  const absl::Status started = StartRanks(placement);
  return started.ok() || launches_ == 0 ? started : Lose(std::string(started.message()));
}

// A draft where, and only where, the job has one.
Placement LaunchedSession::WithDraft(Placement placement) {
  if (placement.stages() == 1 && !job().draft_model_path().empty()) {
    LeaveDraftOut("one stage waits for no other, so nothing is guessed");
  }
  if (placement.draft() == nullptr && !job().draft_model_path().empty()) {
    LeaveDraftOut(absl::StrCat("the host of the draft is left out (", hosts_.DescribeLeftOut(), ")"));
  } else if (placement.draft() != nullptr && job().draft_model_path().empty()) {
    placement.hosts.pop_back();
  }
  return placement;
}

absl::Status LaunchedSession::StartRanks(const Placement& placement) {
  RETURN_IF_ERROR(CheckThisHost(placement, job().threads()));
  ASSIGN_OR_RETURN(launcher_, Launcher::Start(plan_, placement));
  hosts_.Launched(placement, launcher_->name());
  placement_ = placement;
  starting_ = absl::ZeroDuration();
  missing_ranks_ = MissingRanks();
  startup_time_ = was_ready() ? policy_.StartupTime(startup_timeout_, max_losses_, relaunch_timeout_, MonotonicUs())
                              : startup_timeout_;
  watch_.emplace(plan_, placement, launcher_->name(), startup_time_);
  end_seen_ = false;
  ++launches_;
  return absl::OkStatus();
}

absl::Status LaunchedSession::Prepare() {
  if (launcher_ != nullptr || hosts_.asking() || MonotonicUs() < next_launch_us_) return absl::OkStatus();
  ++relaunches_;
  const absl::Status begun = Begin();
  return begun.ok() ? begun : Lose(std::string(begun.message()));
}

absl::Duration LaunchedSession::longest_wait() const {
  if (hosts_.asking()) return hosts_.longest_wait();
  if (launcher_ == nullptr) return absl::Microseconds(std::max<int64_t>(next_launch_us_ - MonotonicUs(), 0));
  // Where the end of the launcher wakes nobody up, we look often.
  return absl::Milliseconds(launcher_->end_descriptor() < 0 ? 20 : 500);
}

void LaunchedSession::AddWaits(std::vector<pollfd>* waits) const {
  if (hosts_.asking()) hosts_.AddWaits(waits);
  if (launcher_ == nullptr) return;
  for (const int descriptor : {launcher_->listener(), launcher_->output_descriptor(), launcher_->end_descriptor()}) {
    if (descriptor >= 0) waits->push_back({descriptor, POLLIN, 0});
  }
  if (!heard() && watch_.has_value()) watch_->AddWaits(waits);
}

absl::Status LaunchedSession::Supervise(absl::Duration waited, absl::Span<const pollfd> waits) {
  if (hosts_.asking()) {
    return hosts_.Advance(std::min(waited, kMostPerWait)) ? OnHostsAsked() : absl::OkStatus();
  }
  if (launcher_ == nullptr) return absl::OkStatus();
  if (std::exchange(progress_seen_, journal().progress()) != journal().progress()) policy_.Produced(MonotonicUs());
  policy_.Loaded(load_progress().bytes_loaded(), MonotonicUs());
  policy_.Idle(job_ready() && journal().empty(), MonotonicUs());
  bool may_have_ended = launcher_->end_descriptor() < 0;
  for (const pollfd& wait : waits) {
    if (wait.revents == 0) continue;
    if (wait.fd == launcher_->end_descriptor()) {
      may_have_ended = true;
    } else if (wait.fd == launcher_->output_descriptor()) {
      launcher_->RelayOutput();
    } else if (wait.fd == launcher_->listener() && !finishing()) {
      if (const std::optional<int> descriptor = launcher_->Accept()) Connect(*descriptor);
    }
  }
  if (finishing()) return absl::OkStatus();
  if (may_have_ended) {
    if (const std::optional<int> code = launcher_->ExitCode()) {
      // What the engine said at last is read first, in the next rounds.
      if (!connected() || (std::exchange(end_seen_, true) && !received())) return OnLauncherEnded(*code);
      return absl::OkStatus();
    }
  }
  if (!heard()) return SuperviseStart(std::min(waited, kMostPerWait));
  watch_.reset();
  if (silence() < silence_timeout_) return absl::OkStatus();
  return Lose(absl::StrCat(NameOf(0), " was silent for ",
                           absl::FormatDuration(absl::Trunc(silence(), absl::Milliseconds(100))), DescribeRanks()));
}

// Before the engine's first word.
absl::Status LaunchedSession::SuperviseStart(absl::Duration waited) {
  starting_ += waited;
  const std::string ranks = DescribeRanks();
  if (starting_ >= startup_time_) {
    return Lose(absl::StrCat("the job did not come up within ",
                             absl::FormatDuration(absl::Trunc(startup_time_, absl::Milliseconds(100))), ranks,
                             DescribeOtherHosts(), AdviceForSettings(launcher_->output().Tail(), OwnEnvironment())));
  }
  const std::string stopped_elsewhere = watch_->Advance(starting_);
  const bool missing = absl::StrContains(ranks, kHasEnded) || absl::StrContains(ranks, kIsStopped);
  if (!missing_ranks_.Waited(waited, missing) && stopped_elsewhere.empty()) return absl::OkStatus();
  return Lose(
      absl::StrCat("the job does not come up", ranks, stopped_elsewhere.empty() ? "" : "; ", stopped_elsewhere));
}

// The engine's end of the socket closed, or it gave the job up.
absl::Status LaunchedSession::OnLost(const std::string& what) {
  if (finishing()) {
    Disconnect();
    return absl::UnavailableError(what.empty() ? "the engine closed its socket before it reported statistics" : what);
  }
  if (!what.empty()) {
    // The engine may see a stage's end before mpirun has named the signal, which tells whether a request may be guilty.
    AwaitExitReport(kExitReportWaitAfterLoss);
    const std::optional<RankDeath>& death = launcher_->output().death();
    const std::optional<int> dead = death.has_value() ? CauseOf(death->rank) : std::nullopt;
    return Lose(what, death.has_value() && death->crashed && death->rank != 0, dead);
  }
  AwaitExitReport(kExitReportWait);
  if (const std::optional<int> code = launcher_->ExitCode()) return OnLauncherEnded(*code);
  if (launcher_->output().death().has_value()) return Lose(*launcher_->output().death());
  return Lose(absl::StrCat(NameOf(0), " went away without a word"));
}

void LaunchedSession::AwaitExitReport(absl::Duration most) {
  const int64_t deadline_us = MonotonicUs() + absl::ToInt64Microseconds(most);
  while (MonotonicUs() < deadline_us && !launcher_->output().death().has_value() &&
         !launcher_->ExitCode().has_value()) {
    std::vector<pollfd> waits;
    AddWaits(&waits);
    poll(waits.data(), waits.size(), 10);
    launcher_->RelayOutput();
  }
  launcher_->RelayOutput();
}

absl::Status LaunchedSession::OnLauncherEnded(int exit_code) {
  launcher_->RelayOutput();
  const LauncherOutput& output = launcher_->output();
  // The launcher passes on how a rank ended; while it is still launching it does not always name the rank.
  const bool by_signal = exit_code > 128 && exit_code < 128 + SIGRTMIN;
  if (!heard() && launches_ == 1 && !by_signal) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job could not be launched: ", plan_.backend->name(), " ended with exit code ", exit_code,
                     " and printed:\n", output.Tail(), "\n",
                     AdviceForLaunch(plan_.backend->name(), output.Tail(), launcher_args_, OwnEnvironment())));
  }
  if (output.death().has_value()) return Lose(*output.death());
  const std::string signal = by_signal ? absl::StrCat(" (signal ", exit_code - 128, ")") : "";
  return Lose(absl::StrCat(plan_.backend->name(), " ended with exit code ", exit_code, signal));
}

std::string LaunchedSession::NameOf(int rank) const {
  return IsDraft(CauseOf(rank)) ? absl::StrCat("rank ", rank, " (the draft)") : RankName(rank, StageOfRank(rank));
}

std::optional<int> LaunchedSession::CauseOf(int rank) const {
  const bool draft = placement_.draft() != nullptr && rank + 1 == placement_.ranks();
  return draft ? placement_.stages() : StageOfRank(rank);
}

// A draft that cannot be loaded is not tried again.
bool LaunchedSession::GoesOnWithout(const pb::JobFailed& failed) {
  if (finishing() || !failed.has_stage() || !IsDraft(failed.stage())) return false;
  return draft_failed_ = true;
}

void LaunchedSession::LeaveDraftOut(const std::string& why) {
  LogError(absl::StrCat(wording_ == nullptr ? why : wording_(why), "; the job goes on without the draft"));
  job().clear_draft_model_path();
}

absl::Status LaunchedSession::Lose(const RankDeath& death) {
  return Lose(absl::StrCat(NameOf(death.rank), " ", death.how), death.crashed && death.rank != 0, CauseOf(death.rank));
}

// `accusing`: a stage died by its own doing, maybe of a request. `stage`: which one, if the engine does not know.
absl::Status LaunchedSession::Lose(const std::string& what, bool accusing, std::optional<int> stage) {
  launcher_.reset();  // ends whatever is left of the job
  const int64_t now_us = MonotonicUs();
  if (std::exchange(progress_seen_, journal().progress()) != journal().progress()) policy_.Produced(now_us);
  if (!stage.has_value()) stage = lost_stage();
  RecordLoss(stage, what);
  const bool failed = std::exchange(draft_failed_, false), draft = failed || IsDraft(stage);
  CloseJob(accusing && !draft ? what : "");  // a draft computes no answer
  if (draft && (failed || ++draft_losses_ == kMostDraftLosses)) {
    const std::string times =
        absl::StrCat("; the draft on ", placement_.draft()->host, " was lost ", draft_losses_, " times");
    LeaveDraftOut(absl::StrCat(what, failed ? "" : times));
    next_launch_us_ = now_us;  // as no loss: without its draft the job is another one
    return absl::OkStatus();
  }
  // A job that never was ready has nothing to lose, and what keeps it from coming up rarely goes away.
  const absl::Duration patience = was_ready() ? relaunch_timeout_ : absl::ZeroDuration();
  const std::optional<absl::Duration> wait = policy_.Lost(max_losses_, patience, now_us);
  if (!wait.has_value()) {
    return absl::UnavailableError(
        absl::StrCat("the job was lost ", policy_.losses(), policy_.losses() == 1 ? " time" : " times",
                     " in a row without a new token, the last progress was ",
                     absl::FormatDuration(absl::Trunc(policy_.SinceProgress(now_us), absl::Milliseconds(100))),
                     " ago; the last time: ", what));
  }
  next_launch_us_ = now_us + absl::ToInt64Microseconds(*wait);
  LogError(absl::StrCat("the job was lost: ", wording_ == nullptr ? what : wording_(what), "; launching it again",
                        *wait > absl::ZeroDuration() ? absl::StrCat(" in ", absl::FormatDuration(*wait)) : ""));
  return absl::OkStatus();
}

// "; on this host: rank 1 (stage 0) is stopped, rank 2 has ended"; empty when nothing is out of order.
std::string LaunchedSession::DescribeRanks() const {
  const std::vector<SessionProcess> processes = launcher_->Processes();
  std::vector<std::string> remarks;
  std::vector<bool> seen(static_cast<size_t>(placement_.ranks()), false);
  const std::set<int> in_mpi = RanksInMpi(launcher_->directories());
  bool any_rank = false;
  for (const SessionProcess& process : processes) {
    if (process.rank < 0 && process.state == 'T') {
      remarks.push_back(absl::StrCat("a process of ", plan_.backend->name(), kIsStopped, " (pid ", process.pid, ")"));
    }
    if (process.rank < 0 || process.rank >= placement_.ranks()) continue;
    any_rank = true;
    seen[static_cast<size_t>(process.rank)] = true;
    if (process.state == 'T') {
      remarks.push_back(absl::StrCat(NameOf(process.rank), kIsStopped, " (pid ", process.pid, ")"));
    } else if (!heard() && placement_.AllHere() && !in_mpi.empty() && !in_mpi.contains(process.rank)) {
      remarks.push_back(absl::StrCat(NameOf(process.rank), " has not reached MPI_Init (pid ", process.pid, ")"));
    }
  }
  for (int rank = 0; rank < placement_.ranks() && any_rank && placement_.AllHere(); ++rank) {
    if (!seen[static_cast<size_t>(rank)]) remarks.push_back(absl::StrCat(NameOf(rank), kHasEnded));
  }
  return remarks.empty() ? "" : absl::StrCat("; on this host: ", absl::StrJoin(remarks, ", "));
}

// Every host has answered a login before the launch, so that the likeliest reason is a firewall.
std::string LaunchedSession::DescribeOtherHosts() const {
  if (placement_.AllHere()) return "";
  return absl::StrCat("; of its stages ", placement_.Describe(),
                      "; check that these hosts let each other's TCP connections in, on all ports");
}

void LaunchedSession::AwaitJobEnd() {
  const int64_t deadline_us = MonotonicUs() + absl::ToInt64Microseconds(kOrderlyEnd);
  while (!launcher_->ExitCode().has_value() && MonotonicUs() < deadline_us) {
    std::vector<pollfd> waits;
    AddWaits(&waits);
    poll(waits.data(), waits.size(),
         static_cast<int>(std::min<int64_t>(100, absl::ToInt64Milliseconds(longest_wait()))));
    launcher_->RelayOutput();
  }
  launcher_.reset();
  hosts_.Clear();
}

absl::StatusOr<std::unique_ptr<Session>> Session::Launch(const LaunchOptions& options) {
  ASSIGN_OR_RETURN(LaunchPlan plan, ResolveLaunch(options));
  // First what keeps any program from being started.
  RETURN_IF_ERROR(CheckThisHost(plan.PlaceAll(), options.job.threads()));
  if (absl::string_view(plan.backend->name()) == "mpirun") RETURN_IF_ERROR(LauncherVersion(plan).status());
  static std::atomic<bool> said = false;  // a process may launch many jobs
  if (geteuid() == 0 && !said.exchange(true)) LogInfo("running MPI as root (OMPI_ALLOW_RUN_AS_ROOT is set for it)");
  auto session = std::make_unique<LaunchedSession>(options, std::move(plan));
  RETURN_IF_ERROR(session->Start());
  return session;
}

}  // namespace stagecoach
