// sweep: measures a matrix of configurations, each point by launching it, into a file that a second run continues.

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "CLI/App.hpp"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "common/model/model_description.h"
#include "coordinator/bench/bench_work.h"
#include "coordinator/bench/sweep_measure.h"
#include "coordinator/bench/sweep_plan.h"
#include "coordinator/bench/sweep_point.h"
#include "coordinator/cli/options/job_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/plan/plan_places.h"
#include "coordinator/cli/sweep/sweep_options.h"
#include "coordinator/cli/sweep/sweep_points.h"
#include "coordinator/cli/sweep/sweep_report.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/front/signals.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/launch/program_output.h"
#include "coordinator/report/report_text.h"
#include "coordinator/report/sweep_cells.h"
#include "coordinator/session/cluster_run.h"

namespace stagecoach {
namespace {

constexpr char kProfileFileName[] = "profile.json";  // of the sweep's own probe, in its directory
// What a launch takes beside its loading, and a point beside its load; for estimates alone.
constexpr double kLaunchSeconds = 2, kPointSeconds = 2, kLoadBytesPerSecond = 1e9;

// Why a point has no requests: its options, which are named as fields, or the file of a trace.
absl::Status RequestsError(const absl::Status& status) {
  return absl::StartsWith(status.message(), "`") ? UsageError(status.message()) : OptionError("--arrivals", status);
}

class SweepVerb : public Verb {
 public:
  SweepVerb()
      : Verb("sweep", "measure a model over a matrix of configurations",
             "coordinator sweep --load-format dummy --shape qwen3-0.6b --type q8_0 --pp 1,2 --concurrency 1,8,32 -o "
             "DIR") {}
  bool NeedsCluster() const override { return !options_.cluster.dry_run && report_.directories.empty(); }
  void AddOptions(CLI::App* app) override;
  absl::Status Run(const RunContext& context) override;

 private:
  absl::Status Prepare(const RunContext& context);
  absl::StatusOr<LaunchOptions> LaunchOf(const std::vector<SweepConfig>& points, const RunContext& context) const;
  absl::Status LeaveOutImpossible(const RunContext& context);
  absl::Status PrintPlan(const RunContext& context);
  absl::Status PrintPolicies() const;
  absl::Status SkipFinished();
  absl::Status ProbeHosts(const RunContext& context);
  absl::Status WriteOwnProfile(const std::string& path, const RunContext& context) const;
  absl::Status RunLaunch(std::vector<SweepConfig> points, const RunContext& context);
  // Measures points from the front of the list on, until all are done or the job is gone.
  absl::Status RunPoints(const LaunchOptions& launch, const RunContext& context, std::vector<SweepConfig>* points);
  absl::Status RunPoint(const SweepConfig& config, ClusterRun* cluster, SweepRunner* runner, SweepPoint* point);
  void KeepHostsThatRan(const LaunchOptions& launch, SweepPoint* point);
  SweepOrigin OriginOf(const SweepConfig& config) const;
  SweepPoint NewPoint(const SweepConfig& config, const LaunchOptions& launch);
  std::vector<SweepLaunch> Launches() const;
  absl::Status BeginTrace(const SweepConfig& config, LaunchOptions* launch) const;
  absl::Status Record(SweepPoint point);
  absl::Status Stopped() const;

  SweepOptions options_;
  SweepReportOptions report_;  // of `sweep report`; without directories a sweep is run
  bool probed_ = false;        // options_.sources.profile is this sweep's own
  Verbosity verbosity_;
  std::shared_ptr<const ModelDescription> model_;
  std::optional<HostProfile> facts_;  // of a profile or a probe; a description may be of hosts that are not there
  std::vector<SweepConfig> points_;   // still to be measured
  std::optional<PointNames> names_;
  std::unique_ptr<SweepFile> file_;
  int64_t all_ = 0, done_ = 0;               // of these points
  int64_t failed_ = 0, on_other_hosts_ = 0;  // of those that are done
  int64_t traces_ = 0;                       // in the directory
  bool told_unpredicted_ = false;
};

void SweepVerb::AddOptions(CLI::App* app) {
  AddSweepOptions(app, &options_);
  AddSweepReport(app, &report_);
  AddVerbosityOptions(app, &verbosity_);
}

// Checks everything that can be checked before anything starts.
absl::Status SweepVerb::Prepare(const RunContext& context) {
  if (context.joined) {
    return UsageError("sweep launches a job for every configuration; start it without mpirun or srun");
  }
  ASSIGN_OR_RETURN(model_, ResolveSweep(context, &options_));
  // The facts of the predictions: if they cannot be read, no measurement would have a prediction.
  for (const std::string& facts : {options_.sources.profile, options_.sources.cluster}) {
    if (facts.empty()) continue;
    absl::StatusOr<HostProfile> read = ReadHostProfile(facts);
    if (!read.ok()) return InputFileError(read.status().message());
    if (facts == options_.sources.profile) facts_ = *std::move(read);
  }
  points_ = PointsOf(options_.lists);
  names_.emplace(points_);
  all_ = static_cast<int64_t>(points_.size());
  return LeaveOutImpossible(context);
}

// Names the jobs that no host could run, whose points are not measured; refuses a sweep of which nothing is left.
absl::Status SweepVerb::LeaveOutImpossible(const RunContext& context) {
  std::map<std::string, std::string> why_not;  // by job; empty: it can run
  std::vector<std::string> impossible;
  for (const SweepLaunch& points : LaunchesOf(points_)) {
    const auto [job, fresh] = why_not.try_emplace(SweepKey(JobOf(points.front())));
    if (!fresh) continue;
    ASSIGN_OR_RETURN(const LaunchOptions launch, LaunchOf(points, context));
    if (const absl::Status can = CheckCanRun(launch, facts_, *model_); !can.ok()) {
      job->second = absl::StrCat("'", names_->Of(points.front()), "' cannot run: ", WithFlags(can.message()));
      impossible.push_back(job->second);
    }
  }
  all_ -= static_cast<int64_t>(
      std::erase_if(points_, [&](const SweepConfig& point) { return !why_not.at(SweepKey(JobOf(point))).empty(); }));
  if (impossible.empty()) return absl::OkStatus();
  if (points_.empty() && done_ == 0) return UsageError(absl::StrCat("nothing was measured: ", impossible.front()));
  for (const std::string& why : impossible) LogInfo(absl::StrCat("left out: ", why));
  return absl::OkStatus();
}

// The launch for these points of one job: a context that the longest request of all of them fits.
absl::StatusOr<LaunchOptions> SweepVerb::LaunchOf(const std::vector<SweepConfig>& points,
                                                  const RunContext& context) const {
  int64_t longest = 1;
  for (const SweepConfig& point : points) {
    const absl::StatusOr<std::vector<ArrivingRequest>> requests = RequestsOf(point);
    if (!requests.ok()) return RequestsError(requests.status());
    longest = std::max(longest, ContextOf(*requests));
    if (longest > model_->hyper.context) {
      return UsageError(absl::StrCat("--prompt, --output: ", PointName(point), ": a request has ", longest,
                                     " tokens, but the model's context is ", model_->hyper.context,
                                     "; ask for fewer, or give a distribution its LONGEST"));
    }
  }
  const ClusterOptions options = ClusterOptionsOf(options_, points.front(), longest);
  if (options.max_num_seqs > options.max_num_batched_tokens) {
    return UsageError(absl::StrCat("--max-num-seqs, --concurrency: ", options.max_num_seqs,
                                   " sequences do not fit a micro-batch of ", options.max_num_batched_tokens,
                                   " rows; raise --max-num-batched-tokens"));
  }
  ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(options, *model_, context));
  launch.relaunch_timeout = absl::ZeroDuration();
  launch.max_losses = 1;  // a relaunch spoils the measurement
  return launch;
}

SweepOrigin SweepVerb::OriginOf(const SweepConfig& config) const {
  SweepOrigin origin = CurrentOrigin(*model_);
  origin.command = CommandOf(options_, config);
  origin.started_at = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  origin.processor = ProcessorName();
  origin.cores = AllowedCores();
  origin.load_average = std::max(0.0, LoadAverage());
  return origin;
}

SweepPoint SweepVerb::NewPoint(const SweepConfig& config, const LaunchOptions& launch) {
  SweepPoint point;
  point.config = config;
  point.origin = OriginOf(config);
  // The planner knows of no guesses in a load, and of no stages that sleep.
  if (config.speculate != Speculate::kOff || config.stage_delay_us > 0) return point;
  const absl::StatusOr<std::vector<ArrivingRequest>> requests = RequestsOf(config);
  if (!requests.ok()) return point;
  const ClusterOptions options = ClusterOptionsOf(options_, config, ContextOf(*requests));
  absl::StatusOr<SweepPrediction> prediction =
      PredictPoint(config, *requests, options, options_.sources, probed_, launch, model_);
  if (prediction.ok()) {
    point.prediction = *std::move(prediction);
    if (probed_) point.prediction->source = "probe";
  } else if (!std::exchange(told_unpredicted_, true)) {
    LogInfo(absl::StrCat("points have no prediction: ", WithFlags(prediction.status().message())));
  }
  return point;
}

absl::Status SweepVerb::PrintPlan(const RunContext& context) {
  const std::vector<SweepLaunch> launches = Launches();
  const double load_s = kLaunchSeconds + static_cast<double>(SummarizeModel(*model_).bytes) / kLoadBytesPerSecond;
  double seconds = load_s * static_cast<double>(launches.size());
  bool known = true;
  for (const SweepLaunch& launch : launches) {
    ASSIGN_OR_RETURN(const LaunchOptions options, LaunchOf(launch, context));
    for (const SweepConfig& config : launch) {
      const SweepPoint point = NewPoint(config, options);
      ASSIGN_OR_RETURN(const std::vector<ArrivingRequest> requests, RequestsOf(config));
      int64_t tokens = 0;
      for (const ArrivingRequest& request : requests) tokens += request.output_tokens;
      double takes = requests.back().arrival_s;
      std::string expected = "no prediction";
      if (point.prediction.has_value()) {
        takes = std::max(takes, static_cast<double>(tokens) / point.prediction->output_tokens_per_s);
        expected = absl::StrCat("~", FigureText(point.prediction->output_tokens_per_s), " output tokens/s");
      }
      if (config.duration_s > 0) takes = config.duration_s;
      known = known && (point.prediction.has_value() || config.duration_s > 0);
      seconds += kPointSeconds + takes;
      const bool timed = config.duration_s > 0 && config.concurrency > 0;  // as many as then end
      const std::string load =
          timed ? absl::StrFormat("%g s", config.duration_s) : absl::StrFormat("%d requests", requests.size());
      RETURN_IF_ERROR(
          WriteStdout(absl::StrFormat("%s  %s: %s, %s\n", SweepKey(config), names_->Of(config), load, expected)));
    }
  }
  return WriteStdout(absl::StrFormat(
      "%d points in %d launches, %s\n", points_.size(), launches.size(),
      known ? absl::StrFormat("about %.0f s if the predictions hold", seconds) : "of unknown duration"));
}

// In what a point that was measured earlier differs from the one that the same options ask for now; empty: in nothing,
// or in more than what they do not say.
std::string OtherNow(const SweepConfig& earlier, const SweepConfig& now, const absl::flat_hash_set<std::string>& keys) {
  SweepConfig same = earlier;
  std::vector<std::string> other;
  const auto take = [&](auto SweepConfig::*field, const auto& value, const char* what) {
    if (same.*field == value) return;
    same.*field = value;
    if (other.empty() || other.back() != what) other.emplace_back(what);
  };
  take(&SweepConfig::file_bytes, now.file_bytes, "another file of the model");
  take(&SweepConfig::header_hash, now.header_hash, "another file of the model");
  take(&SweepConfig::file_time_us, now.file_time_us, "another file of the model");
  take(&SweepConfig::machine, now.machine, "another machine");
  take(&SweepConfig::program_version, now.program_version, "another version of the program");
  return keys.contains(SweepKey(same)) ? absl::StrJoin(other, ", ") : "";
}

// Leaves out the points that the file has; one that failed is tried again.
absl::Status SweepVerb::SkipFinished() {
  ASSIGN_OR_RETURN(file_, OpenSweepFile(options_.directory));
  ASSIGN_OR_RETURN(const SweepRecords records, ReadPoints(options_.directory));
  absl::flat_hash_set<std::string> wanted, finished;
  for (const SweepConfig& point : points_) wanted.insert(SweepKey(point));
  std::vector<SweepConfig> named = points_;
  std::map<std::string, int64_t> others;
  for (const SweepPoint& point : records.points) {
    if (point.simulated) continue;
    named.push_back(point.config);
    if (!point.ok()) continue;
    if (!point.trace.empty()) ++traces_;
    finished.insert(SweepKey(point.config));
    if (const std::string other = OtherNow(point.config, options_.lists.base, wanted); !other.empty()) ++others[other];
  }
  names_.emplace(named);
  for (const auto& [what, points] : others) {
    LogInfo(absl::StrCat(points, " of these points ", points == 1 ? "was" : "were", " measured earlier with ", what,
                         "; what was measured then stays beside the new ones"));
  }
  std::erase_if(points_, [&](const SweepConfig& point) { return finished.contains(SweepKey(point)); });
  done_ = all_ - static_cast<int64_t>(points_.size());
  if (done_ > 0) LogInfo(absl::StrCat(done_, " of ", all_, " points are finished already"));
  return absl::OkStatus();
}

// Measures the facts of the predictions if the user gives none. The sweep does not need them.
absl::Status SweepVerb::ProbeHosts(const RunContext& context) {
  PlaceSources& sources = options_.sources;
  if (options_.no_probe || points_.empty() || sources.given()) return absl::OkStatus();
  const std::string path = PathIn(options_.directory, kProfileFileName);
  const absl::Status status = WriteOwnProfile(path, context);
  if (absl::IsCancelled(status)) return Stopped();
  if (status.ok()) {
    sources.profile = path;
    probed_ = true;
    ASSIGN_OR_RETURN(facts_, ReadHostProfile(path));
    return LeaveOutImpossible(context);  // of other hosts only now is known what they are
  }
  LogInfo(absl::StrCat("no probe, so predictions rest on assumed speeds: ", WithFlags(status.message())));
  return absl::OkStatus();
}

absl::Status SweepVerb::WriteOwnProfile(const std::string& path, const RunContext& context) const {
  RETURN_IF_ERROR(CheckWholeFile(path));  // found out before seconds are spent
  // Hosts to which the weights are streamed have no file to take a layer from.
  ClusterOptions probe = ProbeOptionsOf(options_);
  const bool has_model = probe.weights == WeightSource::kFile;
  if (!has_model) probe.model.clear();
  probe.weights = WeightSource::kFile;
  ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(probe, context));
  LogInfo("probing the hosts, which the predictions rest on (--no-probe leaves it out)");
  ASSIGN_OR_RETURN(const HostProfile profile, MeasureProfile(std::move(launch), context.engine_descriptor,
                                                             has_model ? model_ : nullptr, verbosity_.ShowProgress()));
  return WriteWholeFile(path, HostProfileJson(profile));
}

absl::Status SweepVerb::Run(const RunContext& context) {
  verbosity_.Apply();
  if (!report_.directories.empty()) return ReportSweep(report_);
  RETURN_IF_ERROR(Prepare(context));
  RETURN_IF_ERROR(WriteStdout(LoadAndSplitText(options_) + "\n"));
  if (options_.cluster.dry_run) return PrintPlan(context);
  RETURN_IF_ERROR(SkipFinished());
  RETURN_IF_ERROR(ProbeHosts(context));
  for (SweepLaunch& launch : Launches()) RETURN_IF_ERROR(RunLaunch(std::move(launch), context));
  LogInfo(absl::StrCat(done_ - on_other_hosts_, " of ", all_, " points are in '", options_.directory, "'"));
  RETURN_IF_ERROR(ReportSweep({.directories = {options_.directory}, .remarks = false}));
  if (options_.lists.policies.size() > 1) RETURN_IF_ERROR(PrintPolicies());
  return EndOfSweep(all_, failed_, on_other_hosts_);
}

// Those of this sweep side by side; the file may have points of others.
absl::Status SweepVerb::PrintPolicies() const {
  absl::StatusOr<SweepRecords> records = ReadSweepFile(PathIn(options_.directory, kSweepFileName));
  if (!records.ok()) return WithExitCode(records.status(), ExitCode::kInputFile);
  absl::flat_hash_set<std::string> keys;
  for (const SweepConfig& point : PointsOf(options_.lists)) keys.insert(SweepKey(point));
  std::erase_if(records->points,
                [&](const SweepPoint& point) { return point.simulated || !keys.contains(SweepKey(point.config)); });
  return WriteStdout(PolicyTables(records->points));
}

// The report of what there is, which a second signal does without.
absl::Status SweepVerb::Stopped() const {
  if (done_ > 0) {
    const absl::Status report = ReportSweep({.directories = {options_.directory}, .remarks = false});
    if (!report.ok()) {
      LogInfo(absl::StrCat("no report: ", report.message()));
    }
    RETURN_IF_ERROR(WriteStdout(
        absl::StrCat("again:  ", JoinShellWords({"coordinator", "sweep", "report", options_.directory}), "\n")));
  }
  return absl::CancelledError(absl::StrCat(kInterrupted, " after ", done_ - on_other_hosts_, " of ", all_,
                                           " points; the same command goes on from here"));
}

// A point with a timeline of its own is launched alone.
std::vector<SweepLaunch> SweepVerb::Launches() const {
  const std::vector<SweepLaunch> launches = LaunchesOf(points_);
  if (!options_.trace) return launches;
  std::vector<SweepLaunch> traced;
  int64_t room = kMostSweepTraces - traces_;
  for (const SweepLaunch& launch : launches) {
    if (launch.front().repetition > 0) {
      traced.push_back(launch);
      continue;
    }
    SweepLaunch others;
    for (const SweepConfig& point : launch) {
      if (room-- > 0) {
        traced.push_back({point});
      } else {
        others.push_back(point);
      }
    }
    if (!others.empty()) traced.push_back(std::move(others));
  }
  return traced;
}

// Lets the job of this point write its timeline, if it is to have one.
absl::Status SweepVerb::BeginTrace(const SweepConfig& config, LaunchOptions* launch) const {
  if (!options_.trace || config.repetition > 0 || traces_ >= kMostSweepTraces) return absl::OkStatus();
  const std::filesystem::path path = std::filesystem::absolute(options_.directory) / SweepTraceName(config);
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    return InputFileError(absl::StrCat("--trace: cannot make '", path.parent_path().string(), "': ", error.message()));
  launch->job.set_trace(path.string());
  return absl::OkStatus();
}

absl::Status SweepVerb::RunLaunch(std::vector<SweepConfig> points, const RunContext& context) {
  while (!points.empty()) {
    if (SignalWatch::Get().stops() > 0 || SignalWatch::Get().drain()) return Stopped();
    ASSIGN_OR_RETURN(LaunchOptions launch, LaunchOf(points, context));
    if (points.size() == 1) RETURN_IF_ERROR(BeginTrace(points.front(), &launch));
    RETURN_IF_ERROR(RunPoints(launch, context, &points));
  }
  return absl::OkStatus();
}

absl::Status SweepVerb::RunPoints(const LaunchOptions& launch, const RunContext& context,
                                  std::vector<SweepConfig>* points) {
  SweepPoint point = NewPoint(points->front(), launch);
  absl::StatusOr<std::unique_ptr<ClusterRun>> opened =
      ClusterRun::Open(launch, context.engine_descriptor, verbosity_.ShowProgress());
  if (!opened.ok()) return opened.status();  // of the options: the others would fail alike
  ClusterRun* const cluster = opened->get();
  SweepRunner runner(cluster, model_->hyper.vocab);
  absl::StatusOr<std::vector<ArrivingRequest>> requests = RequestsOf(points->front());
  absl::Status status = requests.ok() ? runner.Begin(points->front(), *requests) : requests.status();
  const bool ready = status.ok(), traced = !launch.job.trace().empty();
  while (status.ok() && !points->empty()) {
    point = NewPoint(points->front(), launch);
    status = RunPoint(points->front(), cluster, &runner, &point);
    cluster->progress().Clear();
    if (absl::IsCancelled(status) || (!status.ok() && !runner.alive())) break;
    point.error = status.ok() ? "" : WithFlags(status.message());
    const bool draining = cluster->DrainRequested();
    KeepHostsThatRan(launch, &point);
    if (traced) {  // this is the launch's only point
      cluster->Finish();
      point.trace = KeepTrace(launch.job.trace(), options_.directory, point.config, names_->Of(points->front()));
      if (!point.trace.empty()) ++traces_;
    }
    points->erase(points->begin());
    RETURN_IF_ERROR(Record(point));  // the job ends with `opened`
    status = absl::OkStatus();
    if (draining && !points->empty()) status = absl::CancelledError(kInterrupted);
  }
  if (!traced || !points->empty()) cluster->Finish();
  if (traced && !points->empty()) {  // of a part of a point
    std::error_code ignored;
    std::filesystem::remove(launch.job.trace(), ignored);
  }
  if (absl::IsCancelled(status)) return Stopped();
  if (status.ok()) return status;
  // What keeps a job from coming up keeps all of its points from being measured; else only this one, and the others get
  // a launch of their own.
  const size_t lost = ready ? 1 : points->size();
  for (size_t i = 0; i < lost; ++i) {
    SweepPoint failed = i == 0 ? point : NewPoint((*points)[i], launch);
    failed.error = WithFlags(status.message());
    failed.result = SweepResult();
    RETURN_IF_ERROR(Record(std::move(failed)));
  }
  points->erase(points->begin(), points->begin() + static_cast<std::ptrdiff_t>(lost));
  return absl::OkStatus();
}

absl::Status SweepVerb::RunPoint(const SweepConfig& config, ClusterRun* cluster, SweepRunner* runner,
                                 SweepPoint* point) {
  cluster->progress().Draw(
      ProgressText("sweep", static_cast<double>(done_) / static_cast<double>(all_), names_->Of(config)));
  ASSIGN_OR_RETURN(std::vector<ArrivingRequest> requests, RequestsOf(config));
  RETURN_IF_ERROR(runner->Run(config, std::move(requests), &point->result, &point->stages));
  point->origin.bf16_dot = cluster->ready()->bf16_dot();
  point->result.load_s = cluster->LoadSeconds();
  if (point->result.failed > 0) {
    return absl::InternalError(absl::StrCat(point->result.failed, " requests could not be computed"));
  }
  return absl::OkStatus();
}

// A host that does not answer is left out of a launch: what the others then give is a point of its own.
void SweepVerb::KeepHostsThatRan(const LaunchOptions& launch, SweepPoint* point) {
  const std::string others = OtherHostsThatRan(launch, point->stages);
  if (others.empty()) return;
  if (point->ok()) ++on_other_hosts_;
  LogInfo(absl::StrCat("'", names_->Of(point->config), "' ran on ", others, ", for a host of ", point->config.hosts,
                       " was left out; this is kept as a point of those hosts, and the same command measures the one "
                       "that was meant"));
  point->config.hosts = others;
}

absl::Status SweepVerb::Record(SweepPoint point) {
  if (absl::Status status = file_->Append(point); !status.ok()) return WithExitCode(status, ExitCode::kInputFile);
  ++done_;
  std::string text = absl::StrFormat("%d/%d  %s: ", done_, all_, names_->Of(point.config));
  if (point.ok()) {
    const SweepResult& r = point.result;
    absl::StrAppendFormat(&text, "%s output tokens/s, TTFT %.3f s, ITL %.2f ms, bubble %.1f %%",
                          FigureText(r.output_tokens_per_s), r.ttft_s.p50, r.itl_s.p50 * 1e3, 100 * r.bubble);
    if (r.guesses > 0) {
      absl::StrAppendFormat(&text, ", %d of %d guesses right (accepted %.1f %%), %.3f s void", r.guesses_right,
                            r.guesses, 100 * r.accepted_share, r.void_s);
    }
    if (r.tokens_per_core_hour > 0) {
      absl::StrAppend(&text, ", ", FigureText(r.tokens_per_core_hour), " tokens a core-hour");
    }
    if (point.prediction.has_value()) {
      absl::StrAppend(&text, " (predicted ", FigureText(point.prediction->output_tokens_per_s), " output tokens/s)");
    }
  } else {
    ++failed_;
    absl::StrAppend(&text, "failed: ", point.error);
  }
  return WriteStdout(text + "\n");
}

}  // namespace

std::unique_ptr<Verb> MakeSweepVerb() { return std::make_unique<SweepVerb>(); }

}  // namespace stagecoach
