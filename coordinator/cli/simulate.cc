// simulate: how a run on a cluster would go, by the real engine and scheduler in simulated time. Reads the model's
// header alone.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/host_info.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "common/obs/step_log.h"
#include "common/obs/step_log_reader.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/bench/bench_work.h"
#include "coordinator/bench/sweep_file.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/job_options.h"
#include "coordinator/cli/plan_places.h"
#include "coordinator/cli/policy_comparison.h"
#include "coordinator/cli/probe_options.h"
#include "coordinator/cli/simulate_options.h"
#include "coordinator/cli/simulate_report.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/sweep_prediction.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/job/scheduler_setup.h"
#include "coordinator/job/trace_header.h"
#include "coordinator/sim/replay.h"
#include "coordinator/sim/sim_trace.h"
#include "coordinator/sim/simulation.h"

namespace stagecoach {
namespace {

class SimulateVerb : public Verb {
 public:
  const char* name() const override { return "simulate"; }
  const char* summary() const override {
    return "run the real scheduler over a cluster that costs time instead of work";
  }
  const char* example() const override {
    return "coordinator simulate --load-format dummy --shape qwen3-8b --type q8_0 --cluster hosts.json "
           "--max-num-seqs 32 --arrivals poisson:2 --prompt 512 --output 128 --policy all";
  }
  void AddOptions(CLI::App* app) override { AddSimulateOptions(app, &options_); }
  absl::Status Run(const RunContext& context) override;

 private:
  absl::Status RunReplay() const;
  absl::StatusOr<ClusterQuestion> Question(const LaunchOptions& launch, const PlanPlaces& places,
                                           std::shared_ptr<const ModelDescription> model) const;
  absl::StatusOr<SimOptions> WorldOf(const ClusterQuestion& question, const ClusterPlan& plan) const;
  absl::StatusOr<SimOutcome> Simulated(const ClusterQuestion& question, const ClusterPlan& plan) const;
  SweepPoint Point(const ClusterQuestion& question, const LaunchOptions& launch) const;
  absl::Status Keep(const SweepPoint& point) const;
  // A run under the policy that options_.probe.cluster has.
  struct SimulatedRun {
    SweepPoint point;
    RunSummary summary;
    std::vector<std::string> assumptions;
  };
  absl::StatusOr<SimulatedRun> SimulateOnce(const RunContext& context,
                                            const std::shared_ptr<const ModelDescription>& model) const;
  absl::Status Compare(const std::vector<Policy>& policies, const RunContext& context,
                       const std::shared_ptr<const ModelDescription>& model);

  SimulateOptions options_;
};

// What the planner is asked: the job as a run without a plan would make it, but where the user wants otherwise.
absl::StatusOr<ClusterQuestion> SimulateVerb::Question(const LaunchOptions& launch, const PlanPlaces& places,
                                                       std::shared_ptr<const ModelDescription> model) const {
  ClusterQuestion question;
  question.model = std::move(model);
  question.profile = places.profile;
  question.stage_hosts = places.stage_hosts;
  question.job = launch.job;
  question.coordinator_us = options_.coordinator_us;
  question.wake_us = options_.wake_us;
  double prompt = 0, output = 0;
  for (const ArrivingRequest& request : options_.requests) {
    prompt += static_cast<double>(request.prompt_tokens);
    output += static_cast<double>(request.output_tokens);
  }
  const auto count = static_cast<double>(options_.requests.size());
  question.load = {std::max<int64_t>(1, std::llround(prompt / count)),
                   std::max<int64_t>(1, std::llround(output / count))};
  if (question.job.micro_batches() == 0) {  // the planner would look for the best number
    const auto stages = static_cast<int32_t>(question.stage_hosts.size());
    question.job.set_micro_batches(std::max(question.job.decode_groups(), stages));
  }
  if (!options_.split_by_cost) RETURN_IF_ERROR(SplitAsRun(&question));
  return question;
}

// The planned job as a run makes it: where the user leaves the number of micro-batches open, so does the run.
absl::StatusOr<JobPlan> JobAsRun(const ClusterQuestion& question, const ClusterPlan& plan, int32_t micro_batches) {
  pb::ConfigureJob job = question.job;
  job.set_micro_batches(micro_batches);
  job.clear_layer_split();
  for (const pb::StageAssignment& stage : plan.job.stages) {
    job.add_layer_split(stage.last_layer() - stage.first_layer());
  }
  return PlanJob(job, HellosOf(question.profile, question.stage_hosts, question.job.isa()), *question.model,
                 JobEpoch{});
}

absl::StatusOr<SimOptions> SimulateVerb::WorldOf(const ClusterQuestion& question, const ClusterPlan& plan) const {
  SimOptions options;
  options.cluster.pipeline = plan.pipeline->model;
  for (const UplinkFacts& uplink : question.profile.uplinks) {
    options.cluster.uplinks.push_back({uplink.bytes_per_s(), uplink.hosts});
  }
  options.cluster.turn_s = options_.coordinator_us * 1e-6;
  options.cluster.wake_s = options_.wake_us * 1e-6;
  options.cluster.stage_delay_s = question.job.stage_delay_us() * 1e-6;
  options.hand_over_s = options_.front_us * 1e-6;
  ASSIGN_OR_RETURN(options.scheduler, SchedulerOptionsOf(question.job, plan.job, *question.model));
  options.decode_groups = question.job.decode_groups();
  options.vocab = question.model->hyper.vocab;
  for (size_t i = 0; i < options_.requests.size(); ++i) {
    const int64_t tokens = options_.requests[i].prompt_tokens + options_.requests[i].output_tokens;
    if (tokens <= plan.job.context) continue;
    return UsageError(absl::StrCat("request ", i, " has ", options_.requests[i].prompt_tokens, " + ",
                                   options_.requests[i].output_tokens, " tokens, but the context is ", plan.job.context,
                                   "; give shorter lengths (a longest one to a lognormal), or more KV cache"));
  }
  options.requests = options_.requests;
  options.concurrency = options_.Concurrency();
  options.slo_ttft_s = options_.slo_ttft_s;
  options.slo_itl_s = options_.probe.cluster.slo_itl_s;
  options.failures = options_.failures;
  options.seed = options_.load.seed;
  return options;
}

// As a job's ranks would introduce themselves, the coordinator first.
std::vector<pb::Hello> RanksOf(const ClusterQuestion& question) {
  std::vector<pb::Hello> ranks = HellosOf(question.profile, question.stage_hosts, question.job.isa());
  pb::Hello coordinator;
  coordinator.set_host(question.profile.hosts[static_cast<size_t>(question.profile.coordinator)].name);
  ranks.insert(ranks.begin(), std::move(coordinator));
  return ranks;
}

// The run; its logs are written beside it.
absl::StatusOr<SimOutcome> SimulateVerb::Simulated(const ClusterQuestion& question, const ClusterPlan& plan) const {
  ASSIGN_OR_RETURN(SimOptions world, WorldOf(question, plan));
  StepTee steps;
  std::unique_ptr<StepLog> log;
  if (!question.job.step_log().empty()) {
    ASSIGN_OR_RETURN(log, StepLog::Open(question.job.step_log(), /*append=*/false));
    log->WaitForTheDisk();
    steps.Add(log.get());
  }
  SimTrace trace(TraceHeaderOf(question.job, plan.job, RanksOf(question)));
  if (!question.job.trace().empty()) {
    steps.Add(&trace);
    world.on_job = [&trace](int64_t at_us) { trace.BeginJob(at_us); };
  }
  if (!steps.empty()) world.steps = &steps;
  absl::StatusOr<SimOutcome> outcome = Simulate(world);
  if (absl::IsResourceExhausted(outcome.status())) return WithExitCode(outcome.status(), ExitCode::kLostStages);
  RETURN_IF_ERROR(outcome.status());
  if (log != nullptr) RETURN_IF_ERROR(log->Close());
  if (!question.job.trace().empty()) {
    if (absl::Status saved = trace.Save(question.job.trace()); !saved.ok()) return InputFileError(saved.message());
  }
  return outcome;
}

// The point as a sweep would have it, so that both have one key.
SweepPoint SimulateVerb::Point(const ClusterQuestion& question, const LaunchOptions& launch) const {
  const ClusterOptions& o = options_.probe.cluster;
  SweepPoint point;
  SweepConfig& config = point.config;
  static_cast<JobSettings&>(config) = o;
  config.model = question.job.model_path();
  config.hosts = o.hosts.empty() ? launch.hostfile : o.hosts;
  config.stages = static_cast<int64_t>(question.stage_hosts.size());
  config.threads = question.job.threads();
  config.micro_batches = launch.job.micro_batches();
  config.prefill_chunk = question.job.prefill_chunk();
  config.arrivals = ArrivalsText(options_.load.arrivals);
  config.concurrency = options_.Concurrency();
  const bool own_lengths = options_.load.arrivals.kind == Arrivals::Kind::kTrace;
  config.prompt = own_lengths ? "trace" : LengthsText(options_.load.prompt);
  config.output = own_lengths ? "trace" : LengthsText(options_.load.output);
  config.requests = static_cast<int64_t>(options_.requests.size());
  config.slo_ttft_s = options_.slo_ttft_s;
  config.seed = options_.load.seed;
  const ModelSummary summary = SummarizeModel(*question.model);
  point.origin.program_version = kProgramVersion;
  point.origin.model_type = summary.type;
  point.origin.model_bytes = summary.bytes;
  point.origin.model_elements = summary.elements;
  point.origin.host = HostName();
  return point;
}

// As a sweep adds a point that it has measured.
absl::Status SimulateVerb::Keep(const SweepPoint& point) const {
  const std::filesystem::path directory = options_.directory;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return InputFileError(absl::StrCat("-o: cannot make '", options_.directory, "': ", error.message()));
  absl::StatusOr<std::unique_ptr<SweepFile>> file = SweepFile::Open((directory / kSweepFileName).string());
  if (!file.ok()) return WithExitCode(file.status(), ExitCode::kInputFile);
  const absl::Status added = (*file)->Append(point);
  return added.ok() ? added : WithExitCode(added, ExitCode::kInputFile);
}

absl::Status SimulateVerb::RunReplay() const {
  const absl::StatusOr<std::vector<StepRecord>> records = ReadStepLog(options_.replay);
  if (!records.ok()) return WithExitCode(records.status(), ExitCode::kInputFile);
  const absl::StatusOr<std::vector<ReplayedJob>> jobs = Replay(*records);
  if (!jobs.ok()) {
    const absl::Status status(jobs.status().code(),
                              absl::StrCat("--replay: '", options_.replay, "': ", jobs.status().message()));
    return WithExitCode(status, ExitCode::kInputFile);
  }
  return WriteStdout(options_.json ? CompactJson(ReplayJson(*jobs)) + "\n" : ReplayText(*jobs));
}

absl::StatusOr<SimulateVerb::SimulatedRun> SimulateVerb::SimulateOnce(
    const RunContext& context, const std::shared_ptr<const ModelDescription>& model) const {
  ClusterOptions job = options_.probe.cluster;
  if (job.policy != Policy::kThrottled) job.slo_itl_s = 0;  // then it is a bound of goodput alone
  ASSIGN_OR_RETURN(const LaunchOptions launch, MakeLaunchOptions(job, model->hyper, context));
  ASSIGN_OR_RETURN(PlanPlaces places, FindPlaces(options_.probe.cluster, options_.sources, launch));
  AddEmulatedLink(options_.probe.cluster.emulated_link, &places.profile);
  const auto planned = [](const absl::Status& failed) {
    const absl::Status status(failed.code(), WithFlags(failed.message()));
    return WithExitCode(status, absl::IsResourceExhausted(status) ? ExitCode::kLaunch : ExitCodeOf(status));
  };
  absl::StatusOr<ClusterQuestion> question = Question(launch, places, model);
  if (!question.ok()) return planned(question.status());
  absl::StatusOr<ClusterPlan> plan = PlanCluster(*question);
  if (!plan.ok()) return planned(plan.status());
  absl::StatusOr<JobPlan> as_run = JobAsRun(*question, *plan, launch.job.micro_batches());
  if (!as_run.ok()) return planned(as_run.status());
  plan->job = *std::move(as_run);
  ASSIGN_OR_RETURN(const SimOutcome outcome, Simulated(*question, *plan));
  SweepPoint point = Point(*question, launch);
  const RunSummary summary = SummaryOf(*plan, *question, outcome);
  TakeOutcome(*plan, summary, outcome, &point);
  point.prediction->source = !options_.sources.profile.empty()   ? absl::StrCat("profile ", options_.sources.profile)
                             : !options_.sources.cluster.empty() ? absl::StrCat("cluster ", options_.sources.cluster)
                                                                 : "assumed";
  if (!options_.directory.empty()) RETURN_IF_ERROR(Keep(point));
  return SimulatedRun{std::move(point), summary, places.assumptions};
}

absl::Status SimulateVerb::Compare(const std::vector<Policy>& policies, const RunContext& context,
                                   const std::shared_ptr<const ModelDescription>& model) {
  std::vector<SweepPoint> points;
  std::vector<std::string> assumptions;
  for (const Policy policy : policies) {
    options_.probe.cluster.policy = policy;
    ASSIGN_OR_RETURN(SimulatedRun run, SimulateOnce(context, model));
    points.push_back(std::move(run.point));
    assumptions = std::move(run.assumptions);
  }
  std::string text;
  if (options_.json) {
    for (const SweepPoint& point : points) text += SweepPointLine(point);
    return WriteStdout(text);
  }
  text = absl::StrCat("simulated    ", options_.requests.size(), " requests under each policy; nothing ran\n");
  for (const std::string& assumption : assumptions) absl::StrAppend(&text, "assumed      ", assumption, "\n");
  return WriteStdout(text + PolicyTable(points));
}

absl::Status SimulateVerb::Run(const RunContext& context) {
  if (!options_.replay.empty()) return RunReplay();
  ASSIGN_OR_RETURN(const std::shared_ptr<const ModelDescription> model, OpenProbeModel(&options_.probe));
  if (model == nullptr) return UsageError("--model is required, or --load-format dummy with --shape and --type");
  const ClusterOptions& job = options_.probe.cluster;
  const absl::StatusOr<std::vector<Policy>> policies = ParsePolicies(options_.policies, job.policy);
  if (!policies.ok()) return UsageError(WithFlags(policies.status().message()));
  RETURN_IF_ERROR(ReadSimulatedLoad(&options_));
  if (policies->size() > 1) {
    for (const auto& [flag, file] : {std::pair("--step-log", &job.step_log), std::pair("--trace", &job.trace)}) {
      if (!file->empty()) return UsageError(absl::StrCat(flag, " is of one run; give one --policy with it"));
    }
    return Compare(*policies, context, model);
  }
  options_.probe.cluster.policy = policies->front();
  ASSIGN_OR_RETURN(const SimulatedRun run, SimulateOnce(context, model));
  return WriteStdout(options_.json ? SweepPointLine(run.point)
                                   : SimulationText(run.summary, run.point, run.assumptions));
}

}  // namespace

std::unique_ptr<Verb> MakeSimulateVerb() { return std::make_unique<SimulateVerb>(); }

}  // namespace stagecoach
