// bench: how fast a model runs, as a table.

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "common/host/private_dir.h"
#include "common/job/job_limits.h"
#include "common/json/json_value.h"
#include "common/obs/step_log.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/bench/bench_measure.h"
#include "coordinator/bench/bench_plan.h"
#include "coordinator/bench/bench_report.h"
#include "coordinator/bench/bench_work.h"
#include "coordinator/cli/bench/account_text.h"
#include "coordinator/cli/bench/bench_serve.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/options/sampling_options.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/session/cluster_run.h"

namespace stagecoach {
namespace {

constexpr IntegerRange kTokensRange = {0, 1 << 24};
constexpr int64_t kMostStagesOfAWorld = 16;  // expected, where their number is not known before the job is ready
constexpr IntegerRange kRepetitionsRange = {1, 10000};

class BenchVerb : public Verb {
 public:
  BenchVerb()
      : Verb("bench", "measure how fast a model runs here, beside what the machine can do",
             "coordinator bench --load-format dummy --shape qwen3-0.6b --type q8_0 -p 512 -n 64 -b 1,8 --pp 1,2") {
    cluster_options_.policy = Policy::kPrefillFirst;
    cluster_options_.prefix_caching = false;       // what is measured is the computing
    cluster_options_.speculate = Speculate::kOff;  // made-up texts foretell nothing, or everything
  }
  bool NeedsCluster() const override { return !cluster_options_.dry_run && !serve_.given(); }
  void AddOptions(CLI::App* app) override;
  absl::Status Run(const RunContext& context) override;

 private:
  using Model = std::shared_ptr<const ModelDescription>;

  absl::Status Prepare(const RunContext& context);
  JobSettings SettingsOf(const BenchJob& job) const;
  absl::StatusOr<LaunchOptions> LaunchOf(const BenchJob& job, const ModelDescription& model,
                                         const RunContext& context) const;
  absl::Status CheckKernels(const RunContext& context);
  absl::Status RunJob(const BenchJob& job, const ModelDescription& model, const RunContext& context);
  absl::Status RunTests(const BenchJob& job, const ModelDescription& model, ClusterRun* cluster);
  absl::Status CheckPool(const BenchJob& job, const pb::JobReady& ready) const;
  absl::StatusOr<const HostPeaks*> PeaksFor(const pb::JobReady& ready);  // nullptr: not known
  absl::StatusOr<const HostPeaks*> PeaksOfThreads(int64_t threads);
  absl::Status Report(BenchRecord record);
  absl::Status DescribeStages(const pb::JobReady& ready, bool checked);
  void ReportGuesses(const pb::JobStatistics& job);
  absl::Status ReportAccounts(const std::string& step_log);
  absl::Status RunTest(const BenchTest& test, const ModelWork& work, const HostPeaks* peaks, BenchRunner* runner,
                       BenchRecord* record);
  BenchRecord RecordOf(const BenchJob& job, const ModelDescription& model, const pb::JobReady& ready) const;
  void DrawProgress(ClusterRun* cluster, const BenchTest& test) const;

  // From the command line.
  BenchServe serve_;
  ClusterOptions cluster_options_;
  Verbosity verbosity_;
  BenchLists lists_;
  SamplingOptions sampling_options_;
  int64_t repetitions_ = 5;
  BenchFormat format_ = BenchFormat::kMarkdown;
  bool account_ = false;

  // While running.
  std::vector<BenchTest> tests_;
  std::vector<BenchJob> jobs_;
  std::vector<Model> models_;  // of the jobs
  std::string stage_worker_;
  KernelReport kernels_;
  std::unique_ptr<BenchWriter> writer_;
  int64_t done_ = 0;     // tests, of all jobs
  std::string guesses_;  // what became of them, of all jobs

  // With account_. The job's step log has what is told of its tests once it has ended.
  std::string directory_, step_log_;    // of ours; empty: the user's own is read
  std::vector<AccountedStage> stages_;  // of the job
  std::vector<BenchRecord> records_;    // of the job
  std::string accounts_;                // of all jobs
};

void BenchVerb::AddOptions(CLI::App* app) {
  AddTexts(app, "-m,--model", &lists_.models, "FILE", "the model, a GGUF file; may be given several times");
  AddDummyOptions(app, &cluster_options_.dummy, /*several=*/true);
  AddJobSettings(app, &cluster_options_, Settings({"q2_layout"}));
  AddIntegerList(app, "-p,--n-prompt", &lists_.prompts, kTokensRange, "tokens of a prompt, 0 for none (512)");
  AddIntegerList(app, "-n,--n-gen", &lists_.generated, kTokensRange,
                 "tokens that a sequence decodes, 0 for none (128)");
  AddIntegerList(app, "-d,--n-depth", &lists_.depths, kTokensRange, "tokens of context before those (0)");
  AddIntegerList(app, "-b,--n-parallel", &lists_.sequences, JobLimits::kMaxNumSeqs.range,
                 "sequences that decode at once (1)");
  AddFlag(app, "--equal-sequences", &lists_.equal_sequences,
          "give all sequences that decode at once the same tokens, so that they choose the same experts");
  AddJobSettingList(app, "stages", &lists_.stages);
  AddJobSettings(app, &cluster_options_, Settings({"layer_split"}));
  AddJobSettingList(app, "threads", &lists_.threads);
  AddInteger(app, "-r,--repetitions", &repetitions_, kRepetitionsRange, "of every test, after one to warm up");
  AddChoice(app, "-o,--output", &format_, kBenchFormats, "form of the result");
  AddFlag(app, "--account", &account_,
          "where the time of a step goes: every part of every stage, with what it reads, and what lies between them");
  AddVerbosityOptions(app, &verbosity_);
  AddGivenSamplingOptions(app, &sampling_options_);
  AddJobSettings(app, &cluster_options_,
                 AllSettingsBut({"q2_layout", "context", "stages", "layer_split", "threads", "max_num_seqs"}));
  AddLaunchOptions(app, &cluster_options_);
  serve_.AddTo(app);
}

// With the number of micro-batches that are in flight.
JobSettings BenchVerb::SettingsOf(const BenchJob& job) const {
  JobSettings settings = cluster_options_;
  if (settings.micro_batches > 0) return settings;
  // Decode rows may go round in one more group than there are stages.
  settings.micro_batches = 1 + (job.stages > 0 ? job.stages : kMostStagesOfAWorld);
  settings.micro_batches = std::max(settings.micro_batches, settings.decode_groups);
  return settings;
}

// Opens every model and checks every job against it, before anything starts.
absl::Status BenchVerb::Prepare(const RunContext& context) {
  ASSIGN_OR_RETURN(lists_.models, ModelsOf(lists_.models, cluster_options_.dummy, /*required=*/true));
  tests_ = TestsOf(lists_);
  if (tests_.empty()) return UsageError("there is nothing to measure: -p and -n are both 0");
  if (account_ && format_ == BenchFormat::kCsv) {
    return UsageError("--account: a table of csv has no place for it; give -o md, json or jsonl");
  }
  if (lists_.equal_sequences && cluster_options_.prefix_caching) {
    return UsageError(
        "--equal-sequences: the prefix cache would compute their prompt once for all; leave out "
        "--enable-prefix-caching");
  }
  const int64_t most = *std::max_element(lists_.sequences.begin(), lists_.sequences.end());
  if (most > cluster_options_.max_num_batched_tokens) {
    return UsageError(absl::StrCat("-b: ", most, " sequences do not fit a micro-batch of ",
                                   cluster_options_.max_num_batched_tokens, " rows; raise --max-num-batched-tokens"));
  }
  const bool placed_elsewhere = context.joined || !cluster_options_.hostfile.empty() || !cluster_options_.hosts.empty();
  const auto split_stages = static_cast<int64_t>(cluster_options_.layer_split.size());
  if (!placed_elsewhere) {
    std::replace(lists_.stages.begin(), lists_.stages.end(), int64_t{0}, std::max<int64_t>(1, split_stages));
  }
  jobs_ = JobsOf(lists_);
  if (context.joined && jobs_.size() > 1) {
    return UsageError(absl::StrCat("mpirun or srun has started one job, but the lists make ", jobs_.size(),
                                   "; give one model, one --pp and one -t, or start the coordinator alone"));
  }
  for (const BenchJob& job : jobs_) {
    const bool same = !models_.empty() && jobs_[models_.size() - 1].model == job.model;
    Model model = same ? models_.back() : nullptr;
    if (model == nullptr) {
      ASSIGN_OR_RETURN(model, OpenDescription(job.model, cluster_options_.q2_layout));
    }
    models_.push_back(model);
    RETURN_IF_ERROR(CheckFits(tests_, SettingsOf(job), job.model, model->hyper.context));
    RETURN_IF_ERROR(LaunchOf(job, *model, context).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<LaunchOptions> BenchVerb::LaunchOf(const BenchJob& job, const ModelDescription& model,
                                                  const RunContext& context) const {
  ClusterOptions options = cluster_options_;
  options.model = job.model;
  options.stages = job.stages;
  options.threads = job.threads;
  options.max_num_seqs = *std::max_element(lists_.sequences.begin(), lists_.sequences.end());
  options.context = 0;
  const JobSettings settings = SettingsOf(job);
  for (const BenchTest& test : tests_) options.context = std::max(options.context, ContextOf(test, settings));
  ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(options, model, context));
  launch.relaunch_timeout = absl::ZeroDuration();
  launch.max_losses = 1;  // a relaunch spoils the measurement
  launch.job.set_step_account(account_);
  if (!step_log_.empty()) launch.job.set_step_log(step_log_);
  return launch;
}

absl::Status BenchVerb::Run(const RunContext& context) {
  verbosity_.Apply();
  if (serve_.given()) return serve_.Run(verbosity_.ShowProgress());
  RETURN_IF_ERROR(Prepare(context));
  if (cluster_options_.dry_run) {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      ASSIGN_OR_RETURN(const LaunchOptions launch, LaunchOf(jobs_[i], *models_[i], context));
      RETURN_IF_ERROR(PrintLaunch(launch));
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckKernels(context));
  if (account_ && cluster_options_.step_log.empty()) {
    ASSIGN_OR_RETURN(directory_, MakePrivateDirectory(std::filesystem::temp_directory_path()));
    step_log_ = directory_ + "/steps.jsonl";
  }
  writer_ = std::make_unique<BenchWriter>(format_);
  absl::Status status;
  for (size_t i = 0; i < jobs_.size() && status.ok(); ++i) status = RunJob(jobs_[i], *models_[i], context);
  RemovePrivateDirectories({directory_});
  if (absl::Status printed = WriteStdout(writer_->End() + guesses_ + accounts_); status.ok()) status = printed;
  return status;
}

std::string PeaksText(const HostPeaks& peaks) {
  return absl::StrFormat("%d %s read %.1f GB/s and do %.0f int8, %.0f bf16, %.0f f32 GOP/s", peaks.threads,
                         peaks.threads == 1 ? "thread" : "threads", peaks.read_gbps, peaks.gops.at("int8"),
                         peaks.gops.at("bf16"), peaks.gops.at("f32"));
}

absl::Status BenchVerb::CheckKernels(const RunContext& context) {
  ASSIGN_OR_RETURN(const LaunchOptions launch, LaunchOf(jobs_.front(), *models_.front(), context));
  absl::StatusOr<std::string> stage_worker = FindStageWorker(launch);
  if (!stage_worker.ok()) return WithExitCode(stage_worker.status(), ExitCode::kLaunch);
  stage_worker_ = *std::move(stage_worker);
  // What the stages will have is known once they run; PeaksFor measures what this leaves out.
  std::set<int64_t> threads;
  for (const BenchJob& job : jobs_) {
    const int64_t wanted = job.threads * std::max<int64_t>(job.stages, 1);
    threads.insert(wanted == 0 ? AllowedCores() : std::min<int64_t>(wanted, AllowedCores()));
  }
  ASSIGN_OR_RETURN(kernels_, CheckKernelsOfHost(stage_worker_, cluster_options_.isa, {threads.begin(), threads.end()}));
  if (!kernels_.valid) {
    const std::string text = absl::StrCat("INVALID: the kernels of ", kernels_.isa,
                                          " differ from the scalar ones: ", absl::StrJoin(kernels_.differences, "; "));
    if (format_ == BenchFormat::kMarkdown) RETURN_IF_ERROR(WriteStdout(text + "\n"));
    return absl::FailedPreconditionError(text);
  }
  std::string text = absl::StrCat("VALID: the kernels of ", kernels_.isa, " and the scalar ones agree in ",
                                  kernels_.comparisons, " comparisons");
  for (const HostPeaks& peaks : kernels_.peaks) absl::StrAppend(&text, "; ", PeaksText(peaks));
  const std::string sampling = SamplingText(GivenSampling(sampling_options_));
  if (sampling != "greedy") absl::StrAppend(&text, "\nsampling: ", sampling);
  if (const std::string link = EmulatedLinkText(cluster_options_.emulated_link); !link.empty()) {
    absl::StrAppend(&text, "\nlinks between all ranks are emulated: ", link);
  }
  if (format_ == BenchFormat::kMarkdown) return WriteStdout(text + "\n\n");
  LogInfo(text);
  return absl::OkStatus();
}

// The ceilings of what the stages compute with together; more threads than there are cores do as much as those.
absl::StatusOr<const HostPeaks*> BenchVerb::PeaksFor(const pb::JobReady& ready) {
  int64_t threads = 0;
  for (const pb::StageSummary& stage : ready.stages()) {
    threads += stage.threads();
    if (stage.host() == HostName() && InstructionSetName(stage.isa()) == kernels_.isa) continue;
    LogInfo(absl::StrCat("stage ", stage.stage(), " runs the kernels of ", InstructionSetName(stage.isa()), " on ",
                         stage.host(), ", which were not checked and whose ceilings are not known: no shares"));
    return nullptr;
  }
  return PeaksOfThreads(std::min<int64_t>(threads, AllowedCores()));
}

absl::StatusOr<const HostPeaks*> BenchVerb::PeaksOfThreads(int64_t threads) {
  if (kernels_.PeaksOf(threads) == nullptr) {
    ASSIGN_OR_RETURN(const KernelReport more, CheckKernelsOfHost(stage_worker_, cluster_options_.isa, {threads}));
    for (const HostPeaks& peaks : more.peaks) {
      LogInfo(PeaksText(peaks));
      kernels_.peaks.push_back(peaks);
    }
  }
  return kernels_.PeaksOf(threads);
}

absl::Status BenchVerb::RunJob(const BenchJob& job, const ModelDescription& model, const RunContext& context) {
  ASSIGN_OR_RETURN(LaunchOptions launch, LaunchOf(job, model, context));
  launch.job.set_step_log_append(&job != &jobs_.front());
  launch.job.set_trace_append(&job != &jobs_.front());
  const std::string step_log = launch.job.step_log();
  ASSIGN_OR_RETURN(const std::unique_ptr<ClusterRun> cluster,
                   ClusterRun::Open(std::move(launch), context.engine_descriptor, verbosity_.ShowProgress()));
  absl::Status status = RunTests(job, model, cluster.get());
  const RunSummary summary = cluster->Finish();
  if (absl::Status reported = ReportAccounts(step_log); status.ok()) status = reported;
  if (summary.job.has_value()) ReportGuesses(*summary.job);
  return status;
}

// Of all tests of a job, warming up included.
void BenchVerb::ReportGuesses(const pb::JobStatistics& job) {
  std::string text = GuessText(job);
  if (text.empty()) return;
  text.replace(0, text.find_first_of("0123456789"),
               absl::StrCat("guesses over ", CountOf(job.stages_size(), "stage"), ": "));
  if (format_ == BenchFormat::kMarkdown) {
    absl::StrAppend(&guesses_, guesses_.empty() ? "\n" : "", text);
  } else {
    LogInfo(absl::StripSuffix(text, "\n"));
  }
}

absl::Status BenchVerb::Report(BenchRecord record) {
  if (!account_) return WriteStdout(writer_->Row(record));
  records_.push_back(std::move(record));
  return absl::OkStatus();
}

// What the account says of the job's stages. Their share of a bandwidth is of what their own threads read alone.
absl::Status BenchVerb::DescribeStages(const pb::JobReady& ready, bool checked) {
  stages_.clear();
  for (const pb::StageSummary& stage : ready.stages()) {
    AccountedStage& about = stages_.emplace_back();
    about.name =
        absl::StrCat("stage ", stage.stage(), ", layers ", stage.first_layer(), "-", stage.last_layer() - 1, ", ",
                     stage.threads(), stage.threads() == 1 ? " thread" : " threads", " on ", stage.host());
    if (!checked) continue;
    ASSIGN_OR_RETURN(const HostPeaks* peaks, PeaksOfThreads(std::min<int64_t>(stage.threads(), AllowedCores())));
    about.read_gbps = peaks->read_gbps;
  }
  return absl::OkStatus();
}

// Of the tests that the job has run; its log is complete. What was measured is printed, also without an account.
absl::Status BenchVerb::ReportAccounts(const std::string& step_log) {
  if (records_.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<StepRecord>> steps = ReadStepLog(step_log);
  absl::Status status = steps.status();
  for (BenchRecord& record : std::exchange(records_, {})) {
    std::vector<LoadWindow> windows;
    for (const BenchSample& sample : record.samples) windows.push_back({sample.begin_us, sample.us});
    const absl::StatusOr<LoadAccount> account = steps.ok() ? AccountOf(*steps, windows) : steps.status();
    if (account.ok()) {
      record.account = std::make_shared<const Json>(LoadAccountJson(*account));
      if (format_ == BenchFormat::kMarkdown) {
        absl::StrAppend(&accounts_, AccountText(record.test.Name(), *account, stages_));
      }
    } else if (status.ok()) {
      status = account.status();
    }
    RETURN_IF_ERROR(WriteStdout(writer_->Row(record)));
  }
  return status;
}

// Whether the pool that the stages agreed on holds all sequences of every test at once.
absl::Status BenchVerb::CheckPool(const BenchJob& job, const pb::JobReady& ready) const {
  for (const BenchTest& test : tests_) {
    const int64_t blocks = BlocksOf(test, SettingsOf(job), ready.block_tokens());
    if (blocks <= ready.blocks()) continue;
    return UsageError(absl::StrCat("-b, -d: ", test.Name(), " needs ", blocks, " KV blocks of ", ready.block_tokens(),
                                   " tokens, the stages have room for ", ready.blocks(),
                                   "; ask for fewer, or give --kv-cache-memory or more stages"));
  }
  return absl::OkStatus();
}

absl::Status BenchVerb::RunTests(const BenchJob& job, const ModelDescription& model, ClusterRun* cluster) {
  ASSIGN_OR_RETURN(const ModelWork work, CountWork(model, cluster_options_.kv_type));
  BenchRunner runner(cluster, SettingsOf(job), model.hyper.vocab, GivenSampling(sampling_options_));
  RETURN_IF_ERROR(cluster->AwaitReady());
  RETURN_IF_ERROR(CheckPool(job, *cluster->ready()));
  if (const std::string small = HugePageText(cluster->ready()->stages()); !small.empty()) LogInfo(small);
  ASSIGN_OR_RETURN(const HostPeaks* found, PeaksFor(*cluster->ready()));
  const HostPeaks kept = found == nullptr ? HostPeaks() : *found;  // more may be measured, and move them
  const HostPeaks* const peaks = found == nullptr ? nullptr : &kept;
  if (account_) RETURN_IF_ERROR(DescribeStages(*cluster->ready(), peaks != nullptr));
  for (const BenchTest& test : tests_) {
    DrawProgress(cluster, test);
    BenchRecord record = RecordOf(job, model, *cluster->ready());
    if (absl::Status status = RunTest(test, work, peaks, &runner, &record); !status.ok()) {
      if (!absl::IsCancelled(status)) return status;
      return absl::CancelledError(
          absl::StrCat("interrupted after ", done_, " of ", tests_.size() * jobs_.size(), " tests"));
    }
    cluster->progress().Clear();
    RETURN_IF_ERROR(Report(std::move(record)));
    ++done_;
  }
  return absl::OkStatus();
}

absl::Status BenchVerb::RunTest(const BenchTest& test, const ModelWork& work, const HostPeaks* peaks,
                                BenchRunner* runner, BenchRecord* record) {
  record->test = test;
  record->test_time = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  record->checked = peaks != nullptr;
  if (record->checked) record->cpu_info = kernels_.cpu;
  RETURN_IF_ERROR(runner->WarmUp(test));
  for (int64_t i = 0; i < repetitions_; ++i) {
    ASSIGN_OR_RETURN(const BenchSample sample, runner->Run(test));
    record->samples.push_back(sample);
    record->rates.push_back(RatesOf(work, test, sample, kernels_, peaks));
  }
  return absl::OkStatus();
}

BenchRecord BenchVerb::RecordOf(const BenchJob& job, const ModelDescription& model, const pb::JobReady& ready) const {
  BenchRecord record;
  record.build = kProgramVersion;
  record.model_filename = job.model;
  record.model = SummarizeModel(model);
  record.n_batch = cluster_options_.max_num_batched_tokens;
  record.n_ubatch = std::min(cluster_options_.prefill_chunk, cluster_options_.max_num_batched_tokens);
  record.n_stages = ready.stages_size();
  record.type_kv = KvTypeName(cluster_options_.kv_type);
  record.emulated_link = EmulatedLinkText(cluster_options_.emulated_link);
  record.speculate = NameOf(kSpeculations, cluster_options_.speculate);
  record.sampling = GivenSampling(sampling_options_);
  for (const pb::StageSummary& stage : ready.stages()) {
    record.isa = InstructionSetName(stage.isa());
    record.n_threads = stage.threads();
  }
  return record;
}

void BenchVerb::DrawProgress(ClusterRun* cluster, const BenchTest& test) const {
  const double all = static_cast<double>(tests_.size() * jobs_.size());
  cluster->progress().Draw(ProgressText("bench", static_cast<double>(done_) / all, test.Name()));
}

}  // namespace

std::unique_ptr<Verb> MakeBenchVerb() { return std::make_unique<BenchVerb>(); }

}  // namespace stagecoach
