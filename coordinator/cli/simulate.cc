// simulate: how a run on a cluster would go, by the real engine and scheduler in simulated time. Reads the model's
// header alone.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/App.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/host_info.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/job/job_limits.h"
#include "common/obs/step_log.h"
#include "common/obs/step_log_reader.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/bench/bench_work.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/job_flags.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/plan_places.h"
#include "coordinator/cli/probe_options.h"
#include "coordinator/cli/simulate_report.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/job/scheduler_setup.h"
#include "coordinator/sim/replay.h"
#include "coordinator/sim/simulation.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

constexpr char kSimModelGroup[] = "Model and cluster";
constexpr char kSimLoadGroup[] = "Load";
constexpr char kSimWorldGroup[] = "Simulated world";
constexpr NumberRange kSimSecondsRange = {0, 1e9};
constexpr NumberRange kSimBoundRange = {0, 1e6, /*open_min=*/true};

class SimulateVerb : public Verb {
 public:
  const char* name() const override { return "simulate"; }
  const char* summary() const override {
    return "run the real scheduler over a cluster that costs time instead of work";
  }
  const char* example() const override {
    return "coordinator simulate --load-format dummy --shape qwen3-8b --type q8_0 --cluster hosts.json "
           "--max-num-seqs 32 --arrivals poisson:2 --prompt 512 --output 128";
  }
  void AddOptions(CLI::App* app) override;
  absl::Status Run(const RunContext& context) override;

 private:
  void AddModelAndHosts(CLI::App* app);
  void AddLoad(CLI::App* app);
  void AddWorld(CLI::App* app);
  absl::Status ReadLoad();
  absl::Status RunReplay() const;
  absl::StatusOr<ClusterQuestion> Question(const LaunchOptions& launch, const PlanPlaces& places,
                                           std::shared_ptr<const ModelDescription> model) const;
  absl::StatusOr<SimOptions> Options(const ClusterQuestion& question, const ClusterPlan& plan) const;
  SweepPoint Point(const ClusterQuestion& question) const;

  ProbeOptions probe_;  // the model, and all that makes a job
  PlaceSources sources_;
  std::string arrivals_text_ = "closed", prompt_ = "128", output_ = "64";
  RequestLoad load_;
  std::vector<ArrivingRequest> requests_;
  std::optional<int64_t> concurrency_;
  double slo_ttft_s_ = 0;
  std::optional<uint64_t> seed_;
  double coordinator_us_ = kCoordinatorTurnUs;
  std::vector<std::string> fail_at_;
  SimFailures failures_;
  bool split_by_cost_ = false;
  bool json_ = false;
  std::string replay_;

  // From a result to its successor's frame: amid the 27 and 71 us that tests/bench/README.md has of two busy cores.
  static constexpr double kCoordinatorTurnUs = 50;
};

void SimulateVerb::AddModelAndHosts(CLI::App* app) {
  const char* group = kSimModelGroup;
  ClusterOptions* cluster = &probe_.cluster;
  AddText(app, "-m,--model", &cluster->model, "FILE", "the model, a GGUF file (any shard of a split one)")
      ->group(group);
  AddChoice(app, "--load-format", &probe_.load_format, {"gguf", "dummy"},
            "dummy: a model of --shape and --type, without -m")
      ->group(group);
  AddText(app, "--shape", &probe_.shape, "NAME", absl::StrCat("with dummy: ", DummyModelShapes()))->group(group);
  AddText(app, "--type", &probe_.type, "NAME", absl::StrCat("with dummy: ", DummyModelTypes()))->group(group);
  AddQ2LayoutOption(app, &cluster->q2_layout);
  AddText(app, "--cluster", &sources_.cluster, "FILE", "hosts and links in your own words, as JSON")->group(group);
  AddText(app, "--profile", &sources_.profile, "FILE", "the same as `coordinator probe` measured it")->group(group);
  AddText(app, "--hostfile", &cluster->hostfile, "FILE", "hosts and slots in Open MPI's form; their speed is assumed")
      ->group(group);
  AddText(app, "--host", &cluster->hosts, "LIST", "the same as a list, such as node1:2,node2:2")->group(group);
  AddInteger(app, "--pp,--pipeline-parallel-size", &cluster->stages, JobLimits::kStages.range, "pipeline stages",
             "the slots of the hosts, else 1")
      ->group(group);
  AddIntegerList(app, "--layer-split", &cluster->layer_split, {1, kMaxLayers}, "layers of each stage, such as 10,9,9")
      ->group(group);
  AddFlag(app, "--split-by-cost", &split_by_cost_,
          "split the layers as `coordinator plan` would for these hosts, not as a job that knows only their cores")
      ->group(group);
  AddText(app, "--plan", &cluster->plan, "FILE", "follow a saved plan (coordinator plan -o FILE)")->group(group);
  AddInteger(app, "-t,--threads", &cluster->threads, JobLimits::kThreads.range, "compute threads per stage",
             "the host's cores / its stages")
      ->group(group);
  AddInteger(app, "-c,--ctx-size", &cluster->context, JobLimits::kContext.range, "most tokens of a sequence",
             "min(the model's context, what the pool holds)")
      ->group(group);
  AddOptionalChoice(app, "--isa", &cluster->isa, kInstructionSets, "auto", "instruction set of the kernels")
      ->group(group);
}

void SimulateVerb::AddLoad(CLI::App* app) {
  const char* group = kSimLoadGroup;
  load_.requests = 64;
  AddInteger(app, "--requests", &load_.requests, {1, kMostRequests}, "requests (a trace has its own)", "64")
      ->group(group);
  AddText(app, "--arrivals", &arrivals_text_, "WHEN",
          "closed: all are there at once; poisson:RATE a second; trace:FILE, a JSON line with arrival_s, prompt_tokens "
          "and output_tokens for each")
      ->group(group)
      ->default_str("closed");
  AddInteger(app, "--concurrency", &concurrency_, {0, kMostRequests},
             "requests under way at any time; what comes on top waits at the client; 0: no limit",
             "--max-num-seqs with closed arrivals, else 0")
      ->group(group);
  AddText(app, "--prompt", &prompt_, "LENGTH",
          "tokens of a prompt: 512, uniform:64:1024 or lognormal:MEDIAN:SIGMA[:LONGEST]")
      ->group(group)
      ->default_str("128");
  AddText(app, "--output", &output_, "LENGTH", "tokens of an answer, as --prompt")->group(group)->default_str("64");
  AddDuration(app, "--slo-ttft", &slo_ttft_s_, kSimBoundRange,
              "goodput: most to the first token, such as 500ms; --slo-itl is the bound of the mean gap after that")
      ->group(group);
  AddSeed(app, "--seed", &seed_, "of arrivals, lengths, jitter and failures", "0")->group(group);
}

void SimulateVerb::AddWorld(CLI::App* app) {
  const char* group = kSimWorldGroup;
  AddNumber(app, "--coordinator-us", &coordinator_us_, {0, 1e7},
            "microseconds that the coordinator takes for a micro-batch, from a result to the next one's sending",
            absl::StrCat(coordinator_us_))
      ->group(group);
  AddTexts(app, "--fail-at", &fail_at_, "SECONDS,...", "a stage is lost at these times")->group(group);
  AddNumber(app, "--mtbf", &failures_.mean_between_s, kSimBoundRange,
            "mean seconds between two losses of one stage, by chance (otherwise none is lost)", "")
      ->group(group);
  AddNumber(app, "--detect", &failures_.detect_s, kSimSecondsRange, "seconds until a loss is known",
            absl::StrCat(failures_.detect_s))
      ->group(group);
  AddNumber(app, "--relaunch", &failures_.relaunch_s, kSimSecondsRange, "seconds from then until the next job is ready",
            absl::StrCat(failures_.relaunch_s))
      ->group(group);
  AddText(app, "--replay", &replay_, "FILE",
          "instead of all this: run the scheduler again over the times of a recorded run (--step-log) and say whether "
          "every micro-batch comes out as it was")
      ->group(group);
  AddFlag(app, "--json", &json_, "one line: the record of a point of a sweep, with \"simulated\": true")->group(group);
}

void SimulateVerb::AddOptions(CLI::App* app) {
  AddModelAndHosts(app);
  AddInteger(app, "--max-num-seqs", &probe_.cluster.max_num_seqs, JobLimits::kMaxNumSeqs.range,
             "sequences that run at once", absl::StrCat(probe_.cluster.max_num_seqs))
      ->group("Batching and KV cache");
  AddSchedulingOptions(app, &probe_.cluster);
  AddLoad(app);
  AddWorld(app);
}

// Fills load_, requests_ and failures_.at_s.
absl::Status SimulateVerb::ReadLoad() {
  const auto wrong = [](const char* flag, const absl::Status& status) {
    return UsageError(absl::StrCat(flag, ": ", status.message()));
  };
  load_.seed = seed_.value_or(0);
  absl::StatusOr<Arrivals> arrivals = ParseArrivals(arrivals_text_);
  if (!arrivals.ok()) return wrong("--arrivals", arrivals.status());
  load_.arrivals = *std::move(arrivals);
  absl::StatusOr<LengthDistribution> prompt = ParseLengths(prompt_), output = ParseLengths(output_);
  if (!prompt.ok()) return wrong("--prompt", prompt.status());
  if (!output.ok()) return wrong("--output", output.status());
  load_.prompt = *prompt;
  load_.output = *output;
  for (const std::string& list : fail_at_) {
    for (const absl::string_view text : absl::StrSplit(list, ',')) {
      const absl::StatusOr<float> at_s = ParseNumber(text, kSimSecondsRange);
      if (!at_s.ok()) return wrong("--fail-at", at_s.status());
      failures_.at_s.push_back(*at_s);
    }
  }
  if (load_.arrivals.kind != Arrivals::Kind::kTrace) {
    requests_ = MakeRequests(load_);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ArrivingRequest>> trace = ReadArrivalTrace(load_.arrivals.trace_file);
  if (!trace.ok()) {
    return WithExitCode(absl::Status(trace.status().code(), absl::StrCat("--arrivals: ", trace.status().message())),
                        ExitCode::kInputFile);
  }
  requests_ = *std::move(trace);
  return absl::OkStatus();
}

// What the planner is asked: the job as a run without a plan would make it, but where the user wants otherwise.
absl::StatusOr<ClusterQuestion> SimulateVerb::Question(const LaunchOptions& launch, const PlanPlaces& places,
                                                       std::shared_ptr<const ModelDescription> model) const {
  ClusterQuestion question;
  question.model = std::move(model);
  question.profile = places.profile;
  question.stage_hosts = places.stage_hosts;
  question.job = launch.job;
  double prompt = 0, output = 0;
  for (const ArrivingRequest& request : requests_) {
    prompt += static_cast<double>(request.prompt_tokens);
    output += static_cast<double>(request.output_tokens);
  }
  const auto count = static_cast<double>(requests_.size());
  question.load = {std::max<int64_t>(1, std::llround(prompt / count)),
                   std::max<int64_t>(1, std::llround(output / count))};
  if (question.job.micro_batches() == 0) {
    question.job.set_micro_batches(static_cast<int32_t>(question.stage_hosts.size()));
  }
  if (split_by_cost_ || question.job.layer_split_size() > 0) return question;
  ASSIGN_OR_RETURN(
      const JobPlan as_run,
      PlanJobUnmeasured(question.job, HellosOf(question.profile, question.stage_hosts), question.model, JobEpoch{}));
  for (const pb::StageAssignment& stage : as_run.stages) {
    question.job.add_layer_split(stage.last_layer() - stage.first_layer());
  }
  return question;
}

absl::StatusOr<SimOptions> SimulateVerb::Options(const ClusterQuestion& question, const ClusterPlan& plan) const {
  SimOptions options;
  options.cluster.pipeline = plan.pipeline->model;
  for (const UplinkFacts& uplink : question.profile.uplinks) {
    options.cluster.uplinks.push_back({uplink.bytes_per_s(), uplink.hosts});
  }
  options.cluster.turn_s = coordinator_us_ * 1e-6;
  ASSIGN_OR_RETURN(options.scheduler, SchedulerOptionsOf(question.job, plan.job));
  options.decode_groups = question.job.decode_groups();
  options.vocab = question.model->hyper.vocab;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const int64_t tokens = requests_[i].prompt_tokens + requests_[i].output_tokens;
    if (tokens <= plan.job.context) continue;
    return UsageError(absl::StrCat("request ", i, " has ", requests_[i].prompt_tokens, " + ",
                                   requests_[i].output_tokens, " tokens, but the context is ", plan.job.context,
                                   "; give shorter lengths (a longest one to a lognormal), or more KV cache"));
  }
  options.requests = requests_;
  const bool closed = load_.arrivals.kind == Arrivals::Kind::kClosedLoop;
  options.concurrency = concurrency_.value_or(closed ? probe_.cluster.max_num_seqs : 0);
  options.slo_ttft_s = slo_ttft_s_;
  options.slo_itl_s = probe_.cluster.slo_itl_s;
  options.failures = failures_;
  options.seed = load_.seed;
  return options;
}

SweepPoint SimulateVerb::Point(const ClusterQuestion& question) const {
  const ClusterOptions& o = probe_.cluster;
  SweepPoint point;
  SweepConfig& config = point.config;
  config.model = o.model;
  config.stages = static_cast<int64_t>(question.stage_hosts.size());
  config.threads = question.job.threads();
  config.hosts = o.hosts.empty() ? o.hostfile : o.hosts;
  config.decode_groups = question.job.decode_groups();
  config.micro_batches = question.job.micro_batches();
  config.max_num_seqs = question.job.max_num_seqs();
  config.max_num_batched_tokens = question.job.max_num_batched_tokens();
  config.prefill_chunk = question.job.prefill_chunk();
  config.chunking = NameOf(kChunkings, o.chunking);
  config.policy = NameOf(kPolicies, o.policy);
  config.wire_type = NameOf(kWireTypes, o.wire_type);
  config.kv_type = NameOf(kKvTypes, o.kv_type);
  config.isa = o.isa.has_value() ? NameOf(kInstructionSets, *o.isa) : "auto";
  config.block_tokens = question.job.block_tokens();
  config.kv_cache_bytes = question.job.kv_cache_bytes();
  config.arrivals = ArrivalsText(load_.arrivals);
  const bool closed = load_.arrivals.kind == Arrivals::Kind::kClosedLoop;
  config.concurrency = concurrency_.value_or(closed ? o.max_num_seqs : 0);
  config.prompt = LengthsText(load_.prompt);
  config.output = LengthsText(load_.output);
  config.requests = static_cast<int64_t>(requests_.size());
  config.slo_ttft_s = slo_ttft_s_;
  config.slo_itl_s = o.slo_itl_s;
  config.seed = load_.seed;
  const ModelSummary summary = SummarizeModel(*question.model);
  point.origin.program_version = kProgramVersion;
  point.origin.model_type = summary.type;
  point.origin.model_bytes = summary.bytes;
  point.origin.model_elements = summary.elements;
  point.origin.host = HostName();
  return point;
}

absl::Status SimulateVerb::RunReplay() const {
  const absl::StatusOr<std::vector<StepRecord>> records = ReadStepLog(replay_);
  if (!records.ok()) return WithExitCode(records.status(), ExitCode::kInputFile);
  const absl::StatusOr<std::vector<ReplayedJob>> jobs = Replay(*records);
  if (!jobs.ok()) {
    const absl::Status status(jobs.status().code(),
                              absl::StrCat("--replay: '", replay_, "': ", jobs.status().message()));
    return WithExitCode(status, ExitCode::kInputFile);
  }
  return WriteStdout(json_ ? CompactJson(ReplayJson(*jobs)) + "\n" : ReplayText(*jobs));
}

absl::Status SimulateVerb::Run(const RunContext& context) {
  if (!replay_.empty()) return RunReplay();
  ASSIGN_OR_RETURN(const std::shared_ptr<const ModelDescription> model, OpenProbeModel(&probe_));
  if (model == nullptr) return UsageError("--model is required, or --load-format dummy with --shape and --type");
  RETURN_IF_ERROR(ReadLoad());
  ClusterOptions job = probe_.cluster;
  if (job.policy != Policy::kThrottled) job.slo_itl_s = 0;  // then it is a bound of goodput alone
  ASSIGN_OR_RETURN(const LaunchOptions launch, MakeLaunchOptions(job, model->hyper, context));
  ASSIGN_OR_RETURN(const PlanPlaces places, FindPlaces(probe_.cluster, sources_, launch));
  const auto planned = [](const absl::Status& failed) {
    const absl::Status status(failed.code(), WithFlags(failed.message()));
    return WithExitCode(status, absl::IsResourceExhausted(status) ? ExitCode::kLaunch : ExitCodeOf(status));
  };
  absl::StatusOr<ClusterQuestion> question = Question(launch, places, model);
  if (!question.ok()) return planned(question.status());
  const absl::StatusOr<ClusterPlan> plan = PlanCluster(*question);
  if (!plan.ok()) return planned(plan.status());
  ASSIGN_OR_RETURN(SimOptions options, Options(*question, *plan));
  std::unique_ptr<StepLog> step_log;
  if (!launch.job.step_log().empty()) {
    ASSIGN_OR_RETURN(step_log, StepLog::Open(launch.job.step_log(), /*append=*/false));
    step_log->WaitForTheDisk();
    options.step_log = step_log.get();
  }
  ASSIGN_OR_RETURN(const SimOutcome outcome, Simulate(options));
  if (step_log != nullptr) RETURN_IF_ERROR(step_log->Close());
  SweepPoint point = Point(*question);
  const RunSummary summary = SummaryOf(*plan, *question, outcome);
  TakeOutcome(*plan, summary, outcome, &point);
  point.prediction->source = !sources_.profile.empty()   ? absl::StrCat("profile ", sources_.profile)
                             : !sources_.cluster.empty() ? absl::StrCat("cluster ", sources_.cluster)
                                                         : "assumed";
  return WriteStdout(json_ ? SweepPointLine(point) : SimulationText(summary, point, places.assumptions));
}

}  // namespace

std::unique_ptr<Verb> MakeSimulateVerb() { return std::make_unique<SimulateVerb>(); }

}  // namespace stagecoach
