// sweep: measures a matrix of configurations, each point by launching it, into a file that a second run continues.

#include <algorithm>
#include <filesystem>

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
#include "coordinator/cli/verb.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/front/signals.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/report/write_report.h"
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

void AddReport(CLI::App* sweep, std::string* directory) {
  CLI::App* report =
      sweep->add_subcommand("report", "write report.html, points.csv and figures/*.svg of finished points");
  report->group("Commands");
  report->footer(absl::StrCat(kExamplePrefix, "coordinator sweep report results"));
  report
      ->add_option("directory", *directory,
                   absl::StrCat("where a sweep or simulate left its ", kSweepFileName,
                                "; the report is written beside it, and takes the place of an earlier one"))
      ->type_name("DIR")
      ->check([](const std::string& given) { return given.empty() ? "the directory's name is empty" : std::string(); })
      ->required();
}

std::string PathIn(const std::string& directory, const char* name) {
  return (std::filesystem::path(directory) / name).string();
}

// The points of a sweep's directory. Lines that are no points are logged and skipped.
absl::StatusOr<SweepRecords> ReadPoints(const std::string& directory) {
  const std::string path = PathIn(directory, kSweepFileName);
  absl::StatusOr<SweepRecords> records = ReadSweepFile(path);
  if (!records.ok()) return WithExitCode(records.status(), ExitCode::kInputFile);
  for (const std::string& refused : records->refused) {
    LogInfo(absl::StrCat("'", path, "': ", refused, "; this line is passed over"));
  }
  return records;
}

// Writes the report of the points in the directory, beside them, and prints where it is.
absl::Status ReportSweep(const std::string& directory) {
  const std::string path = PathIn(directory, kSweepFileName);
  ASSIGN_OR_RETURN(const SweepRecords records, ReadPoints(directory));
  if (records.cut) LogInfo(absl::StrCat("'", path, "': the last line is cut off; it is passed over"));
  if (records.points.empty()) {
    return InputFileError(absl::StrCat("'", path, "' has no points; a sweep puts them there"));
  }
  absl::StatusOr<SweepReportFiles> files = WriteSweepReport(records.points, directory);
  if (!files.ok()) return WithExitCode(files.status(), ExitCode::kInputFile);
  return WriteStdout(absl::StrCat("report: ", files->page, " (", files->figures.size(), " figures, ",
                                  records.points.size(), " points; the numbers in ", files->table, ")\n"));
}

class SweepVerb : public Verb {
 public:
  SweepVerb()
      : Verb("sweep", "measure a model over a matrix of configurations",
             "coordinator sweep --load-format dummy --shape qwen3-0.6b --type q8_0 --pp 1,2 --concurrency 1,8,32 -o "
             "DIR") {}
  bool NeedsCluster() const override { return !options_.cluster.dry_run && report_directory_.empty(); }
  void AddOptions(CLI::App* app) override;
  absl::Status Run(const RunContext& context) override;

 private:
  absl::Status Prepare(const RunContext& context);
  absl::StatusOr<LaunchOptions> LaunchOf(const std::vector<SweepConfig>& points, const RunContext& context) const;
  absl::Status PrintPlan(const RunContext& context) const;
  absl::Status PrintPolicies() const;
  absl::Status SkipFinished();
  absl::Status ProbeHosts(const RunContext& context);
  absl::Status WriteOwnProfile(const std::string& path, const RunContext& context) const;
  absl::Status RunLaunch(std::vector<SweepConfig> points, const RunContext& context);
  // Measures points from the front of the list on, until all are done or the job is gone.
  absl::Status RunPoints(const LaunchOptions& launch, const RunContext& context, std::vector<SweepConfig>* points);
  absl::Status RunPoint(const SweepConfig& config, ClusterRun* cluster, SweepRunner* runner, SweepPoint* point);
  SweepOrigin OriginOf(const SweepConfig& config) const;
  SweepPoint NewPoint(const SweepConfig& config, const LaunchOptions& launch) const;
  absl::Status Record(SweepPoint point);
  absl::Status Stopped() const;

  SweepOptions options_;
  std::string report_directory_;  // of `sweep report`; empty: a sweep is run
  bool probed_ = false;           // options_.sources.profile is this sweep's own
  Verbosity verbosity_;
  std::shared_ptr<const ModelDescription> model_;
  std::vector<SweepConfig> points_;  // still to be measured
  std::unique_ptr<SweepFile> file_;
  int64_t all_ = 0, done_ = 0, failed_ = 0;
};

void SweepVerb::AddOptions(CLI::App* app) {
  AddSweepOptions(app, &options_);
  AddReport(app, &report_directory_);
  AddVerbosityOptions(app, &verbosity_);
}

// Checks everything that can be checked before anything starts.
absl::Status SweepVerb::Prepare(const RunContext& context) {
  if (context.joined) {
    return UsageError("sweep launches a job for every configuration; start it without mpirun or srun");
  }
  RETURN_IF_ERROR(ResolveSweepLists(&options_));
  ASSIGN_OR_RETURN(model_, OpenDescription(options_.cluster.model, options_.cluster.q2_layout));
  // The facts of the predictions: if they cannot be read, no measurement would have a prediction.
  for (const std::string& facts : {options_.sources.profile, options_.sources.cluster}) {
    if (facts.empty()) continue;
    if (absl::Status read = ReadHostProfile(facts).status(); !read.ok()) return InputFileError(read.message());
  }
  points_ = PointsOf(options_.lists);
  all_ = static_cast<int64_t>(points_.size());
  for (const SweepConfig& point : points_) {
    if (point.repetition > 0) break;  // the same again
    ASSIGN_OR_RETURN(const LaunchOptions launch, LaunchOf({point}, context));
    if (absl::Status hosts = ResolveHosts(launch).status(); !hosts.ok()) return UsageError(hosts.message());
  }
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
  ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(options, model_->hyper, context));
  launch.relaunch_timeout = absl::ZeroDuration();
  launch.max_losses = 1;  // a relaunch spoils the measurement
  return launch;
}

SweepOrigin SweepVerb::OriginOf(const SweepConfig& config) const {
  SweepOrigin origin = CurrentOrigin(*model_);
  origin.command = CommandOf(options_, config);
  origin.started_at = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  origin.file_bytes = TotalBytes(model_->file->fingerprints());
  origin.header_hash = absl::StrCat(absl::Hex(model_->file->fingerprints()[0].header_hash, absl::kZeroPad16));
  origin.processor = ProcessorName();
  origin.cores = AllowedCores();
  origin.load_average = std::max(0.0, LoadAverage());
  return origin;
}

SweepPoint SweepVerb::NewPoint(const SweepConfig& config, const LaunchOptions& launch) const {
  SweepPoint point;
  point.config = config;
  point.origin = OriginOf(config);
  const absl::StatusOr<std::vector<ArrivingRequest>> requests = RequestsOf(config);
  if (!requests.ok()) return point;
  const ClusterOptions options = ClusterOptionsOf(options_, config, ContextOf(*requests));
  absl::StatusOr<SweepPrediction> prediction =
      PredictPoint(config, *requests, options, options_.sources, launch, model_);
  if (prediction.ok()) {
    point.prediction = *std::move(prediction);
    if (probed_) point.prediction->source = "probe";
  } else {
    LogVerbose(absl::StrCat("no prediction: ", WithFlags(prediction.status().message())));
  }
  return point;
}

absl::Status SweepVerb::PrintPlan(const RunContext& context) const {
  const std::vector<SweepLaunch> launches = LaunchesOf(points_);
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
        expected = absl::StrFormat("~%.4g output tokens/s", point.prediction->output_tokens_per_s);
      }
      if (config.duration_s > 0) takes = config.duration_s;
      known = known && (point.prediction.has_value() || config.duration_s > 0);
      seconds += kPointSeconds + takes;
      const bool timed = config.duration_s > 0 && config.concurrency > 0;  // as many as then end
      const std::string load =
          timed ? absl::StrFormat("%g s", config.duration_s) : absl::StrFormat("%d requests", requests.size());
      RETURN_IF_ERROR(
          WriteStdout(absl::StrFormat("%s  %s: %s, %s\n", SweepKey(config), PointName(config), load, expected)));
    }
  }
  return WriteStdout(absl::StrFormat(
      "%d points in %d launches, %s\n", points_.size(), launches.size(),
      known ? absl::StrFormat("about %.0f s if the predictions hold", seconds) : "of unknown duration"));
}

// Leaves out the points that the file has; one that failed is tried again.
absl::Status SweepVerb::SkipFinished() {
  const std::string path = PathIn(options_.directory, kSweepFileName);
  ASSIGN_OR_RETURN(file_, OpenSweepFile(options_.directory));
  ASSIGN_OR_RETURN(const SweepRecords records, ReadPoints(options_.directory));
  const SweepOrigin now = OriginOf(points_.front());
  absl::flat_hash_set<std::string> finished;
  bool told = false;
  for (const SweepPoint& point : records.points) {
    if (!point.ok() || point.simulated) continue;
    if (point.config.model == options_.lists.base.model &&
        (point.origin.file_bytes != now.file_bytes || point.origin.header_hash != now.header_hash)) {
      return InputFileError(absl::StrCat("'", path, "' has points of '", point.config.model,
                                         "' as it was before: its file is another one now; give another -o"));
    }
    if (!told && point.origin.program_version != now.program_version) {
      LogInfo(absl::StrCat("'", path, "' has points of version ", point.origin.program_version, ", this is ",
                           now.program_version, "; they are kept, but do not compare them"));
      told = true;
    }
    finished.insert(SweepKey(point.config));
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
  } else {
    LogInfo(absl::StrCat("no probe, so predictions rest on assumed speeds: ", WithFlags(status.message())));
  }
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
  if (!report_directory_.empty()) return ReportSweep(report_directory_);
  RETURN_IF_ERROR(Prepare(context));
  if (options_.cluster.dry_run) return PrintPlan(context);
  RETURN_IF_ERROR(SkipFinished());
  RETURN_IF_ERROR(ProbeHosts(context));
  for (SweepLaunch& launch : LaunchesOf(points_)) RETURN_IF_ERROR(RunLaunch(std::move(launch), context));
  LogInfo(absl::StrCat(done_, " of ", all_, " points are in '", options_.directory, "'"));
  RETURN_IF_ERROR(ReportSweep(options_.directory));
  if (options_.lists.policies.size() > 1) RETURN_IF_ERROR(PrintPolicies());
  if (failed_ == 0) return absl::OkStatus();
  return WithExitCode(
      absl::UnavailableError(absl::StrCat(failed_, " of ", all_, " points failed; the same command tries them again")),
      ExitCode::kLostStages);
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

absl::Status SweepVerb::Stopped() const {
  return absl::CancelledError(
      absl::StrCat(kInterrupted, " after ", done_, " of ", all_, " points; the same command goes on from here"));
}

absl::Status SweepVerb::RunLaunch(std::vector<SweepConfig> points, const RunContext& context) {
  while (!points.empty()) {
    if (SignalWatch::Get().stops() > 0 || SignalWatch::Get().drain()) return Stopped();
    ASSIGN_OR_RETURN(const LaunchOptions launch, LaunchOf(points, context));
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
  const bool ready = status.ok();
  while (status.ok() && !points->empty()) {
    point = NewPoint(points->front(), launch);
    status = RunPoint(points->front(), cluster, &runner, &point);
    cluster->progress().Clear();
    if (absl::IsCancelled(status) || (!status.ok() && !runner.alive())) break;
    point.error = status.ok() ? "" : WithFlags(status.message());
    points->erase(points->begin());
    RETURN_IF_ERROR(Record(point));  // the job ends with `opened`
    status = absl::OkStatus();
    if (cluster->DrainRequested() && !points->empty()) status = absl::CancelledError(kInterrupted);
  }
  cluster->Finish();
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
      ProgressText("sweep", static_cast<double>(done_) / static_cast<double>(all_), PointName(config)));
  ASSIGN_OR_RETURN(std::vector<ArrivingRequest> requests, RequestsOf(config));
  RETURN_IF_ERROR(runner->Run(config, std::move(requests), &point->result, &point->stages));
  point->origin.bf16_dot = cluster->ready()->bf16_dot();
  point->result.load_s = cluster->LoadSeconds();
  if (point->result.failed > 0) {
    return absl::InternalError(absl::StrCat(point->result.failed, " requests could not be computed"));
  }
  return absl::OkStatus();
}

absl::Status SweepVerb::Record(SweepPoint point) {
  if (absl::Status status = file_->Append(point); !status.ok()) return WithExitCode(status, ExitCode::kInputFile);
  ++done_;
  std::string text = absl::StrFormat("%d/%d  %s: ", done_, all_, PointName(point.config));
  if (point.ok()) {
    const SweepResult& r = point.result;
    absl::StrAppendFormat(&text, "%.4g output tokens/s, TTFT %.3f s, ITL %.2f ms, bubble %.1f %%",
                          r.output_tokens_per_s, r.ttft_s.p50, r.itl_s.p50 * 1e3, 100 * r.bubble);
    if (point.prediction.has_value()) {
      absl::StrAppendFormat(&text, " (predicted %.4g)", point.prediction->output_tokens_per_s);
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
