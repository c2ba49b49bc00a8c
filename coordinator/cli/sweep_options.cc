#include "coordinator/cli/sweep_options.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "CLI/App.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/job/job_limits.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/launch/shell_words.h"

namespace stagecoach {
namespace {

constexpr char kMatrixGroup[] = "Matrix (lists: every value with every other)";
constexpr char kLoadGroup[] = "Load";
constexpr char kFactsGroup[] = "Predictions";
constexpr IntegerRange kSweepRepetitions = {1, 1000};
constexpr NumberRange kSecondsRange = {0, 1e6, /*open_min=*/true};

// "which rows ...: one, another (interleaved)".
template <typename Enum, size_t kCount>
std::string ChoiceHelp(absl::string_view what, const NamedValue<Enum> (&choices)[kCount], Enum unset) {
  std::string names;
  for (const NamedValue<Enum>& choice : choices) absl::StrAppend(&names, names.empty() ? "" : ", ", choice.name);
  return absl::StrCat(what, ": ", names, " (", NameOf(choices, unset), ")");
}

void AddModel(CLI::App* app, SweepOptions* o) {
  AddText(app, "-m,--model", &o->cluster.model, "FILE", "the model, a GGUF file (any shard of a split one)");
  AddDummyOptions(app, &o->dummy, /*several=*/false);
  AddQ2LayoutOption(app, &o->cluster.q2_layout);
  AddText(app, "-o,--directory", &o->directory, "DIR",
          "for the points, a line each in points.jsonl, and their report; the same command again goes on from there");
}

void AddMatrix(CLI::App* app, SweepOptions* o) {
  const char* group = kMatrixGroup;
  SweepLists& lists = o->lists;
  AddJobSettingList(app, "stages", &lists.stages)->group(group);
  AddJobSettingList(app, "threads", &lists.threads)->group(group);
  AddJobSettingList(app, "decode_groups", &lists.decode_groups)->group(group);
  AddJobSettingList(app, "micro_batches", &lists.micro_batches)->group(group);
  AddJobSettingList(app, "prefill_chunk", &lists.prefill_chunks)->group(group);
  AddJobSettingList(app, "max_num_batched_tokens", &lists.max_num_batched_tokens)->group(group);
  AddJobSettingList(app, "max_num_seqs", &lists.max_num_seqs, "the most of --concurrency, at least 8")->group(group);
  AddJobSettingList(app, "block_tokens", &lists.block_tokens)->group(group);
  AddTexts(app, "--policy", &o->policies, "NAME,...",
           ChoiceHelp("which rows a micro-batch takes first; several are compared in a table at the end", kPolicies,
                      o->cluster.policy))
      ->group(group);
  AddTexts(app, "--chunking", &o->chunkings, "NAME,...",
           ChoiceHelp("how prompts are cut", kChunkings, o->cluster.chunking))
      ->group(group);
  AddTexts(app, "--wire-dtype", &o->wire_types, "NAME,...",
           ChoiceHelp("type of hidden states between stages", kWireTypes, o->cluster.wire_type))
      ->group(group);
  AddTexts(app, "--kv-type", &o->kv_types, "NAME,...",
           ChoiceHelp("type of the stored keys and values", kKvTypes, o->cluster.kv_type))
      ->group(group);
  AddTexts(app, "--emulate-link", &o->links, "LINK",
           "delay every hop as over such a link, latency=2ms,bandwidth=1Gbit, on top of the real hop; may be given "
           "several times, none: the real links alone; all that is measured so says it")
      ->group(group);
  AddBytes(app, "--kv-cache-memory", &o->cluster.kv_cache_bytes, "KV cache per stage of every point, such as 512M",
           "what --max-num-seqs of the longest requests need, as far as there is memory")
      ->group(group);
  AddInteger(app, "-r,--repetitions", &lists.repetitions, kSweepRepetitions,
             "of every point; all points are measured once before any is again", absl::StrCat(lists.repetitions))
      ->group(group);
}

void AddLoad(CLI::App* app, SweepOptions* o) {
  const char* group = kLoadGroup;
  SweepConfig& base = o->lists.base;
  AddTexts(app, "--arrivals", &o->arrivals, "WHEN,...",
           "closed: a new request when one ends; poisson:RATE: so many a second on average; trace:FILE: as a file of "
           "{\"arrival_s\", \"prompt_tokens\", \"output_tokens\"} lines says, each with \"tenant\", \"weight\" and "
           "\"class\" where it is of one user of several (closed)")
      ->group(group);
  AddIntegerList(app, "--concurrency", &o->lists.concurrency, JobLimits::kMaxNumSeqs.range,
                 "closed: requests under way at any time (8)")
      ->group(group);
  AddTexts(app, "--prompt", &o->prompts, "LENGTH,...",
           "tokens of a prompt: N, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA[:LONGEST] (128)")
      ->group(group);
  AddTexts(app, "--output", &o->outputs, "LENGTH,...", "tokens of an answer, as --prompt (64)")->group(group);
  AddInteger(app, "--requests", &base.requests, {1, kMostRequests}, "requests of a point",
             absl::StrCat("closed: ", kRoundsOfClosedLoop, " for each under way; poisson: ", kRequestsOfPoisson,
                          "; all of a trace"))
      ->group(group);
  AddNumber(app, "--duration", &base.duration_s, kSecondsRange,
            "seconds after which no more requests arrive; those under way are finished, but what came by --arrivals "
            "is cancelled after twice that time",
            "")
      ->group(group);
  AddDuration(app, "--slo-ttft", &base.slo_ttft_s, kSecondsRange,
              "goodput: most from a request's arrival to its first token, such as 500ms or 2s")
      ->group(group);
  AddDuration(app, "--slo-itl", &base.slo_itl_s, JobLimits::kSloItlS,
              "goodput: most between two tokens, on average after that; --policy throttled keeps to it")
      ->group(group);
  AddSeed(app, "--seed", &o->seed, "of arrivals, lengths and prompts", "0")->group(group);
}

// What the predictions beside the measurements rest on.
void AddFacts(CLI::App* app, SweepOptions* o) {
  const char* group = kFactsGroup;
  AddText(app, "--profile", &o->sources.profile, "FILE",
          "predict from what `coordinator probe` measured earlier; otherwise the sweep begins with a probe of its own, "
          "whose profile it leaves in its directory")
      ->group(group);
  AddText(app, "--cluster", &o->sources.cluster, "FILE", "predict from a description of the hosts")->group(group);
  AddFlag(app, "--no-probe", &o->no_probe, "do not probe: predict from assumed speeds")->group(group);
}

// The values of an option that may be given several times, each a list.
std::vector<std::string> SplitValues(const std::vector<std::string>& given, const char* none) {
  std::vector<std::string> values;
  for (const std::string& value : given) {
    for (absl::string_view part : absl::StrSplit(value, ',')) values.emplace_back(absl::StripAsciiWhitespace(part));
  }
  if (values.empty()) values = {none};
  return values;
}

// Each value in the form that `form` gives it; a bad one is a usage error that names the option.
template <typename Form>
absl::StatusOr<std::vector<std::string>> Values(const char* option, const std::vector<std::string>& given,
                                                const char* none, const Form& form) {
  std::vector<std::string> values = SplitValues(given, none);
  for (std::string& value : values) {
    absl::StatusOr<std::string> one = form(value);
    if (!one.ok()) {
      const std::string message(one.status().message());  // some name their field, which is said as the option
      return UsageError(message[0] == '`' ? message : absl::StrCat(option, ": ", message));
    }
    value = *std::move(one);
  }
  return values;
}

absl::StatusOr<std::string> ArrivalsForm(const std::string& text) {
  ASSIGN_OR_RETURN(Arrivals arrivals, ParseArrivals(text));
  if (arrivals.kind == Arrivals::Kind::kTrace) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::absolute(arrivals.trace_file, error);
    if (!error) arrivals.trace_file = path.string();
  }
  return ArrivalsText(arrivals);
}

absl::StatusOr<std::string> LengthsForm(const std::string& text) {
  ASSIGN_OR_RETURN(const LengthDistribution lengths, ParseLengths(text));
  return LengthsText(lengths);
}

// The same of an enum's names, which its setting's declaration has.
template <typename Enum, size_t kCount>
absl::Status ReadChoices(const char* name, const std::vector<std::string>& given,
                         const NamedValue<Enum> (&names)[kCount], std::vector<Enum>* values) {
  if (given.empty()) return absl::OkStatus();
  values->clear();
  for (const std::string& text : SplitValues(given, "")) {
    const absl::StatusOr<Enum> value = ParseName(names, name, text);
    if (!value.ok()) return UsageError(value.status().message());
    values->push_back(*value);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<EmulatedLink>> ResolveLinks(const std::vector<std::string>& given) {
  std::vector<EmulatedLink> links;
  for (const std::string& text : given) {
    if (text == "none") {
      links.push_back(EmulatedLink());
      continue;
    }
    const absl::StatusOr<EmulatedLink> link = ParseEmulatedLink(text);
    if (!link.ok()) {
      return UsageError(
          absl::StrCat("--emulate-link: ", absl::StripPrefix(link.status().message(), "`emulated_link`: ")));
    }
    links.push_back(*link);
  }
  if (links.empty()) links = {EmulatedLink()};
  return links;
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

}  // namespace

void AddSweepOptions(CLI::App* app, SweepOptions* options) {
  options->lists.repetitions = 3;
  options->cluster.prefix_caching = false;  // a point is the computing of its requests, which have nothing in common
  AddModel(app, options);
  AddMatrix(app, options);
  AddLoad(app, options);
  AddFacts(app, options);
  AddHostOptions(app, &options->cluster);
  app->get_option("--dry-run")->description("print the points, their number and about how long they take, and end");
}

absl::Status ResolveSweepLists(SweepOptions* o) {
  ASSIGN_OR_RETURN(o->cluster.model, ModelOf(o->cluster.model, o->dummy, /*required=*/true));
  if (o->directory.empty() && !o->cluster.dry_run) return UsageError("-o is required: a directory for the points");
  SweepLists& lists = o->lists;
  RETURN_IF_ERROR(ReadChoices("policy", o->policies, kPolicies, &lists.policies));
  RETURN_IF_ERROR(ReadChoices("chunking", o->chunkings, kChunkings, &lists.chunkings));
  RETURN_IF_ERROR(ReadChoices("wire_type", o->wire_types, kWireTypes, &lists.wire_types));
  RETURN_IF_ERROR(ReadChoices("kv_type", o->kv_types, kKvTypes, &lists.kv_types));
  ASSIGN_OR_RETURN(lists.arrivals, Values("--arrivals", o->arrivals, "closed", ArrivalsForm));
  ASSIGN_OR_RETURN(lists.prompts, Values("--prompt", o->prompts, "128", LengthsForm));
  ASSIGN_OR_RETURN(lists.outputs, Values("--output", o->outputs, "64", LengthsForm));
  ASSIGN_OR_RETURN(lists.links, ResolveLinks(o->links));
  if (absl::Status status = CheckPointCount(lists); !status.ok()) return UsageError(status.message());
  SweepConfig& base = lists.base;
  const ClusterOptions& cluster = o->cluster;
  const double slo_itl_s = base.slo_itl_s;
  static_cast<JobSettings&>(base) = cluster;
  base.slo_itl_s = slo_itl_s;
  base.model = IsDummyModelPath(cluster.model) ? cluster.model : AbsolutePath(cluster.model);
  base.hosts = cluster.hostfile.empty() ? cluster.hosts : AbsolutePath(cluster.hostfile);
  base.seed = o->seed.value_or(0);
  return absl::OkStatus();
}

ClusterOptions ProbeOptionsOf(const SweepOptions& options) {
  ClusterOptions o = options.cluster;
  const SweepLists& lists = options.lists;
  o.stages = *std::max_element(lists.stages.begin(), lists.stages.end());
  // The profile has the speeds of so many threads and of all cores, and the planner draws lines between.
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

namespace {

// With the fewest digits that give this number back.
std::string ExactText(double value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

}  // namespace

std::string CommandOf(const SweepOptions& options, const SweepConfig& point) {
  const ClusterOptions& cluster = options.cluster;
  std::vector<std::string> words = {"coordinator", "sweep", "-m", point.model};
  const auto text = [&words](const char* flag, const std::string& value, const std::string& unset = "") {
    if (value == unset) return;
    words.push_back(flag);
    words.push_back(value);
  };
  const auto number = [&](const char* flag, auto value) {
    if (value > 0) text(flag, absl::StrCat(value));
  };
  text("--q2-layout", cluster.q2_layout, "auto");
  number("--pp", point.stages);
  number("-t", point.threads);
  number("--decode-groups", point.decode_groups);
  number("--micro-batches", point.micro_batches);
  number("--prefill-chunk", point.prefill_chunk);
  number("--max-num-batched-tokens", point.max_num_batched_tokens);
  number("--max-num-seqs", point.max_num_seqs);
  number("--block-size", point.block_tokens);
  text("--policy", PolicyName(point.policy));
  text("--chunking", NameOf(kChunkings, point.chunking), NameOf(kChunkings, Chunking::kConstant));
  text("--wire-dtype", WireTypeName(point.wire_type));
  text("--kv-type", KvTypeName(point.kv_type));
  number("--kv-cache-memory", point.kv_cache_bytes);
  text("--arrivals", point.arrivals);
  number("--concurrency", point.concurrency);
  text("--prompt", point.prompt, "trace");
  text("--output", point.output, "trace");
  number("--requests", point.requests);
  if (point.duration_s > 0) text("--duration", ExactText(point.duration_s));
  if (point.slo_ttft_s > 0) text("--slo-ttft", ExactText(point.slo_ttft_s) + "s");
  if (point.slo_itl_s > 0) text("--slo-itl", ExactText(point.slo_itl_s) + "s");
  number("--seed", point.seed);
  text("--emulate-link", EmulatedLinkText(point.emulated_link));
  if (point.isa.has_value()) text("--isa", InstructionSetName(*point.isa));
  text("--cpu-bind", NameOf(kCpuBinds, point.cpu_bind), "auto");
  text("--weights", NameOf(kWeightSources, point.weights), "file");
  text("--weights-cache", cluster.weights_cache);
  if (cluster.allow_damaged) words.push_back("--allow-damaged");
  text(cluster.hostfile.empty() ? "--host" : "--hostfile", point.hosts);
  text("--launcher", NameOf(kLauncherKinds, cluster.launcher), "auto");
  text("--launcher-args", cluster.launcher_args);
  text("--rsh-agent", cluster.rsh_agent);
  text("-r", "1");
  text("-o", SweepKey(point));
  return JoinShellWords(words);
}

}  // namespace stagecoach
