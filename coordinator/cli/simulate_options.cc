#include "coordinator/cli/simulate_options.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "CLI/App.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/job/job_limits.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/job_options.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {
namespace {

constexpr char kSimLoadGroup[] = "Load";
constexpr char kSimWorldGroup[] = "Simulated world";
constexpr NumberRange kSimSecondsRange = {0, 1e9};
constexpr NumberRange kSimBoundRange = {0, 1e6, /*open_min=*/true};

void AddSimulatedHosts(CLI::App* app, SimulateOptions* o) {
  const char* group = kClusterGroup;
  ClusterOptions* cluster = &o->probe.cluster;
  AddText(app, "-m,--model", &cluster->model, "FILE", "the model, a GGUF file (any shard of a split one)")
      ->group(group);
  AddDummyOptions(app, &o->probe.dummy, /*several=*/false, group);
  AddPlannedPlaceOptions(app, cluster, &o->sources.cluster, &o->sources.profile, group);
  AddJobSettings(app, cluster, Settings({"q2_layout", "stages", "layer_split", "threads", "context", "isa"}));
  AddFlag(app, "--split-by-cost", &o->split_by_cost,
          "split the layers as `coordinator plan` would for these hosts, not as a job that knows only their cores")
      ->group(group);
  AddText(app, "--plan", &cluster->plan, "FILE", "follow a saved plan (coordinator plan -o FILE)")->group(group);
}

void AddSimulatedLoad(CLI::App* app, SimulateOptions* o) {
  const char* group = kSimLoadGroup;
  AddInteger(app, "--requests", &o->request_count, {1, kMostRequests}, "requests; of a trace its first ones",
             absl::StrCat(SimulateOptions::kDefaultRequests, "; all of a trace"))
      ->group(group);
  AddText(app, "--arrivals", &o->arrivals, "WHEN",
          "closed: a new request when one ends; poisson:RATE: so many a second on average; trace:FILE: as a file of "
          "{\"arrival_s\", \"prompt_tokens\", \"output_tokens\"} lines says, each with \"tenant\", \"weight\" and "
          "\"class\" where it is of one user of several")
      ->group(group)
      ->default_str("closed");
  AddInteger(app, "--concurrency", &o->concurrency, {0, kMostRequests},
             "requests under way at any time; what comes on top waits at the client; 0: no limit",
             "--max-num-seqs with closed arrivals, else 0")
      ->group(group);
  AddText(app, "--prompt", &o->prompt, "LENGTH",
          "tokens of a prompt: 512, uniform:64:1024 or lognormal:MEDIAN:SIGMA[:LONGEST]")
      ->group(group)
      ->default_str("128");
  AddText(app, "--output", &o->output, "LENGTH", "tokens of an answer, as --prompt")->group(group)->default_str("64");
  AddDuration(app, "--slo-ttft", &o->slo_ttft_s, kSimBoundRange,
              "goodput: most to the first token, such as 500ms; --slo-itl is the bound of the mean gap after that")
      ->group(group);
  AddSeed(app, "--seed", &o->seed, "of arrivals, lengths, jitter and failures", "0")->group(group);
}

void AddSimulatedWorld(CLI::App* app, SimulateOptions* o) {
  const char* group = kSimWorldGroup;
  AddNumber(app, "--coordinator-us", &o->coordinator_us, {0, 1e7},
            "microseconds that the coordinator takes for a micro-batch, from a result to the next one's sending",
            absl::StrCat(o->coordinator_us))
      ->group(group);
  AddNumber(app, "--wake-us", &o->wake_us, {0, 1e7},
            "microseconds from a frame's arrival, at a stage or the coordinator, until whoever waits for it has it",
            absl::StrCat(o->wake_us))
      ->group(group);
  AddNumber(app, "--front-us", &o->front_us, {0, 1e7},
            "microseconds that the front takes for a request, from the end that it waits for to the engine",
            absl::StrCat(o->front_us))
      ->group(group);
  AddTexts(app, "--fail-at", &o->fail_at, "SECONDS,...", "a stage is lost at these times")->group(group);
  AddNumber(app, "--mtbf", &o->failures.mean_between_s, kSimBoundRange,
            "mean seconds between two losses of one stage, by chance (otherwise none is lost)", "")
      ->group(group);
  AddNumber(app, "--detect", &o->failures.detect_s, kSimSecondsRange, "seconds until a loss is known",
            absl::StrCat(o->failures.detect_s))
      ->group(group);
  AddNumber(app, "--relaunch", &o->failures.relaunch_s, kSimSecondsRange,
            "seconds from then until the next job is ready", absl::StrCat(o->failures.relaunch_s))
      ->group(group);
  AddText(app, "--replay", &o->replay, "FILE",
          "instead of all this: run the scheduler again over the times of a recorded run (--step-log) and say whether "
          "every micro-batch comes out as it was")
      ->group(group);
  AddFlag(app, "--json", &o->json,
          "one line for each policy: the record of a point of a sweep, with \"simulated\": true")
      ->group(group);
  AddText(app, "-o", &o->directory, "DIR",
          "add that record to the points of this directory, which `coordinator sweep report DIR` shows beside what a "
          "sweep measured there")
      ->group(group);
}

}  // namespace

int64_t SimulateOptions::Concurrency() const {
  const bool closed = load.arrivals.kind == Arrivals::Kind::kClosedLoop;
  return concurrency.value_or(closed ? probe.cluster.max_num_seqs : 0);
}

void AddSimulateOptions(CLI::App* app, SimulateOptions* options) {
  AddSimulatedHosts(app, options);
  AddTexts(app, "--policy", &options->policies, "NAME,...",
           absl::StrCat("what a micro-batch takes: ", NamesIn(kPolicies),
                        " (coordinator help generate says what they are). Of several, or all, each is simulated and a "
                        "table compares them"))
      ->group(kBatchingGroup)
      ->default_str(PolicyName(options->probe.cluster.policy));
  options->probe.cluster.prefix_caching = false;  // as of a sweep's points; made-up prompts have nothing in common
  AddJobSettings(app, &options->probe.cluster, [](const JobSetting& setting) {
    const absl::string_view name = setting.name;
    return (setting.group != SettingGroup::kCluster || name == "emulated_link") && name != "policy";
  });
  AddSimulatedLoad(app, options);
  AddSimulatedWorld(app, options);
}

absl::Status ReadSimulatedLoad(SimulateOptions* o) {
  const auto wrong = [](const char* flag, const absl::Status& status) {
    return UsageError(absl::StrCat(flag, ": ", status.message()));
  };
  o->load.seed = o->seed.value_or(0);
  o->load.requests = o->request_count.value_or(SimulateOptions::kDefaultRequests);
  absl::StatusOr<Arrivals> arrivals = ParseArrivals(o->arrivals);
  if (!arrivals.ok()) return wrong("--arrivals", arrivals.status());
  o->load.arrivals = *std::move(arrivals);
  if (std::string& file = o->load.arrivals.trace_file; !file.empty()) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::absolute(file, error);
    if (!error) file = path.string();
  }
  absl::StatusOr<LengthDistribution> prompt = ParseLengths(o->prompt), output = ParseLengths(o->output);
  if (!prompt.ok()) return wrong("--prompt", prompt.status());
  if (!output.ok()) return wrong("--output", output.status());
  o->load.prompt = *prompt;
  o->load.output = *output;
  for (const std::string& list : o->fail_at) {
    for (const absl::string_view text : absl::StrSplit(list, ',')) {
      const absl::StatusOr<float> at_s = ParseNumber(text, kSimSecondsRange);
      if (!at_s.ok()) return wrong("--fail-at", at_s.status());
      o->failures.at_s.push_back(*at_s);
    }
  }
  if (o->load.arrivals.kind != Arrivals::Kind::kTrace) {
    o->requests = MakeRequests(o->load);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ArrivingRequest>> trace = ReadArrivalTrace(o->load.arrivals.trace_file);
  if (!trace.ok()) {
    return WithExitCode(absl::Status(trace.status().code(), absl::StrCat("--arrivals: ", trace.status().message())),
                        ExitCode::kInputFile);
  }
  o->requests = *std::move(trace);
  if (o->request_count.has_value() && *o->request_count < static_cast<int64_t>(o->requests.size())) {
    o->requests.resize(static_cast<size_t>(*o->request_count));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
