// simulate: how a run on a cluster would go, by the real engine and scheduler in simulated time. Reads the model's
// header alone.

#include <algorithm>
#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "common/obs/step_log.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/bench/bench_work.h"
#include "coordinator/bench/sweep_measure.h"
#include "coordinator/bench/sweep_point.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/job_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/plan/plan_places.h"
#include "coordinator/cli/plan/simulate_text.h"
#include "coordinator/cli/sweep/sweep_options.h"
#include "coordinator/cli/sweep/sweep_points.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/job/channel_front.h"
#include "coordinator/job/job_setup.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/plan/host_profile.h"
#include "coordinator/plan/saved_plan.h"
#include "coordinator/session/run_summary.h"
#include "coordinator/sim/replay.h"
#include "coordinator/sim/simulation.h"

namespace stagecoach {
namespace {

void Describe(const ClusterPlan& plan, const ClusterQuestion& question, int number, pb::StageSummary* out) {
  const auto s = static_cast<size_t>(number);
  const pb::StageAssignment& stage = plan.job.stages[s];
  out->set_stage(number);
  out->set_rank(stage.rank());
  const HostFacts& host = question.profile.hosts[static_cast<size_t>(question.stage_hosts[s])];
  out->set_host(host.name);
  out->set_cores(host.cores);
  out->set_memory_bytes(host.memory_bytes);
  out->set_first_layer(stage.first_layer());
  out->set_last_layer(stage.last_layer());
  out->set_threads(stage.threads());
  out->set_isa(stage.isa());
  out->set_weight_bytes(plan.memory[s].weights);
  out->set_kv_bytes(plan.memory[s].kv);
  out->set_scratch_bytes(plan.memory[s].scratch);
  out->set_resident_bytes(plan.memory[s].total());  // at most
}

pb::JobStatistics StatisticsOf(const ClusterPlan& plan, const ClusterQuestion& question, const EngineStatus& status) {
  pb::JobStatistics statistics = StatisticsOf(status);
  for (int s = 0; s < plan.stages(); ++s) {
    pb::StageSummary* stage = statistics.add_stages();
    Describe(plan, question, s, stage);
    const EngineStatus::Stage& work = status.stages[static_cast<size_t>(s)];
    stage->set_compute_s(static_cast<double>(work.compute_us) * 1e-6);
    stage->set_void_s(static_cast<double>(work.void_us) * 1e-6);
    stage->set_send_s(static_cast<double>(work.send_us) * 1e-6);
    stage->set_wait_s(std::max(0.0, statistics.busy_s() - stage->compute_s()));
    stage->set_blocks_used_peak(status.counters.blocks_used_peak[plan.job.full_group()]);
  }
  return statistics;
}

// The summary that the run's front would have made.
RunSummary SummaryOf(const ClusterPlan& plan, const ClusterQuestion& question, const SimOutcome& outcome) {
  RunSummary summary;
  pb::JobReady& ready = summary.ready.emplace();
  ready.set_context(plan.job.context);
  ready.set_blocks(plan.job.group_blocks[plan.job.full_group()]);
  ready.set_block_tokens(question.job.block_tokens());
  ready.set_micro_batches(plan.job.micro_batches);
  ready.set_bf16_dot(plan.job.bf16_dot);
  for (int s = 0; s < plan.stages(); ++s) Describe(plan, question, s, ready.add_stages());
  for (const EngineStatus& status : outcome.jobs) {
    const pb::JobStatistics statistics = StatisticsOf(plan, question, status);
    if (summary.job.has_value()) {
      AddStatistics(statistics, &*summary.job);
    } else {
      summary.job = statistics;
    }
  }
  summary.emulated_link = EmulatedLinkText(FromProto(question.job.emulated_link()));
  RunTotals& totals = summary.totals;
  totals.requests = static_cast<int64_t>(outcome.requests.size());
  totals.prompt_tokens = outcome.result.prompt_tokens;
  totals.decode_tokens = outcome.result.output_tokens;
  totals.requests_with_tokens = outcome.result.ttft_s.count;
  totals.failed = outcome.result.failed;
  totals.preemptions = static_cast<int64_t>(summary.job->preemptions());
  totals.relaunches = outcome.relaunches();
  totals.seconds = SecondsOf(outcome.end_ns - outcome.begin_ns);
  int64_t first_ns = outcome.end_ns;
  for (const SimulatedRequest& request : outcome.requests) {
    if (request.first_ns >= 0) first_ns = std::min(first_ns, request.first_ns);
  }
  totals.decode_s = SecondsOf(outcome.end_ns - first_ns);
  totals.first_token_s = outcome.result.ttft_s.mean;
  return summary;
}

// Fills the results of `point`, its stages, its prediction without the source, and marks it as simulated.
void TakeOutcome(const ClusterPlan& plan, const RunSummary& summary, const SimOutcome& outcome, SweepPoint* point) {
  point->simulated = true;
  point->result = outcome.result;
  TakeStatistics(pb::JobStatistics{}, *summary.job, summary.ready->blocks(), &point->result, &point->stages);
  point->result.relaunches = outcome.relaunches();
  point->origin.bf16_dot = plan.job.bf16_dot;
  point->prediction = PredictionOf(plan);
}

// Puts the stages where a saved plan has them. A described host is found by its name.
absl::Status PlaceAsPlanned(const ClusterOptions& options, const PlaceSources& sources, const pb::PlannedFor& planned,
                            PlanPlaces* places) {
  const std::string& file = sources.cluster.empty() ? sources.profile : sources.cluster;
  const std::vector<HostFacts>& hosts = places->profile.hosts;
  places->stage_hosts.clear();
  for (const pb::PlannedStage& stage : planned.stages()) {
    const auto host =
        std::find_if(hosts.begin(), hosts.end(), [&](const HostFacts& facts) { return facts.name == stage.host(); });
    if (host == hosts.end()) {
      return UsageError(absl::StrCat("--plan: '", options.plan, "' has stage ", places->stage_hosts.size(), " on ",
                                     stage.host(), ", which '", file,
                                     "' does not describe; give the description that the plan was made of"));
    }
    places->stage_hosts.push_back(static_cast<int>(host - hosts.begin()));
  }
  return absl::OkStatus();
}

// The places of the job's stages: those of its saved plan, where it has one.
absl::StatusOr<PlanPlaces> PlacesOf(const ClusterOptions& options, const PlaceSources& sources,
                                    const LaunchOptions& launch) {
  if (options.plan.empty() || !sources.given()) return FindPlaces(options, sources, launch);
  ClusterOptions any = options;
  any.stages = 1;  // whatever slots the description has, the plan's places replace these
  ASSIGN_OR_RETURN(PlanPlaces places, FindPlaces(any, sources, launch));
  RETURN_IF_ERROR(PlaceAsPlanned(options, sources, launch.job.planned_for(), &places));
  int from = places.profile.coordinator;
  for (const int to : places.stage_hosts) {
    if (!LinkBetween(places.profile, from, to).has_value()) {
      places.profile.default_link = AssumedLink();
      places.assumptions.push_back(absl::StrFormat("links that the description does not name: %g Gbit/s, %g us",
                                                   kAssumedLinkGbitS, kAssumedLinkLatencyUs));
      break;
    }
    from = to;
  }
  return places;
}

constexpr NumberRange kSimSecondsRange = {0, 1e9};
constexpr NumberRange kSimBoundRange = {0, 1e6, /*open_min=*/true};
constexpr int64_t kDefaultRequests = 64;
constexpr double kFrontUs = 50;  // a guess

struct SimulateOptions {
  ClusterOptions cluster;  // the model, and all that makes a job
  PlaceSources sources;
  bool split_by_cost = false;

  RequestLoad load = {.prompt = *ParseLengths(absl::StrCat(PlanLoad().prompt_tokens)),
                      .output = *ParseLengths(absl::StrCat(PlanLoad().output_tokens))};
  std::optional<int64_t> request_count;
  std::optional<int64_t> concurrency;
  double slo_ttft_s = 0;

  std::string acceptance;  // as given; empty: nobody guesses
  double coordinator_us = kAssumedTurnUs, wake_us = kAssumedWakeUs, front_us = kFrontUs;
  SimFailures failures;

  bool json = false;
  std::vector<std::string> policies;  // comma lists, as given
  std::string directory;              // of points; empty: none is kept
  std::string replay;

  // Requests in flight; 0: no limit.
  int64_t Concurrency() const {
    return concurrency.value_or(load.arrivals.kind == Arrivals::Kind::kClosedLoop ? cluster.max_num_seqs : 0);
  }
};

void AddSimulatedHosts(CLI::App* app, SimulateOptions* o) {
  const HelpGroup group(app, kClusterGroup);
  AddModelOptions(app, &o->cluster);
  AddPlannedPlaceOptions(app, &o->cluster, &o->sources);
  AddJobSettings(app, &o->cluster, Settings({"q2_layout", "stages", "layer_split", "threads", "context", "isa"}));
  AddFlag(app, "--split-by-cost", &o->split_by_cost,
          "split the layers as `coordinator plan` would for these hosts, not as a job that knows only their cores");
  AddText(app, "--plan", &o->cluster.plan, "FILE", "follow a saved plan (coordinator plan -o FILE)");
  RefuseDraftOption(app, "a simulation runs no draft; say by --acceptance how often its guesses are right");
}

void AddSimulatedJob(CLI::App* app, SimulateOptions* o) {
  const HelpGroup group(app, kBatchingGroup);
  AddTexts(app, "--policy", &o->policies, "NAME,...",
           absl::StrCat("what a micro-batch takes: ", NamesIn(kPolicies),
                        " (coordinator help generate says what they are). Of several, or all, each is simulated and a "
                        "table compares them"))
      ->default_str(PolicyName(o->cluster.policy));
  o->cluster.prefix_caching = false;       // as of a sweep's points; made-up prompts have nothing in common
  o->cluster.speculate = Speculate::kOff;  // made-up tokens are no text to guess by; --acceptance has guesses
  AddJobSettings(app, &o->cluster,
                 [others = AllSettingsBut({"policy", "speculate", "guess_rows"})](const JobSetting& setting) {
                   const bool cluster = setting.group == SettingGroup::kCluster;
                   return others(setting) && (!cluster || setting.name == absl::string_view("emulated_link"));
                 });
}

void AddSimulatedLoad(CLI::App* app, SimulateOptions* o) {
  const HelpGroup group(app, "Load");
  AddInteger(app, "--requests", &o->request_count, {1, kMostRequests}, "requests; of a trace its first ones",
             absl::StrCat(kDefaultRequests, "; all of a trace"));
  AddParsed(app, "--arrivals", kArrivalsHelp, "WHEN", "closed",
            [o](const std::string& text) { return Store(ParseArrivalsOption(text), &o->load.arrivals); });
  AddInteger(app, "--concurrency", &o->concurrency, {0, kMostRequests},
             "requests under way at any time; what comes on top waits at the client; 0: no limit",
             "--max-num-seqs with closed arrivals, else 0");
  AddParsed(app, "--prompt", "tokens of a prompt: 512, uniform:64:1024 or lognormal:MEDIAN:SIGMA[:LONGEST]", "LENGTH",
            LengthsText(o->load.prompt),
            [o](const std::string& text) { return Store(ParseLengths(text), &o->load.prompt); });
  AddParsed(app, "--output", "tokens of an answer, as --prompt", "LENGTH", LengthsText(o->load.output),
            [o](const std::string& text) { return Store(ParseLengths(text), &o->load.output); });
  AddDuration(app, "--slo-ttft", &o->slo_ttft_s, kSimBoundRange,
              "goodput: most to the first token, such as 500ms; --slo-itl is the bound of the mean gap after that");
  AddSeed(app, "--seed", &o->load.seed, "of arrivals, lengths, jitter and failures", "0");
}

void AddSimulatedWorld(CLI::App* app, SimulateOptions* o) {
  const HelpGroup group(app, "Simulated world");
  AddTurnOptions(app, &o->coordinator_us, &o->wake_us);
  AddText(
      app, "--acceptance", &o->acceptance, "P|FILE",
      "sequences guess ahead where it pays: their made-up guesses are right with this probability, or as those of a "
      "recorded run were (--step-log), request by request");
  AddNumber(app, "--front-us", &o->front_us, {0, 1e7},
            "microseconds that the front takes for a request, from the end that it waits for to the engine");
  AddList<double>(app, "--fail-at", &o->failures.at_s, "SECONDS,...", "a stage is lost at these times",
                  [](absl::string_view text) { return ParseNumber(text, kSimSecondsRange); });
  AddNumber(app, "--mtbf", &o->failures.mean_between_s, kSimBoundRange,
            "mean seconds between two losses of one stage, by chance (otherwise none is lost)", "");
  AddNumber(app, "--detect", &o->failures.detect_s, kSimSecondsRange, "seconds until a loss is known");
  AddNumber(app, "--relaunch", &o->failures.relaunch_s, kSimSecondsRange,
            "seconds from then until the next job is ready");
  AddText(app, "--replay", &o->replay, "FILE",
          "instead of all this: run the scheduler again over the times of a recorded run (--step-log) and say whether "
          "every micro-batch comes out as it was");
  AddFlag(app, "--json", &o->json,
          "one line for each policy: the record of a point of a sweep, with \"simulated\": true");
  AddText(app, "-o", &o->directory, "DIR",
          "add that record to the points of this directory, which `coordinator sweep report DIR` shows beside what a "
          "sweep measured there");
}

// The requests of the load; of a trace the first ones.
absl::StatusOr<std::vector<ArrivingRequest>> RequestsOfLoad(const SimulateOptions& o) {
  RequestLoad load = o.load;
  load.requests = o.request_count.value_or(kDefaultRequests);
  if (load.arrivals.kind != Arrivals::Kind::kTrace) return MakeRequests(load);
  absl::StatusOr<std::vector<ArrivingRequest>> trace = ReadArrivalTrace(load.arrivals.trace_file);
  if (!trace.ok()) return OptionError("--arrivals", trace.status());
  if (o.request_count.has_value() && *o.request_count < static_cast<int64_t>(trace->size())) {
    trace->resize(static_cast<size_t>(*o.request_count));
  }
  return trace;
}

// Absent: a file's, or none.
std::optional<double> AcceptanceOf(const SimulateOptions& o) {
  double probability = 0;
  return absl::SimpleAtod(o.acceptance, &probability) ? std::optional<double>(probability) : std::nullopt;
}

// Absent: nobody guesses.
absl::StatusOr<SimOutcomes> GuessesOf(const SimulateOptions& o, const std::vector<ArrivingRequest>& requests) {
  if (o.acceptance.empty()) return SimOutcomes();
  if (const std::optional<double> probability = AcceptanceOf(o); probability.has_value()) {
    if (*probability >= 0 && *probability <= 1) return ByChance(*probability, o.load.seed);
    return UsageError(
        absl::StrCat("--acceptance: expected a probability from 0 to 1 or a step log, found ", o.acceptance));
  }
  const absl::StatusOr<std::vector<StepRecord>> records = ReadStepLog(o.acceptance);
  if (!records.ok()) return WithExitCode(records.status(), ExitCode::kInputFile);
  std::vector<int64_t> prompt_tokens;
  prompt_tokens.reserve(requests.size());
  for (const ArrivingRequest& request : requests) prompt_tokens.push_back(request.prompt_tokens);
  SimOutcomes guesses = ByLog(*records, std::move(prompt_tokens));
  if (guesses != nullptr) return guesses;
  return UsageError(absl::StrCat("--acceptance: the run of '", o.acceptance,
                                 "' had no guesses; record one that does, or give a probability"));
}

// The planned job as a run makes it: where the user leaves the number of micro-batches open, so does the run.
absl::StatusOr<JobPlan> JobAsRun(const ClusterQuestion& question, const ClusterPlan& plan, int32_t micro_batches) {
  pb::ConfigureJob job = question.job;
  job.set_micro_batches(micro_batches);
  job.clear_layer_split();
  for (const pb::StageAssignment& stage : plan.job.stages) {
    job.add_layer_split(stage.last_layer() - stage.first_layer());
  }
  return PlanJob(job, HellosOf(question), *question.model, JobEpoch{});
}

// As a job's ranks would introduce themselves, the coordinator first.
std::vector<pb::Hello> RanksOf(const ClusterQuestion& question) {
  std::vector<pb::Hello> ranks = HellosOf(question);
  pb::Hello coordinator;
  coordinator.set_host(question.profile.hosts[static_cast<size_t>(question.profile.coordinator)].name);
  ranks.insert(ranks.begin(), std::move(coordinator));
  return ranks;
}

class SimulateVerb : public Verb {
 public:
  SimulateVerb()
      : Verb("simulate", "run the real scheduler over a cluster that costs time instead of work",
             "coordinator simulate --load-format dummy --shape qwen3-8b --type q8_0 --cluster hosts.json "
             "--max-num-seqs 32 --arrivals poisson:2 --prompt 512 --output 128 --policy all") {}
  void AddOptions(CLI::App* app) override {
    AddSimulatedHosts(app, &options_);
    AddSimulatedJob(app, &options_);
    AddSimulatedLoad(app, &options_);
    AddSimulatedWorld(app, &options_);
  }
  absl::Status Run(const RunContext& context) override {
    if (!options_.replay.empty()) return RunReplay();
    RETURN_IF_ERROR(ResolveModel(&options_.cluster, /*required=*/true));
    const ClusterOptions& job = options_.cluster;
    ASSIGN_OR_RETURN(const std::shared_ptr<const ModelDescription> model, OpenDescription(job.model, job.q2_layout));
    const absl::StatusOr<std::vector<Policy>> policies = ParsePolicies(options_.policies, job.policy);
    if (!policies.ok()) return UsageError(policies.status().message());
    if (options_.split_by_cost && !(job.plan.empty() && job.layer_split.empty())) {
      return UsageError(
          absl::StrCat(job.plan.empty() ? "--layer-split" : "--plan",
                       " has the layers of each stage, so --split-by-cost splits nothing; leave one out"));
    }
    ASSIGN_OR_RETURN(requests_, RequestsOfLoad(options_));
    ASSIGN_OR_RETURN(guesses_, GuessesOf(options_, requests_));
    if (policies->size() > 1) {
      for (const auto& [flag, file] : {std::pair("--step-log", &job.step_log), std::pair("--trace", &job.trace)}) {
        if (!file->empty()) return UsageError(absl::StrCat(flag, " is of one run; give one --policy with it"));
      }
      return Compare(*policies, context, model);
    }
    options_.cluster.policy = policies->front();
    ASSIGN_OR_RETURN(const SimulatedRun run, SimulateOnce(context, model));
    return WriteStdout(options_.json ? SweepPointLine(run.point)
                                     : SimulationText(run.summary, run.point, run.split, run.assumptions));
  }

 private:
  absl::Status RunReplay() const {
    const absl::StatusOr<std::vector<StepRecord>> records = ReadStepLog(options_.replay);
    if (!records.ok()) return WithExitCode(records.status(), ExitCode::kInputFile);
    const absl::StatusOr<std::vector<ReplayedJob>> jobs = Replay(*records);
    if (!jobs.ok()) return OptionError(absl::StrCat("--replay: '", options_.replay, "'"), jobs.status());
    return WriteStdout(options_.json ? CompactJson(ReplayJson(*jobs)) + "\n" : ReplayText(*jobs));
  }

  // What the planner is asked: the job as a run without a plan would make it, but where the user wants otherwise.
  absl::StatusOr<ClusterQuestion> Question(const LaunchOptions& launch, const PlanPlaces& places,
                                           std::shared_ptr<const ModelDescription> model) const {
    ClusterQuestion question = QuestionOf(std::move(model), places, launch);
    question.coordinator_us = options_.coordinator_us;
    question.wake_us = options_.wake_us;
    question.load = MeanLoad(requests_);
    if (guesses_ != nullptr) question.job.set_speculate("auto");
    if (question.job.micro_batches() == 0) {  // the planner would look for the best number
      const auto stages = static_cast<int32_t>(question.stage_hosts.size());
      question.job.set_micro_batches(std::max(question.job.decode_groups(), stages));
    }
    if (!options_.split_by_cost) RETURN_IF_ERROR(UseDefaultSplit(&question));
    return question;
  }

  absl::StatusOr<SimOptions> WorldOf(const ClusterQuestion& question, const ClusterPlan& plan) const {
    SimOptions options;
    options.cluster.pipeline = plan.pipeline->model;
    options.cluster.turn_s = options_.coordinator_us * 1e-6;
    options.cluster.wake_s = options_.wake_us * 1e-6;
    options.cluster.stage_delay_s = question.job.stage_delay_us() * 1e-6;
    options.hand_over_s = options_.front_us * 1e-6;
    ASSIGN_OR_RETURN(options.scheduler, SchedulerOptionsOf(question.job, plan.job, *question.model));
    options.decode_groups = question.job.decode_groups();
    options.vocab = question.model->hyper.vocab;
    options.guesses = guesses_;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const int64_t tokens = requests_[i].prompt_tokens + requests_[i].output_tokens;
      if (tokens <= plan.job.context) continue;
      return UsageError(absl::StrCat("request ", i, " has ", requests_[i].prompt_tokens, " + ",
                                     requests_[i].output_tokens, " tokens, but the context is ", plan.job.context,
                                     "; give shorter lengths (a longest one to a lognormal), or more KV cache"));
    }
    options.requests = requests_;
    options.concurrency = options_.Concurrency();
    options.slo_ttft_s = options_.slo_ttft_s;
    options.slo_itl_s = options_.cluster.slo_itl_s;
    options.failures = options_.failures;
    options.seed = options_.load.seed;
    return options;
  }

  // The run; its logs are written beside it.
  absl::StatusOr<SimOutcome> Simulated(const ClusterQuestion& question, const ClusterPlan& plan) const {
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
      if (absl::Status saved = trace.Save(question.job.trace()); !saved.ok())
        return InputFileError(absl::StrCat("--trace: ", saved.message()));
    }
    return outcome;
  }

  // What was asked of the world, where that is not the default.
  std::string WorldText() const {
    const SimulateOptions defaults;
    std::vector<std::string> parts;
    const auto number = [](double value) {  // given as a float: with few digits where these give it back
      std::string text = absl::StrCat(static_cast<float>(value));
      float read = 0;
      return absl::SimpleAtof(text, &read) && static_cast<double>(read) == value ? text : ExactText(value);
    };
    const auto add = [&](double value, double usual, const char* before, const char* unit) {
      if (value != usual) parts.push_back(absl::StrCat(before, number(value), unit));
    };
    const SimFailures &failures = options_.failures, &usual = defaults.failures;
    add(options_.coordinator_us, defaults.coordinator_us, "coordinator ", " us");
    add(options_.wake_us, defaults.wake_us, "wake ", " us");
    add(options_.front_us, defaults.front_us, "front ", " us");
    for (const double at_s : failures.at_s) parts.push_back(absl::StrCat("a stage lost at ", number(at_s), " s"));
    add(failures.mean_between_s, usual.mean_between_s, "stages lost every ", " s");
    add(failures.detect_s, usual.detect_s, "known after ", " s");
    add(failures.relaunch_s, usual.relaunch_s, "launched again within ", " s");
    if (options_.split_by_cost) parts.emplace_back("split by cost");
    if (guesses_ != nullptr && !AcceptanceOf(options_).has_value()) {
      parts.push_back(absl::StrCat("guesses right as in ", options_.acceptance));
    }
    return absl::StrJoin(parts, ", ");
  }

  // The point as a sweep would have it.
  absl::StatusOr<SweepPoint> Point(const ClusterQuestion& question, const LaunchOptions& launch) const {
    const ClusterOptions& o = options_.cluster;
    SweepPoint point;
    SweepConfig& config = point.config;
    static_cast<JobSettings&>(config) = o;
    config.speculate = guesses_ == nullptr ? Speculate::kOff : Speculate::kAuto;
    config.acceptance = AcceptanceOf(options_).value_or(0);
    config.model = question.job.model_path();
    config.stages = static_cast<int64_t>(question.stage_hosts.size());
    config.threads = question.job.threads();
    config.micro_batches = launch.job.micro_batches();
    config.prefill_chunk = question.job.prefill_chunk();
    config.arrivals = ArrivalsText(options_.load.arrivals);
    ASSIGN_OR_RETURN(config.arrivals_hash, ArrivalsHash(config.arrivals));
    config.layer_split.assign(launch.job.layer_split().begin(), launch.job.layer_split().end());
    const bool planned = launch.job.has_planned_for();
    if (planned || !options_.sources.given()) {  // otherwise the description places the stages
      LaunchOptions at = launch;
      SavedPlan places;
      for (const int host : question.stage_hosts) {
        places.stages.push_back({.host = question.profile.hosts[static_cast<size_t>(host)].name});
      }
      if (planned && options_.sources.given()) at.hosts = HostListOf(places);
      ASSIGN_OR_RETURN(config.hosts, HostsText(at));
    }
    config.concurrency = options_.Concurrency();
    const bool own_lengths = options_.load.arrivals.kind == Arrivals::Kind::kTrace;
    config.prompt = own_lengths ? "trace" : LengthsText(options_.load.prompt);
    config.output = own_lengths ? "trace" : LengthsText(options_.load.output);
    config.requests = static_cast<int64_t>(requests_.size());
    config.slo_ttft_s = options_.slo_ttft_s;
    config.seed = options_.load.seed;
    config.cluster = options_.sources.Name();
    HostProfile described = question.profile;
    if (!options_.sources.given()) {  // assumed hosts are all alike, and what is free just now is no fact of them
      described.hosts.resize(1);
      described.hosts[0].memory_bytes = described.hosts[0].available_bytes = 0;
    }
    config.cluster_hash = ContentHash(HostProfileJson(described));
    config.world = WorldText();
    point.origin = CurrentOrigin(*question.model);
    SetProgramAndModel(*question.model, &config);
    return point;
  }

  // As a sweep adds a point that it has measured.
  absl::Status Keep(const SweepPoint& point) const {
    ASSIGN_OR_RETURN(const std::unique_ptr<SweepFile> file, OpenSweepFile(options_.directory));
    return WithExitCode(file->Append(point), ExitCode::kInputFile);
  }

  // A run under the policy that options_.cluster has.
  struct SimulatedRun {
    SweepPoint point;
    RunSummary summary;
    std::string split;
    std::vector<std::string> assumptions;
  };
  absl::StatusOr<SimulatedRun> SimulateOnce(const RunContext& context,
                                            const std::shared_ptr<const ModelDescription>& model) const {
    ClusterOptions job = options_.cluster;
    if (job.policy != Policy::kThrottled) job.slo_itl_s = 0;  // then it is a bound of goodput alone
    ASSIGN_OR_RETURN(const LaunchOptions launch, MakeLaunchOptions(job, *model, context));
    ASSIGN_OR_RETURN(PlanPlaces places, PlacesOf(options_.cluster, options_.sources, launch));
    AddEmulatedLink(options_.cluster.emulated_link, &places.profile);
    absl::StatusOr<ClusterQuestion> question = Question(launch, places, model);
    if (!question.ok()) return PlanFailure(question.status());
    if (const pb::ConfigureJob& asked = question->job; asked.has_planned_for()) {  // as a job's engine checks it
      const absl::Status fits = CheckPlanned(asked.planned_for(), HellosOf(*question), *model);
      if (!fits.ok()) return WithExitCode(absl::FailedPreconditionError(WithFlags(fits.message())), ExitCode::kLaunch);
    }
    absl::StatusOr<ClusterPlan> plan = PlanCluster(*question);
    if (!plan.ok()) return PlanFailure(plan.status());
    absl::StatusOr<JobPlan> as_run = JobAsRun(*question, *plan, launch.job.micro_batches());
    if (!as_run.ok()) return PlanFailure(as_run.status());
    plan->job = *std::move(as_run);
    ASSIGN_OR_RETURN(const SimOutcome outcome, Simulated(*question, *plan));
    ASSIGN_OR_RETURN(SweepPoint point, Point(*question, launch));
    const RunSummary summary = SummaryOf(*plan, *question, outcome);
    TakeOutcome(*plan, summary, outcome, &point);
    point.prediction->source = options_.sources.Name();
    if (!options_.directory.empty()) RETURN_IF_ERROR(Keep(point));
    return SimulatedRun{std::move(point), summary, SplitText(plan->job), places.assumptions};
  }

  absl::Status Compare(const std::vector<Policy>& policies, const RunContext& context,
                       const std::shared_ptr<const ModelDescription>& model) {
    std::vector<SweepPoint> points;
    std::vector<std::string> assumptions;
    std::string split;
    for (const Policy policy : policies) {
      options_.cluster.policy = policy;
      ASSIGN_OR_RETURN(SimulatedRun run, SimulateOnce(context, model));
      points.push_back(std::move(run.point));
      assumptions = std::move(run.assumptions);
      split = std::move(run.split);
    }
    std::string text;
    if (options_.json) {
      for (const SweepPoint& point : points) text += SweepPointLine(point);
      return WriteStdout(text);
    }
    text = absl::StrCat(LoadText(points.front().config, split), "simulated    ", requests_.size(),
                        " requests under each policy; nothing ran\n");
    for (const std::string& assumption : assumptions) absl::StrAppend(&text, "assumed      ", assumption, "\n");
    return WriteStdout(text + PolicyTable(points));
  }

  SimulateOptions options_;
  std::vector<ArrivingRequest> requests_;
  SimOutcomes guesses_;
};

}  // namespace

std::unique_ptr<Verb> MakeSimulateVerb() { return std::make_unique<SimulateVerb>(); }

}  // namespace stagecoach
