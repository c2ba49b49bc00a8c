// trace: what the timeline of a run says. Reads a file that --trace has written.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "CLI/App.hpp"
#include "absl/strings/str_format.h"
#include "common/base/shown_text.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/trace/trace_file.h"
#include "coordinator/trace/trace_job.h"
#include "coordinator/trace/trace_summary.h"

namespace stagecoach {
namespace {

constexpr const char* kStateNames[kStageStates] = {"compute", "send", "wait upstream", "wait downstream", "idle"};
constexpr const char* kStateKeys[kStageStates] = {"compute_us", "send_us", "wait_upstream_us", "wait_downstream_us",
                                                  "idle_us"};

// What to do about a cause of the bubble, in the order of kBubbleCauses.
constexpr const char* kRemedies[] = {
    "more requests at once (--max-num-seqs), or fewer stages (--pp)",
    "split the layers by what they cost (`coordinator plan`, then --plan), or leave the slow host out",
    "more or longer requests: these are a run's ends, and steps of unequal length (a smaller --prefill-chunk)",
    "faster links or smaller frames (--wire-dtype bf16), or more requests at once, which compute meanwhile",
    "more requests at once in fewer groups (--decode-groups), or a core for the coordinator alone",
    "texts that repeat themselves more, or no guesses (--speculate off)"};
static_assert(std::size(kRemedies) == std::size(kBubbleCauses));
constexpr char kRemedyOfHopsInAHost[] =
    "fewer stages (--pp), for all are on one host and no link is in between, or more requests at once, which compute "
    "meanwhile";

const char* RemedyOf(const TraceJob& job, const BubbleCauses& causes) {
  const std::vector<TraceStage>& stages = job.header.stages;
  const bool one_host = std::all_of(stages.begin(), stages.end(),
                                    [&](const TraceStage& stage) { return stage.host == job.header.coordinator_host; });
  for (size_t i = 0; i < std::size(kBubbleCauses); ++i) {
    if (kBubbleCauses[i].name != absl::string_view(causes.Main())) continue;
    return one_host && kBubbleCauses[i].share == &BubbleCauses::hop ? kRemedyOfHopsInAHost : kRemedies[i];
  }
  return "";
}

// A host names itself.
std::string HostText(const std::string& host) { return IsPlainName(host, 255) ? host : ShownText(host); }

std::string SecondsText(int64_t us) { return absl::StrFormat("%d.%06d", us / 1000000, us % 1000000); }
std::string ShareText(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

std::string StagesText(const TraceJob& job, const TraceSummary& summary) {
  std::vector<std::string> head = {"stage", "host", "layers"};
  head.insert(head.end(), kStateNames, kStateNames + kStageStates);
  for (const char* more : {"= wall s", "computing"}) head.emplace_back(more);
  if (summary.guessed_rows > 0) head.emplace_back("of it void");
  head.emplace_back("clock us");
  TextTable table(std::move(head));
  for (int s = 0; s < job.stages(); ++s) {
    const TraceStage& stage = job.header.stages[static_cast<size_t>(s)];
    const StageClock& clock = job.clocks[static_cast<size_t>(s)];
    const StateSums& us = summary.stages[static_cast<size_t>(s)];
    std::vector<std::string> row = {absl::StrCat(s), HostText(stage.host),
                                    absl::StrCat(stage.first_layer, "-", stage.last_layer - 1)};
    for (const int64_t part : us) row.push_back(SecondsText(part));
    row.push_back(SecondsText(summary.wall_us));
    const double wall = static_cast<double>(std::max<int64_t>(summary.wall_us, 1));
    row.push_back(ShareText(static_cast<double>(us[static_cast<size_t>(StageState::kCompute)]) / wall));
    if (summary.guessed_rows > 0) row.push_back(ShareText(summary.void_us[static_cast<size_t>(s)] / wall));
    row.push_back(clock.error_us == 0 ? "the same" : absl::StrFormat("%+d +- %d", clock.offset_us, clock.error_us));
    table.Add(std::move(row));
  }
  return table.Text();
}

std::string CausesText(const TraceJob& job, const TraceSummary& summary) {
  const BubbleCauses& causes = summary.causes;
  std::string text =
      absl::StrCat("bubble    ", ShareText(causes.bubble), " of the ", absl::StrFormat("%.3f", causes.busy_us * 1e-6),
                   " s with work, floor for this work ", ShareText(causes.floor));
  const char* separator = ": ";
  for (const auto& cause : kBubbleCauses) {
    if (cause.share == &BubbleCauses::void_guesses && causes.void_guesses == 0) continue;  // most runs have no guesses
    absl::StrAppend(&text, separator, cause.name, " ", ShareText(causes.*cause.share));
    separator = ", ";
  }
  if (*causes.Main() != '\0') {
    absl::StrAppend(&text, "\ncause     mostly ", causes.Main(), "\nremedy    ", RemedyOf(job, causes));
  }
  return absl::StrCat(text, "\n");
}

std::string GuessedText(const TraceSummary& summary) {
  if (summary.guessed_rows == 0) return "";
  return absl::StrCat(", ", summary.guessed_rows, " guessed ones, ", summary.void_rows, " of these void,");
}

// What is not in the trace, though it was in the run.
std::string GapsText(const TraceJob& job) {
  std::string text;
  if (job.cut) {
    text =
        "cut       the job did not end in order, or its file was full or lost its end: what was in flight then, and "
        "what came after, is not in the trace\n";
  }
  if (job.missing() > 0) {
    absl::StrAppend(&text, "missing   ", job.missing(), " micro-batches, which the disk was too slow for\n");
  }
  return text;
}

std::string JobText(const TraceJob& job, const TraceSummary& summary) {
  return absl::StrCat(job.header.simulated ? "simulated " : "", summary.micro_batches, " micro-batches, ",
                      summary.prefill_rows, " prefill rows and ", summary.decode_rows, " decode rows",
                      GuessedText(summary), " in ", SecondsText(summary.wall_us), " s\n", GapsText(job), "\n",
                      StagesText(job, summary), "\n", CausesText(job, summary));
}

Json JobJson(const TraceJob& job, const TraceSummary& summary) {
  Json stages = Json::array();
  for (int s = 0; s < job.stages(); ++s) {
    const TraceStage& stage = job.header.stages[static_cast<size_t>(s)];
    const StageClock& clock = job.clocks[static_cast<size_t>(s)];
    Json entry = {{"stage", s},
                  {"rank", stage.rank},
                  {"host", stage.host},
                  {"first_layer", stage.first_layer},
                  {"last_layer", stage.last_layer},
                  {"threads", stage.threads}};
    for (int state = 0; state < kStageStates; ++state) {
      entry[kStateKeys[state]] = summary.stages[static_cast<size_t>(s)][static_cast<size_t>(state)];
    }
    entry["void_us"] = std::llround(summary.void_us[static_cast<size_t>(s)]);
    entry["clock_offset_us"] = clock.offset_us;
    entry["clock_error_us"] = clock.error_us;
    entry["clock_drift_ppm"] = clock.drift_ppm;
    stages.push_back(std::move(entry));
  }
  Json shares = Json::object(), options = Json::object();
  for (const auto& cause : kBubbleCauses) shares[cause.key] = summary.causes.*cause.share;
  for (const auto& [name, value] : job.header.options) options[name] = value;
  return {{"version", job.header.version},
          {"simulated", job.header.simulated},
          {"wall_us", summary.wall_us},
          {"micro_batches", summary.micro_batches},
          {"prefill_rows", summary.prefill_rows},
          {"decode_rows", summary.decode_rows},
          {"guessed_rows", summary.guessed_rows},
          {"void_rows", summary.void_rows},
          {"busy_us", summary.causes.busy_us},
          {"bubble", summary.causes.bubble},
          {"bubble_floor", summary.causes.floor},
          {"bubble_shares", std::move(shares)},
          {"bubble_cause", summary.causes.Main()},
          {"remedy", RemedyOf(job, summary.causes)},
          {"cut", job.cut},
          {"missing_micro_batches", job.missing()},
          {"stages", std::move(stages)},
          {"options", std::move(options)}};
}

class TraceVerb : public Verb {
 public:
  TraceVerb() : Verb("trace", "say where the time of a traced run went", "coordinator trace summary out.json") {}

  void AddOptions(CLI::App* app) override {
    summary_ =
        AddAction(app, "summary", "account for every microsecond of every stage, and name the cause of the bubble",
                  "what --trace wrote, also of a run that was killed");
    AddFlag(summary_, "--json", &json_, "one JSON object");
    finish_ = AddAction(app, "finish", "complete the trace of a run that was killed, so that ui.perfetto.dev shows it",
                        "what --trace left; it is replaced");
  }

  absl::Status Run(const RunContext&) override {
    if (summary_->parsed()) return Summarize(file_);
    if (finish_->parsed()) return AsInput(FinishTrace(file_));
    return UsageError("give an action and a file: trace summary FILE, or trace finish FILE");
  }

 private:
  CLI::App* AddAction(CLI::App* app, const std::string& name, const std::string& what, const std::string& file) {
    CLI::App* action = app->add_subcommand(name, what);
    action->group("Commands");
    action->footer(absl::StrCat(kExamplePrefix, "coordinator trace ", name, " out.json"));
    action->add_option("file", file_, file)->type_name("FILE")->required();
    return action;
  }

  static absl::Status AsInput(absl::Status status) {
    return status.ok() ? status : WithExitCode(std::move(status), ExitCode::kInputFile);
  }

  absl::Status Summarize(const std::string& path) const {
    absl::StatusOr<std::vector<TraceJob>> jobs = ReadTrace(path);
    if (!jobs.ok()) return AsInput(jobs.status());
    std::string text;
    Json list = Json::array();
    for (TraceJob& job : *jobs) {
      if (absl::Status aligned = AlignTrace(&job); !aligned.ok()) {
        return InputFileError(absl::StrCat("'", path, "': ", aligned.message()));
      }
      const TraceSummary summary = SummarizeTrace(job);
      if (json_) {
        list.push_back(JobJson(job, summary));
        continue;
      }
      if (jobs->size() > 1) absl::StrAppend(&text, text.empty() ? "" : "\n", "job ", &job - jobs->data() + 1, ": ");
      text += JobText(job, summary);
    }
    return WriteStdout(json_ ? PrettyJson({{"jobs", std::move(list)}}) : text);
  }

  CLI::App* summary_ = nullptr;
  CLI::App* finish_ = nullptr;
  std::string file_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeTraceVerb() { return std::make_unique<TraceVerb>(); }

}  // namespace stagecoach
