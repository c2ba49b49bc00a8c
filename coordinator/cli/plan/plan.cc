// plan: how a model would run on a cluster, and how fast, without running it. Reads the model's header alone.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/bench/bench_work.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/plan/plan_places.h"
#include "coordinator/cli/verb.h"
#include "coordinator/launch/hosts/host_networks.h"
#include "coordinator/launch/program_output.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/plan/host_profile.h"
#include "coordinator/plan/plan_advice.h"
#include "coordinator/plan/saved_plan.h"

namespace stagecoach {
namespace {

struct PlanReport {
  const ClusterQuestion* question = nullptr;
  const PlanPlaces* places = nullptr;
  const ClusterPlan* plan = nullptr;
  const PlanAdvice* advice = nullptr;
  // Words of a command line that say which model: "-m FILE", or those of a model without weights.
  std::vector<std::string> model_words;
  std::vector<std::string> job_words;  // likewise, what a job of one stage was asked to be other than by default
  bool has_tokenizer = true;

  const HostFacts& HostOf(int stage) const {
    return places->profile.hosts[static_cast<size_t>(places->stage_hosts[static_cast<size_t>(stage)])];
  }
};

constexpr double kBytesOfMib = 1024.0 * 1024.0;

std::string MibText(uint64_t bytes) { return absl::StrFormat("%.1f", static_cast<double>(bytes) / kBytesOfMib); }
std::string PercentText(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

// In front of every figure that rests on an assumption.
const char* Mark(const PlanReport& report) { return report.places->assumptions.empty() ? "" : "~"; }

std::string PlanTable(const PlanReport& report) {
  const ClusterPlan& plan = *report.plan;
  const char* mark = Mark(report);
  TextTable table({"stage", "host", "layers", "threads", "weights MiB", "KV MiB", "buffers MiB", "decode ms",
                   "prompt ms", "share"});
  for (int s = 0; s < plan.stages(); ++s) {
    const pb::StageAssignment& stage = plan.job.stages[s];
    const StageMemory& memory = plan.memory[s];
    table.Add({absl::StrCat(s), report.HostOf(s).name, absl::StrCat(stage.first_layer(), "-", stage.last_layer() - 1),
               absl::StrCat(stage.threads()), MibText(memory.weights), MibText(memory.kv), MibText(memory.buffers()),
               absl::StrFormat("%s%.2f", mark, plan.decode.stage_s[s] * 1e3),
               absl::StrFormat("%s%.1f", mark, plan.prefill.stage_s[s] * 1e3),
               absl::StrCat(mark, PercentText(plan.stage_share[s]))});
  }
  return table.Text();
}

std::string LimitText(const PlanReport& report) {
  const DecodePrediction& decode = report.plan->decode;
  const int stage = decode.bottleneck;
  if (decode.link_is_bottleneck) {
    return absl::StrFormat("the link behind stage %d on %s", stage, report.HostOf(stage).name);
  }
  return absl::StrFormat("stage %d on %s", stage, report.HostOf(stage).name);
}

std::string FiguresText(const PlanReport& report) {
  const ClusterPlan& plan = *report.plan;
  const DecodePrediction& decode = plan.decode;
  const char* m = Mark(report);
  std::string text =
      absl::StrFormat("prefill   %s%.4g tokens/s in chunks of %d; the first token of a prompt alone after %s%.3f s\n",
                      m, plan.prefill.tokens_per_s, plan.prefill.chunk, m, plan.prefill.ttft_s);
  absl::StrAppendFormat(
      &text, "decode    %s%.4g tokens/s in %d group%s of %.4g%s; %s%.2f ms between two tokens of a sequence\n", m,
      decode.tokens_per_s, decode.groups, decode.groups == 1 ? "" : "s", decode.rows,
      decode.in_flight < decode.groups ? absl::StrCat(", ", decode.in_flight, " at once") : "", m, decode.itl_s * 1e3);
  absl::StrAppendFormat(&text, "all       %s%.4g output tokens/s, prompts included\n", m, plan.output_tokens_per_s);
  absl::StrAppendFormat(&text,
                        "bubble    %s%s in decode: too few sequences %s, imbalance %s, hops %s, coordinator %s; %s%s "
                        "for a prompt alone (fill and drain)\n",
                        m, PercentText(decode.bubble), PercentText(decode.bubble_few),
                        PercentText(decode.bubble_imbalance), PercentText(decode.bubble_hop),
                        PercentText(decode.bubble_coordinator), m, PercentText(plan.prefill.bubble));
  absl::StrAppendFormat(&text, "limit     %s%s\n", m, LimitText(report));
  absl::StrAppendFormat(&text, "use       --micro-batches %d --prefill-chunk %d\n", plan.job.micro_batches,
                        plan.prefill.chunk);
  return text;
}

void AppendList(const char* title, const std::vector<std::string>& lines, std::string* text) {
  if (!lines.empty()) text->append(title);
  for (const std::string& line : lines) absl::StrAppend(text, "  ", line, "\n");
}

Json PlanStagesJson(const PlanReport& report) {
  const ClusterPlan& plan = *report.plan;
  Json stages = Json::array();
  for (int s = 0; s < plan.stages(); ++s) {
    const pb::StageAssignment& stage = plan.job.stages[s];
    const StageMemory& memory = plan.memory[s];
    stages.push_back({{"stage", s},
                      {"host", report.HostOf(s).name},
                      {"first_layer", stage.first_layer()},
                      {"last_layer", stage.last_layer()},
                      {"threads", stage.threads()},
                      {"weight_bytes", memory.weights},
                      {"kv_bytes", memory.kv},
                      {"scratch_bytes", memory.scratch},
                      {"frame_bytes", memory.frames},
                      {"total_bytes", memory.total()},
                      {"decode_step_s", plan.decode.stage_s[s]},
                      {"prompt_s", plan.prefill.stage_s[s]},
                      {"share", plan.stage_share[s]}});
  }
  return stages;
}

Json PredictionsJson(const ClusterPlan& plan) {
  const auto bottleneck = [](int stage, bool link) { return Json{{"stage", stage}, {"link", link}}; };
  return {{"prefill",
           {{"tokens_per_s", plan.prefill.tokens_per_s},
            {"ttft_s", plan.prefill.ttft_s},
            {"chunk", plan.prefill.chunk},
            {"bubble", plan.prefill.bubble},
            {"bottleneck", bottleneck(plan.prefill.bottleneck, plan.prefill.link_is_bottleneck)}}},
          {"decode",
           {{"tokens_per_s", plan.decode.tokens_per_s},
            {"itl_s", plan.decode.itl_s},
            {"groups", plan.decode.groups},
            {"groups_in_flight", plan.decode.in_flight},
            {"rows", plan.decode.rows},
            {"bubble", plan.decode.bubble},
            {"bubble_causes",
             {{"too_few_sequences", plan.decode.bubble_few},
              {"imbalance", plan.decode.bubble_imbalance},
              {"hops", plan.decode.bubble_hop},
              {"coordinator", plan.decode.bubble_coordinator}}},
            {"bottleneck", bottleneck(plan.decode.bottleneck, plan.decode.link_is_bottleneck)}}},
          {"output_tokens_per_s", plan.output_tokens_per_s},
          {"measured_steps", plan.measured}};
}

constexpr double kWorthNaming = 0.05;  // of the stages' time
constexpr double kWorthSaying = 1.02;  // times as fast: less is within what such predictions can tell

int HostCount(const PlanReport& report) {
  std::vector<int> hosts = report.places->stage_hosts;
  std::sort(hosts.begin(), hosts.end());
  return static_cast<int>(std::unique(hosts.begin(), hosts.end()) - hosts.begin());
}

std::string RateText(double tokens_per_s) { return absl::StrFormat("%.3g tokens/s", tokens_per_s); }

const PlanAlternative* FindAlternative(const PlanAdvice& advice, PlanChange change) {
  for (const PlanAlternative& alternative : advice.alternatives) {
    if (alternative.change == change) return &alternative;
  }
  return nullptr;
}

std::string ChangeWords(PlanChange change) {
  switch (change) {
    case PlanChange::kMoreSequences: return "twice as many sequences at once (--max-num-seqs)";
    case PlanChange::kFasterLinks: return "links between the hosts with ten times the bandwidth";
    case PlanChange::kMoreMemory: return "twice the memory on every host";
    case PlanChange::kAnotherHost: return "another host like the last one";
    case PlanChange::kOneStageAHost: return "one stage a host with all of its cores";
    case PlanChange::kBestSplit: return "layers split by cost (leave --layer-split out)";
    case PlanChange::kBestChunk: return "another chunk (leave --prefill-chunk out)";
    case PlanChange::kBestGroups: return "another number of groups (leave --micro-batches out)";
  }
  return "";
}

std::string LimitSentence(const PlanReport& report) {
  const ClusterPlan& plan = *report.plan;
  const DecodePrediction& decode = plan.decode;
  const int next = std::min(decode.bottleneck + 1, plan.stages() - 1);
  const char* remedy =
      report.question->job.wire_type() == pb::WIRE_TYPE_F32 ? "; --wire-dtype bf16 halves the frames" : "";
  if (decode.link_is_bottleneck) {
    return absl::StrFormat(
        "The link is the limit: the one from %s to %s takes longer for the frame of a step than any stage for "
        "computing it%s.",
        report.HostOf(decode.bottleneck).name, report.HostOf(next).name, remedy);
  }
  if (plan.prefill.link_is_bottleneck) {
    return absl::StrFormat(
        "In prefill the link is the limit: the one from %s to %s takes longer for a prompt than any stage for "
        "computing it%s.",
        report.HostOf(plan.prefill.bottleneck).name,
        report.HostOf(std::min(plan.prefill.bottleneck + 1, plan.stages() - 1)).name, remedy);
  }
  const double others = std::max({decode.bubble_few, decode.bubble_imbalance, kWorthNaming});
  if (decode.bubble_hop > std::max(others, decode.bubble_coordinator)) {
    return "The way between the stages costs more than anything else in decoding: more sequences, hence more groups "
           "under way, would hide it.";
  }
  if (decode.bubble_coordinator > others) {
    return "The coordinator's turn between a result and the next step costs more than anything else in decoding, for "
           "the steps are short: more sequences, hence more rows in each, would hide it.";
  }
  return "";
}

void AddBestChange(const PlanReport& report, std::vector<std::string>* sentences) {
  const ClusterPlan& plan = *report.plan;
  if (report.advice->alternatives.empty()) return;
  const PlanAlternative& best = report.advice->alternatives.front();
  if (best.output_tokens_per_s > kWorthSaying * plan.output_tokens_per_s) {
    sentences->push_back(absl::StrFormat(
        "Of all single changes this would help most: %s, with %s instead of %s (%.1f ms instead of %.1f between two "
        "tokens of a sequence).",
        ChangeWords(best.change), RateText(best.output_tokens_per_s), RateText(plan.output_tokens_per_s),
        best.itl_s * 1e3, plan.decode.itl_s * 1e3));
  } else {
    sentences->push_back(
        "No single change (more sequences, links, memory, another host, other chunks) would gain 2 %.");
  }
}

std::string WhereItFits(const IndependentJobs& jobs, const PlanReport& report) {
  if (static_cast<int>(jobs.hosts.size()) == HostCount(report)) return "one host";
  return absl::StrCat(absl::StrJoin(jobs.hosts, ", ",
                                    [&](std::string* out, int host) {
                                      out->append(report.places->profile.hosts[static_cast<size_t>(host)].name);
                                    }),
                      " alone");
}

std::string JobsText(const IndependentJobs& jobs) {
  const std::vector<int64_t>& each = jobs.sequences;
  const bool alike = std::equal(each.begin() + 1, each.end(), each.begin());
  const std::string sequences = absl::StrCat(alike ? absl::StrCat(each.front()) : absl::StrJoin(each, ", "),
                                             alike && each.front() == 1 ? " sequence" : " sequences");
  if (jobs.hosts.size() == 1) return absl::StrCat("A job of ", sequences, " there");
  return absl::StrCat(jobs.hosts.size(), " independent jobs of ", sequences, alike ? " each" : "");
}

void AddPipelineSentences(const PlanReport& report, std::vector<std::string>* sentences) {
  const ClusterPlan& plan = *report.plan;
  if (plan.stages() == 1) {
    sentences->push_back("This is one stage; a pipeline of several pays where the model needs the memory of several.");
    return;
  }
  const double now = plan.output_tokens_per_s;
  const PlanAlternative* one_a_host = FindAlternative(*report.advice, PlanChange::kOneStageAHost);
  if (one_a_host != nullptr && one_a_host->output_tokens_per_s >= now) {
    const bool faster = one_a_host->output_tokens_per_s > kWorthSaying * now;
    sentences->push_back(
        absl::StrFormat("One stage over all cores of a host %s several on it: %s instead of %s. Give %s.",
                        faster ? "beats" : "is as fast as", RateText(one_a_host->output_tokens_per_s), RateText(now),
                        HostCount(report) == 1 ? std::string("--pp 1") : std::string("every host one slot")));
  }
  const std::optional<IndependentJobs>& jobs = report.advice->independent;
  if (HostCount(report) == 1) return;
  if (!jobs.has_value()) {
    sentences->push_back(
        "None of these hosts alone holds the model with the KV cache of one of these sequences, so a pipeline is what "
        "runs it.");
    return;
  }
  const std::string fits = absl::StrCat("the model fits ", WhereItFits(*jobs, report));
  const std::string both = absl::StrFormat("%s: %s in all; this pipeline: %s.", JobsText(*jobs),
                                           RateText(jobs->output_tokens_per_s), RateText(now));
  sentences->push_back(jobs->output_tokens_per_s >= now
                           ? absl::StrCat("The pipeline does not pay: ", fits, ". ", both,
                                          jobs->hosts.size() == 1 ? " Start it with the line below."
                                                                  : " Start them with the lines below.")
                           : absl::StrCat("Here ", fits, ", but the pipeline is expected to be faster. ", both));
}

// What a later job takes over.
SavedPlan SavedPlanOf(const PlanReport& report) {
  const ClusterPlan& plan = *report.plan;
  SavedPlan saved;
  SetModelOf(*report.question->model, &saved);
  saved.here = report.places->here;
  for (int s = 0; s < plan.stages(); ++s) {
    const HostFacts& host = report.HostOf(s);
    const pb::StageAssignment& stage = plan.job.stages[s];
    saved.stages.push_back({.host = host.name,
                            .layers = stage.last_layer() - stage.first_layer(),
                            .cores = report.places->CoresKnown(report.places->stage_hosts[s]) ? host.cores : 0,
                            .memory_bytes = plan.memory[s].total()});
  }
  saved.threads = report.question->job.threads();
  saved.micro_batches = plan.job.micro_batches;
  saved.prefill_chunk = plan.prefill.chunk;
  return saved;
}

// At the end of the text, and `sentences` of the JSON.
std::vector<std::string> PlanSentences(const PlanReport& report) {
  const ClusterPlan& plan = *report.plan;
  std::vector<std::string> sentences;
  if (const int64_t asked = report.question->job.max_num_seqs(); plan.sequences < asked) {
    sentences.push_back(
        absl::StrFormat("The KV cache holds %d of %d sequences of this length at once; the figures are for so many.",
                        plan.sequences, asked));
  }
  if (std::string limit = LimitSentence(report); !limit.empty()) sentences.push_back(std::move(limit));
  AddBestChange(report, &sentences);
  AddPipelineSentences(report, &sentences);
  return sentences;
}

// Command lines that start independent jobs, one a host.
std::vector<std::string> IndependentLines(const PlanReport& report) {
  std::vector<std::string> lines;
  const std::optional<IndependentJobs>& jobs = report.advice->independent;
  if (!jobs.has_value() || HostCount(report) < 2 || jobs->output_tokens_per_s < report.plan->output_tokens_per_s) {
    return lines;
  }
  const PlanLoad& load = report.question->load;
  for (size_t i = 0; i < jobs->hosts.size(); ++i) {
    const std::string& host = report.places->profile.hosts[static_cast<size_t>(jobs->hosts[i])].name;
    std::vector<std::string> words = {"coordinator", report.has_tokenizer ? "batch" : "bench"};
    words.insert(words.end(), report.model_words.begin(), report.model_words.end());
    if (!IsThisHost(host)) words.insert(words.end(), {"--host", host});
    words.insert(words.end(), report.job_words.begin(), report.job_words.end());
    if (report.has_tokenizer) {
      words.insert(words.end(), {"--max-num-seqs", absl::StrCat(jobs->sequences[i]), "-i",
                                 absl::StrCat("requests-", i, ".jsonl"), "-o", absl::StrCat("answers-", i, ".jsonl")});
    } else {
      words.insert(words.end(), {"-p", absl::StrCat(load.prompt_tokens), "-n", absl::StrCat(load.output_tokens), "-b",
                                 absl::StrCat(jobs->sequences[i])});
    }
    lines.push_back(JoinShellWords(words));
  }
  return lines;
}

std::string PlanText(const PlanReport& report) {
  const ClusterPlan& plan = *report.plan;
  const ModelSummary model = SummarizeModel(*report.question->model);
  const PlanLoad& load = report.question->load;
  std::string text = absl::StrFormat("model     %s, %d layers, %s MiB\n", model.type,
                                     report.question->model->hyper.layer_count(), MibText(model.bytes));
  absl::StrAppendFormat(&text, "load      %d sequence%s at once, each of %d prompt and %d output tokens; context %d\n",
                        plan.sequences, plan.sequences == 1 ? "" : "s", load.prompt_tokens, load.output_tokens,
                        plan.job.context);
  absl::StrAppend(&text, PlanTable(report), FiguresText(report));
  for (const std::string& sentence : PlanSentences(report)) absl::StrAppend(&text, "\n", sentence, "\n");
  for (const std::string& line : IndependentLines(report)) absl::StrAppend(&text, "  ", line, "\n");
  if (!plan.measured) {
    absl::StrAppend(&text, "\nStep times are computed from the hosts' rates: no profile has measured this model.\n");
  }
  absl::StrAppendFormat(&text,
                        "\nReckoned with: %g us of the coordinator for a micro-batch (--coordinator-us), %g us until "
                        "whoever waits for a frame has it (--wake-us).\n",
                        report.question->coordinator_us, report.question->wake_us);
  AppendList("\nbeyond what was measured or described:\n", ExtrapolationsOf(*report.question, plan), &text);
  AppendList("\n~ rests on assumptions:\n", report.places->assumptions, &text);
  return text;
}

Json PlanJson(const PlanReport& report) {
  Json json;
  json["model"] = {{"path", report.question->model->file->path()},
                   {"summary", SummarizeModel(*report.question->model).type},
                   {"layers", report.question->model->hyper.layer_count()}};
  json["load"] = {{"sequences", report.plan->sequences},
                  {"sequences_asked", report.question->job.max_num_seqs()},
                  {"prompt_tokens", report.question->load.prompt_tokens},
                  {"output_tokens", report.question->load.output_tokens},
                  {"context", report.plan->job.context}};
  json["stages"] = PlanStagesJson(report);
  json["predictions"] = PredictionsJson(*report.plan);
  json["reckoned_with"] = {{"coordinator_us", report.question->coordinator_us}, {"wake_us", report.question->wake_us}};
  json["sentences"] = PlanSentences(report);
  json["independent_jobs"] = nullptr;
  if (const std::optional<IndependentJobs>& jobs = report.advice->independent; jobs.has_value()) {
    json["independent_jobs"] = {{"jobs", jobs->hosts.size()},
                                {"sequences", jobs->sequences},
                                {"output_tokens_per_s", jobs->output_tokens_per_s},
                                {"lines", IndependentLines(report)}};
  }
  json["assumptions"] = report.places->assumptions;
  json["extrapolations"] = ExtrapolationsOf(*report.question, *report.plan);
  json["plan"] = SavedPlanJson(SavedPlanOf(report));
  return json;
}

constexpr IntegerRange kPlanTokensRange = {1, 1 << 24};

class PlanVerb : public Verb {
 public:
  PlanVerb()
      : Verb("plan", "say how a model would run on a cluster, and how fast",
             "coordinator plan --load-format dummy --shape qwen3-8b --type q8_0 --host node1,node2 --max-num-seqs 32") {
  }
  void AddOptions(CLI::App* app) override {
    AddModelOptions(app, &options_);
    AddPlannedPlaceOptions(app, &options_, &sources_);
    AddInteger(app, "--prompt-tokens", &load_.prompt_tokens, kPlanTokensRange, "tokens of a request's prompt");
    AddInteger(app, "--output-tokens", &load_.output_tokens, kPlanTokensRange, "tokens of its answer");
    options_.prefill_chunk = 0;  // the best
    AddJobSettings(app, &options_,
                   Settings({"q2_layout", "context", "stages", "layer_split", "threads", "isa", "max_num_seqs",
                             "max_num_batched_tokens", "prefill_chunk", "micro_batches", "block_tokens",
                             "kv_cache_bytes", "kv_type", "wire_type"}));
    app->get_option("--micro-batches")->default_str("the best number");
    app->get_option("--prefill-chunk")->default_str("the best");
    AddTurnOptions(app, &coordinator_us_, &wake_us_);
    AddFlag(app, "--json", &json_, "one JSON object in the place of the text");
    AddText(app, "-o,--output", &output_, "FILE",
            "also write that object to a file, which `coordinator generate --plan FILE` and the like follow");
  }

  absl::Status Run(const RunContext& context) override {
    RETURN_IF_ERROR(ResolveModel(&options_, /*required=*/true));
    ASSIGN_OR_RETURN(const std::shared_ptr<const ModelDescription> model,
                     OpenDescription(options_.model, options_.q2_layout));
    const bool has_tokenizer = !IsDummyModelPath(options_.model);
    ASSIGN_OR_RETURN(const LaunchOptions launch, MakeLaunchOptions(options_, model->hyper, context));
    ASSIGN_OR_RETURN(const PlanPlaces places, FindPlaces(options_, sources_, launch));
    ClusterQuestion question = QuestionOf(model, places, launch);
    question.load = load_;
    question.coordinator_us = coordinator_us_;
    question.wake_us = wake_us_;
    absl::StatusOr<ClusterPlan> plan = PlanCluster(question);
    if (!plan.ok()) return PlanFailure(plan.status());
    const PlanAdvice advice = AdviceFor(question, *plan);
    PlanReport report = {.question = &question, .places = &places, .plan = &*plan, .advice = &advice};
    report.has_tokenizer = has_tokenizer;
    report.job_words = JobWords();
    report.model_words = DummyWords(options_.dummy);
    if (report.model_words.empty()) {
      report.model_words = {"-m", has_tokenizer ? launch.job.model_path() : options_.model};
    }
    return Print(report);
  }

 private:
  // Of a job of one stage, which sends no hidden states and has its host's cores.
  std::vector<std::string> JobWords() const {
    // The bench of a model without a tokenizer takes its context from the tests.
    const bool context = !IsDummyModelPath(options_.model), chunk = options_.prefill_chunk > 0;
    return JobSettingWords(options_,
                           Settings({"q2_layout", context ? "context" : "", "isa", "max_num_batched_tokens",
                                     chunk ? "prefill_chunk" : "", "block_tokens", "kv_cache_bytes", "kv_type"}));
  }

  absl::Status Print(const PlanReport& report) const {
    const std::string json = PrettyJson(PlanJson(report));
    if (!output_.empty()) {
      if (absl::Status status = WriteWholeFile(output_, json); !status.ok()) return OptionError("--output", status);
    }
    return WriteStdout(json_ ? json : PlanText(report));
  }

  ClusterOptions options_;
  PlaceSources sources_;
  std::string output_;
  PlanLoad load_;
  double coordinator_us_ = kAssumedTurnUs, wake_us_ = kAssumedWakeUs;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakePlanVerb() { return std::make_unique<PlanVerb>(); }

}  // namespace stagecoach
