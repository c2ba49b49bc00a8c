#include "coordinator/cli/sweep/sweep_options.h"

#include <algorithm>

#include "CLI/App.hpp"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/job/job_limits.h"
#include "coordinator/cli/options/option_values.h"
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
                       "tokens of a prompt: N, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA[:LONGEST] (128)", lengths);
  AddList<std::string>(app, "--output", &lists.outputs, "LENGTH,...", "tokens of an answer, as --prompt (64)", lengths);
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
  AddJobSettings(app, &options->cluster, Settings({"q2_layout"}));
  AddText(app, "-o,--directory", &options->directory, "DIR",
          "for the points, a line each in points.jsonl, and their report; the same command again goes on from there");
  AddMatrix(app, options);
  AddLoad(app, options);
  AddFacts(app, options);
  AddHostOptions(app, &options->cluster);
  app->get_option("--dry-run")->description("print the points, their number and about how long they take, and end");
}

absl::Status ResolveSweepLists(SweepOptions* o) {
  RETURN_IF_ERROR(ResolveModel(&o->cluster, /*required=*/true));
  if (o->directory.empty() && !o->cluster.dry_run) return UsageError("-o is required: a directory for the points");
  if (absl::Status status = CheckPointCount(o->lists); !status.ok()) return UsageError(status.message());
  SweepConfig& base = o->lists.base;
  const ClusterOptions& cluster = o->cluster;
  const double slo_itl_s = base.slo_itl_s;
  static_cast<JobSettings&>(base) = cluster;
  base.slo_itl_s = slo_itl_s;
  base.model = IsDummyModelPath(cluster.model) ? cluster.model : AbsolutePath(cluster.model);
  base.hosts = cluster.hostfile.empty() ? cluster.hosts : AbsolutePath(cluster.hostfile);
  return absl::OkStatus();
}

ClusterOptions ProbeOptionsOf(const SweepOptions& options) {
  ClusterOptions o = options.cluster;
  const SweepLists& lists = options.lists;
  o.stages = *std::max_element(lists.stages.begin(), lists.stages.end());
  // The profile has the speeds of this number of threads and of all cores; the planner interpolates.
  o.threads = *std::min_element(lists.threads.begin(), lists.threads.end());
  o.kv_type = lists.kv_types.front();
  return o;
}

ClusterOptions ClusterOptionsOf(const SweepOptions& options, const SweepConfig& point, int64_t context) {
  ClusterOptions o = options.cluster;
  static_cast<JobSettings&>(o) = point;
  o.context = context;
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
       JobSettingWords(point, AllSettingsBut({"context", "stages", "layer_split", "threads", "max_num_seqs",
                                              "prefix_caching", "step_log", "trace", "stage_delay_us"}))) {
    words.push_back(std::move(word));
  }
  text("--arrivals", point.arrivals);
  number("--concurrency", point.concurrency);
  text("--prompt", point.prompt, "trace");
  text("--output", point.output, "trace");
  number("--requests", point.requests);
  if (point.duration_s > 0) text("--duration", ExactText(point.duration_s));
  if (point.slo_ttft_s > 0) text("--slo-ttft", ExactText(point.slo_ttft_s) + "s");
  number("--seed", point.seed);
  text(cluster.hostfile.empty() ? "--host" : "--hostfile", point.hosts);
  text("--launcher", NameOf(kLauncherKinds, cluster.launcher), "auto");
  text("--launcher-args", cluster.launcher_args);
  text("--rsh-agent", cluster.rsh_agent);
  text("-r", "1");
  text("-o", SweepKey(point));
  return JoinShellWords(words);
}

}  // namespace stagecoach
