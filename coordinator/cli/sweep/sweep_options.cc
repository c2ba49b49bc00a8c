#include "coordinator/cli/sweep/sweep_options.h"

#include <algorithm>

#include "CLI/App.hpp"
#include "absl/strings/numbers.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/host/host_info.h"
#include "common/job/job_limits.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/sweep/sweep_points.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

constexpr char kMatrixGroup[] = "Matrix (lists: every value with every other)";
constexpr IntegerRange kSweepRepetitions = {1, 1000};
constexpr NumberRange kSecondsRange = {0, 1e6, /*open_min=*/true};

// "which rows ...: one, another (interleaved)".
template <typename Enum, size_t kCount>
std::string ChoiceHelp(absl::string_view what, const NamedValue<Enum> (&choices)[kCount], Enum unset) {
  return absl::StrCat(what, ": ", NamesIn(choices), " (", NameOf(choices, unset), ")");
}

void AddMatrix(CLI::App* app, SweepOptions* o) {
  const HelpGroup group(app, kMatrixGroup);
  SweepLists& lists = o->lists;
  AddJobSettingList(app, "stages", &lists.stages);
  AddJobSettingList(app, "threads", &lists.threads);
  AddJobSettingList(app, "decode_groups", &lists.decode_groups);
  AddJobSettingList(app, "micro_batches", &lists.micro_batches);
  AddJobSettingList(app, "prefill_chunk", &lists.prefill_chunks);
  AddJobSettingList(app, "max_num_batched_tokens", &lists.max_num_batched_tokens);
  AddJobSettingList(app, "max_num_seqs", &lists.max_num_seqs, "the most of --concurrency, at least 8");
  AddJobSettingList(app, "block_tokens", &lists.block_tokens);
  AddChoices(app, "--policy", &lists.policies, kPolicies,
             ChoiceHelp("which rows a micro-batch takes first; several are compared in a table at the end", kPolicies,
                        o->cluster.policy));
  AddChoices(app, "--chunking", &lists.chunkings, kChunkings,
             ChoiceHelp("how prompts are cut", kChunkings, o->cluster.chunking));
  AddChoices(app, "--wire-dtype", &lists.wire_types, kWireTypes,
             ChoiceHelp("type of hidden states between stages", kWireTypes, o->cluster.wire_type));
  AddChoices(app, "--kv-type", &lists.kv_types, kKvTypes,
             ChoiceHelp("type of the stored keys and values", kKvTypes, o->cluster.kv_type));
  AddRepeated(app, "--emulate-link",
              "delay every hop as over such a link, latency=2ms,bandwidth=1Gbit, on top of the real hop; may be given "
              "several times, none: the real links alone; all that is measured so says it",
              "LINK", [&lists, first = true](const std::string& text) mutable {
                if (std::exchange(first, false)) lists.links.clear();
                return Store(text == "none" ? EmulatedLink() : ParseLink(text), &lists.links.emplace_back());
              });
  AddChoices(app, "--speculate", &lists.speculations, kSpeculations,
             ChoiceHelp("who guesses tokens ahead of those that are known", kSpeculations, SweepConfig().speculate));
  AddList<double>(app, "--acceptance", &lists.acceptances, "P,...",
                  "the share of tokens that are guessed right: each request is answered once, and measured when it is "
                  "sent again with so much of its answer foretold; 0: what --speculate reaches by itself (0)",
                  [](absl::string_view text) -> absl::StatusOr<double> {
                    RETURN_IF_ERROR(ParseNumber(text, {0, 1}).status());
                    double share = 0;  // not a float's: the key is that of a simulation's
                    return absl::SimpleAtod(text, &share) ? share : 0;
                  });
  AddBytes(app, "--kv-cache-memory", &o->cluster.kv_cache_bytes, "KV cache per stage of every point, such as 512M",
           "what --max-num-seqs of the longest requests need, as far as there is memory");
  AddInteger(app, "-r,--repetitions", &lists.repetitions, kSweepRepetitions,
             "of every point; all points are measured once before any is again");
}

void AddLoad(CLI::App* app, SweepOptions* o) {
  const HelpGroup group(app, "Load");
  SweepLists& lists = o->lists;
  SweepConfig& base = lists.base;
  AddList<std::string>(app, "--arrivals", &lists.arrivals, "WHEN,...", absl::StrCat(kArrivalsHelp, " (closed)"),
                       [](absl::string_view text) -> absl::StatusOr<std::string> {
                         ASSIGN_OR_RETURN(const Arrivals arrivals, ParseArrivalsOption(text));
                         return ArrivalsText(arrivals);
                       });
  AddIntegerList(app, "--concurrency", &lists.concurrency, JobLimits::kMaxNumSeqs.range,
                 "closed: requests under way at any time (8)");
  const auto lengths = [](absl::string_view text) -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const LengthDistribution parsed, ParseLengths(text));
    return LengthsText(parsed);
  };
  AddList<std::string>(app, "--prompt", &lists.prompts, "LENGTH,...",
                       "tokens of a prompt: N, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA[:LONGEST] (512)", lengths);
  AddList<std::string>(app, "--output", &lists.outputs, "LENGTH,...", "tokens of an answer, as --prompt (128)",
                       lengths);
  AddInteger(app, "--requests", &base.requests, {1, kMostRequests}, "requests of a point",
             absl::StrCat("closed: ", kRoundsOfClosedLoop, " for each under way; poisson: ", kRequestsOfPoisson,
                          "; all of a trace"));
  AddNumber(app, "--duration", &base.duration_s, kSecondsRange,
            "seconds after which no more requests arrive; those under way are finished, but what came by --arrivals "
            "is cancelled after twice that time",
            "");
  AddDuration(app, "--slo-ttft", &base.slo_ttft_s, kSecondsRange,
              "goodput: most from a request's arrival to its first token, such as 500ms or 2s");
  AddDuration(app, "--slo-itl", &base.slo_itl_s, JobLimits::kSloItlS,
              "goodput: most between two tokens, on average after that; --policy throttled keeps to it");
  AddSeed(app, "--seed", &base.seed, "of arrivals, lengths and prompts", "0");
}

// What the predictions beside the measurements rest on.
void AddFacts(CLI::App* app, SweepOptions* o) {
  const HelpGroup group(app, "Predictions");
  AddText(app, "--profile", &o->sources.profile, "FILE",
          "predict from what `coordinator probe` measured earlier; otherwise the sweep begins with a probe of its own, "
          "whose profile it leaves in its directory");
  AddText(app, "--cluster", &o->sources.cluster, "FILE", "predict from a description of the hosts");
  AddFlag(app, "--no-probe", &o->no_probe, "do not probe: predict from assumed speeds");
}

// What of the launch may decide a value: where the launcher puts ranks, by which networks, and what runs there.
std::string LaunchText(const ClusterOptions& cluster) {
  std::vector<std::string> parts;
  if (cluster.launcher != LauncherKind::kAuto) {
    parts.push_back(absl::StrCat("launched by ", NameOf(kLauncherKinds, cluster.launcher)));
  }
  if (!cluster.launcher_args.empty()) parts.push_back(absl::StrCat("launcher's arguments ", cluster.launcher_args));
  if (!cluster.stage_worker.empty()) parts.push_back(absl::StrCat("stages by ", AbsolutePath(cluster.stage_worker)));
  return absl::StrJoin(parts, ", ");
}

// What the plan fixes takes the place of these lists, which must not be given beside it.
absl::Status FollowPlanInLists(const HyperParameters& model, const RunContext& context, SweepOptions* o) {
  SweepLists& lists = o->lists;
  const auto most = [](const std::vector<int64_t>& list) { return *std::max_element(list.begin(), list.end()); };
  ClusterOptions followed = o->cluster;
  followed.stages = most(lists.stages);
  followed.threads = most(lists.threads);
  followed.micro_batches = most(lists.micro_batches);
  for (const int64_t chunk : lists.prefill_chunks) {
    if (chunk != JobSettings().prefill_chunk) followed.prefill_chunk = chunk;
  }
  pb::PlannedFor planned;
  RETURN_IF_ERROR(FollowPlan(model, context, &followed, &planned));
  lists.stages = {followed.stages};
  lists.threads = {followed.threads};
  lists.micro_batches = {followed.micro_batches};
  lists.prefill_chunks = {followed.prefill_chunk};
  o->cluster.layer_split = followed.layer_split;
  o->cluster.hosts = followed.hosts;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Arrivals> ParseArrivalsOption(absl::string_view text) {
  ASSIGN_OR_RETURN(Arrivals arrivals, ParseArrivals(text));
  if (!arrivals.trace_file.empty()) arrivals.trace_file = AbsolutePath(arrivals.trace_file);
  return arrivals;
}

void AddSweepOptions(CLI::App* app, SweepOptions* options) {
  options->lists.repetitions = 3;
  options->cluster.prefix_caching = false;  // a point is the computing of its requests, which have nothing in common
  AddModelOptions(app, &options->cluster);
  AddJobSettings(app, &options->cluster, Settings({"q2_layout", "layer_split", "stage_delay_us"}));
  AddText(app, "--plan", &options->cluster.plan, "FILE",
          "measure what a saved plan (coordinator plan -o FILE) says: its hosts, layers, threads, micro-batches and "
          "chunk");
  AddText(app, "-o,--directory", &options->directory, "DIR",
          "for the points, a line each in points.jsonl, and their report; the same command again goes on from there");
  AddFlag(
      app, "--trace", &options->trace,
      absl::StrCat("keep a timeline of the first run of each point beside the points, of up to ", kMostSweepTraces,
                   " points, for ui.perfetto.dev and `coordinator trace summary`; each such point is launched alone"));
  RefuseDraftOption(app,
                    "the points of a sweep have no draft; measure it by `coordinator bench --draft-model`, or say by "
                    "--acceptance how often its guesses are right");
  AddMatrix(app, options);
  AddLoad(app, options);
  AddFacts(app, options);
  AddHostOptions(app, &options->cluster);
  app->get_option("--dry-run")->description("print the points, their number and about how long they take, and end");
}

absl::StatusOr<std::shared_ptr<const ModelDescription>> ResolveSweep(const RunContext& context, SweepOptions* o) {
  RETURN_IF_ERROR(ResolveModel(&o->cluster, /*required=*/true));
  if (o->directory.empty() && !o->cluster.dry_run) return UsageError("-o is required: a directory for the points");
  const std::vector<double>& acceptances = o->lists.acceptances;
  if (o->lists.base.duration_s > 0 && *std::max_element(acceptances.begin(), acceptances.end()) > 0) {
    return UsageError(
        "--acceptance: how many requests a --duration has is not known when they are answered first; "
        "give --requests instead");
  }
  if (absl::Status status = CheckPointCount(o->lists); !status.ok()) return UsageError(status.message());
  ASSIGN_OR_RETURN(const std::shared_ptr<const ModelDescription> model,
                   OpenDescription(o->cluster.model, o->cluster.q2_layout));
  SweepLists& lists = o->lists;
  if (!o->cluster.plan.empty()) {
    RETURN_IF_ERROR(FollowPlanInLists(model->hyper, context, o));
  } else if (!o->cluster.layer_split.empty() && lists.stages == SweepLists().stages) {
    lists.stages = {std::ssize(o->cluster.layer_split)};
  }
  SweepConfig& base = lists.base;
  const ClusterOptions& cluster = o->cluster;
  const double slo_itl_s = base.slo_itl_s;
  static_cast<JobSettings&>(base) = cluster;
  base.slo_itl_s = slo_itl_s;
  base.model = IsDummyModelPath(cluster.model) ? cluster.model : AbsolutePath(cluster.model);
  base.launch = LaunchText(cluster);
  base.machine = absl::StrCat(ProcessorName(), ", ", AllowedCores(), " cores");
  SetProgramAndModel(*model, &base);
  ASSIGN_OR_RETURN(const LaunchOptions launch, MakeLaunchOptions(cluster, context));
  ASSIGN_OR_RETURN(base.hosts, HostsText(launch));
  for (const std::string& arrivals : lists.arrivals) {
    absl::StatusOr<std::string> hash = ArrivalsHash(arrivals);
    if (!hash.ok()) return OptionError("--arrivals", hash.status());
    if (!hash->empty()) lists.arrivals_hashes[arrivals] = *std::move(hash);
  }
  return model;
}

std::string LoadAndSplitText(const SweepOptions& options) {
  const SweepLists& lists = options.lists;
  std::vector<std::string> loads;
  for (const std::string& arrivals : lists.arrivals) {
    loads.push_back(arrivals == "closed" ? absl::StrCat("closed x", absl::StrJoin(lists.concurrency, ",")) : arrivals);
  }
  const std::string split = absl::StrJoin(options.cluster.layer_split, ",");
  return absl::StrCat("load         prompts of ", absl::StrJoin(lists.prompts, ", "), " and answers of ",
                      absl::StrJoin(lists.outputs, ", "), " tokens, ", absl::StrJoin(loads, ", "), "; layers split ",
                      split.empty()                  ? "by cost"
                      : options.cluster.plan.empty() ? split
                                                     : absl::StrCat(split, " as in ", options.cluster.plan));
}

ClusterOptions ProbeOptionsOf(const SweepOptions& options) {
  ClusterOptions o = options.cluster;
  const SweepLists& lists = options.lists;
  o.stages = *std::max_element(lists.stages.begin(), lists.stages.end());
  // The profile has the speeds of this number of threads and of all cores; the planner interpolates.
  o.threads = *std::min_element(lists.threads.begin(), lists.threads.end());
  o.kv_type = lists.kv_types.front();
  o.layer_split.clear();
  return o;
}

ClusterOptions ClusterOptionsOf(const SweepOptions& options, const SweepConfig& point, int64_t context) {
  ClusterOptions o = options.cluster;
  static_cast<JobSettings&>(o) = point;
  o.context = context;
  if (!o.plan.empty()) {  // which fixes these when the job is launched
    const ClusterOptions open;
    o.stages = open.stages;
    o.layer_split = open.layer_split;
    o.threads = open.threads;
    o.micro_batches = open.micro_batches;
    o.prefill_chunk = open.prefill_chunk;
  }
  if (o.policy != Policy::kThrottled) o.slo_itl_s = 0;  // then it is a bound of goodput alone
  return o;
}

std::string CommandOf(const SweepOptions& options, const SweepConfig& point) {
  const ClusterOptions& cluster = options.cluster;
  std::vector<std::string> words = {"coordinator", "sweep", "-m", point.model};
  const auto text = [&words](const char* flag, const std::string& value, const std::string& unset = "") {
    if (value != unset) words.insert(words.end(), {flag, value});
  };
  const auto number = [&](const char* flag, auto value) {
    if (value > 0) text(flag, absl::StrCat(value));
  };
  number("--pp", point.stages);
  number("-t", point.threads);
  number("--max-num-seqs", point.max_num_seqs);  // a sweep has another default
  for (std::string& word :
       JobSettingWords(point, AllSettingsBut({"context", "stages", "threads", "max_num_seqs", "prefix_caching",
                                              "speculate", "step_log", "trace"}))) {
    words.push_back(std::move(word));
  }
  text("--speculate", NameOf(kSpeculations, point.speculate), NameOf(kSpeculations, SweepConfig().speculate));
  if (point.acceptance > 0) text("--acceptance", ExactText(point.acceptance));
  text("--arrivals", point.arrivals);
  number("--concurrency", point.concurrency);
  text("--prompt", point.prompt, "trace");
  text("--output", point.output, "trace");
  number("--requests", point.requests);
  if (point.duration_s > 0) text("--duration", ExactText(point.duration_s));
  if (point.slo_ttft_s > 0) text("--slo-ttft", ExactText(point.slo_ttft_s) + "s");
  number("--seed", point.seed);
  text("--host", cluster.hosts);
  if (!cluster.hostfile.empty()) text("--hostfile", AbsolutePath(cluster.hostfile));
  text("--launcher", NameOf(kLauncherKinds, cluster.launcher), "auto");
  text("--launcher-args", cluster.launcher_args);
  text("--rsh-agent", cluster.rsh_agent);
  if (!cluster.stage_worker.empty()) text("--stage-worker", AbsolutePath(cluster.stage_worker));
  text("-r", "1");
  text("-o", SweepKey(point));
  return JoinShellWords(words);
}

}  // namespace stagecoach
