#include "coordinator/cli/plan/plan_report.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/shown_text.h"
#include "coordinator/bench/bench_work.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/plan/simulate_text.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

constexpr double kBytesOfMib = 1024.0 * 1024.0;
constexpr int kFewStages = 8;  // of which a table has all

using What = PipelineLimit::What;

std::string MibText(uint64_t bytes) { return absl::StrFormat("%.1f", static_cast<double>(bytes) / kBytesOfMib); }

// In front of every figure that rests on an assumption.
const char* Mark(const PlanReport& report) { return report.places->assumptions.empty() ? "" : "~"; }

// --- tables --------------------------------------------------------------------------------------------------------

std::string RangeText(int64_t first, int64_t last) {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
}

// Whether two stages differ in nothing but their names and which layers they have.
bool AreAlike(const ChosenJob& job, int a, int b) {
  const auto layers = [&](int s) { return job.plan.job.stages[s].last_layer() - job.plan.job.stages[s].first_layer(); };
  HostFacts other = HostOf(job, b);
  other.name = HostOf(job, a).name;
  return other == HostOf(job, a) && layers(a) == layers(b) &&
         job.plan.job.stages[a].threads() == job.plan.job.stages[b].threads() &&
         job.plan.memory[a].weights == job.plan.memory[b].weights;
}

// A line for each stage, or for each run of stages that are alike.
std::string StageTable(const PlanReport& report, const ChosenJob& job, bool every_stage) {
  const ClusterPlan& plan = job.plan;
  const char* mark = Mark(report);
  TextTable table({"stage", "host", "layers", "threads", "weights MiB", "KV MiB", "buffers MiB", "decode ms",
                   "prompt ms", "share"});
  for (int s = 0, last = 0; s < plan.stages(); s = last + 1) {
    std::vector<int> hosts = {job.question.stage_hosts[static_cast<size_t>(s)]};
    for (last = s; !every_stage && last + 1 < plan.stages() && AreAlike(job, s, last + 1); ++last) {
      const int next = job.question.stage_hosts[static_cast<size_t>(last) + 1];
      if (next != hosts.back()) hosts.push_back(next);
    }
    const pb::StageAssignment& stage = plan.job.stages[s];
    const StageMemory& memory = plan.memory[s];
    const auto most = [&](const auto& of) {
      double value = of(s);
      for (int i = s; i <= last; ++i) value = std::max(value, of(i));
      return value;
    };
    table.Add({RangeText(s, last), NamesOf(report, hosts),
               RangeText(stage.first_layer(), plan.job.stages[last].last_layer() - 1), absl::StrCat(stage.threads()),
               MibText(memory.weights), MibText(memory.kv), MibText(memory.buffers()),
               absl::StrFormat("%s%.2f", mark, 1e3 * most([&](int i) { return plan.decode.stage_s[i]; })),
               absl::StrFormat("%s%.1f", mark, 1e3 * most([&](int i) { return plan.prefill.stage_s[i]; })),
               absl::StrCat(mark, PercentText(most([&](int i) { return plan.stage_share[i]; })))});
  }
  return table.Text();
}

// A line for each job, or for each run of jobs that are alike.
std::string JobTable(const PlanReport& report, bool every_job) {
  const std::vector<ChosenJob>& jobs = report.choice->jobs;
  const char* mark = Mark(report);
  TextTable table({"job", "hosts", "stages", "sequences", "tokens/s", "ITL ms", "TTFT s"});
  const auto alike = [&](const ChosenJob& a, const ChosenJob& b) {
    return a.plan.stages() == b.plan.stages() && a.plan.sequences == b.plan.sequences &&
           PlannedRateText(a.plan.output_tokens_per_s) == PlannedRateText(b.plan.output_tokens_per_s);
  };
  for (size_t first = 0, last = 0; first < jobs.size(); first = last + 1) {
    std::vector<int> hosts = HostsOf(jobs[first]);
    for (last = first; !every_job && last + 1 < jobs.size() && alike(jobs[first], jobs[last + 1]); ++last) {
      const std::vector<int> more = HostsOf(jobs[last + 1]);
      hosts.insert(hosts.end(), more.begin(), more.end());
    }
    const ClusterPlan& plan = jobs[first].plan;
    table.Add({RangeText(static_cast<int64_t>(first), static_cast<int64_t>(last)), NamesOf(report, hosts),
               absl::StrCat(plan.stages()), absl::StrCat(plan.sequences),
               absl::StrCat(mark, FigureText(plan.output_tokens_per_s)),
               absl::StrFormat("%s%.2f", mark, 1e3 * plan.decode.itl_s),
               absl::StrFormat("%s%.3f", mark, plan.prefill.ttft_s)});
  }
  return table.Text();
}

std::string HostsLine(const PlanReport& report) {
  const std::vector<int> hosts = HostsOfAll(report);
  std::set<int> all(report.question->stage_hosts.begin(), report.question->stage_hosts.end());
  const size_t jobs = report.choice->jobs.size();
  return absl::StrFormat("hosts     %d of %d, %d cores, in %s%s\n", hosts.size(), std::max(all.size(), hosts.size()),
                         CoresOf(report, hosts),
                         jobs == 1 ? std::string("one job") : CountOf(static_cast<int64_t>(jobs), "independent job"),
                         !report.chosen ? ", as asked for"
                         : report.choice->exact
                             ? absl::StrCat("; no choice is better for ", NameOf(kPlanGoals, report.goal))
                             : absl::StrCat("; the best found for ", NameOf(kPlanGoals, report.goal)));
}

void AppendList(const char* title, const std::vector<std::string>& lines, std::string* text) {
  if (!lines.empty()) text->append(title);
  for (const std::string& line : lines) absl::StrAppend(text, "  ", line, "\n");
}

// Of one user with guesses; with no acceptance, of one without.
SpeculationPrediction SpeculationOf(const PlanReport& report, const ChosenJob& job, double acceptance) {
  const HyperParameters& hyper = report.question->model->hyper;
  const int most = MostGuessRows(hyper, /*stages=*/2, kMostGuessRows);  // or more stages
  // With as many micro-batches as the line `use` gives it.
  const int here = MostGuessRows(hyper, job.plan.stages(), job.plan.job.micro_batches);
  return PredictSpeculation(job.plan.pipeline->model, report.question->load.decode_context(), acceptance, most,
                            report.draft.has_value() ? report.draft->guess_s : 0, here);
}

std::string DraftText(const PlanReport& report) {
  if (!report.draft.has_value() || !report.draft->why_not.empty()) return "";  // a sentence says so
  const PlannedDraft& draft = *report.draft;
  return absl::StrFormat("draft     %s on %s, %s: weights %s MiB, KV %s MiB, buffers %s MiB; %s%.2f ms a guess%s\n",
                         SummarizeModel(*draft.model).type, draft.host, CountOf(draft.threads, "thread"),
                         MibText(draft.memory.weights), MibText(draft.memory.kv), MibText(draft.memory.buffers()),
                         draft.assumed ? "~" : Mark(report), 1e3 * draft.guess_s,
                         draft.assumed ? ", as hosts of so many cores are assumed to be" : "");
}

std::string FiguresText(const PlanReport& report) {
  const ChosenJob& job = report.choice->jobs.front();
  const ClusterPlan& plan = job.plan;
  const DecodePrediction& decode = plan.decode;
  const char* m = Mark(report);
  std::string text =
      absl::StrFormat("prefill   %s%s in chunks of %d; the first token of a prompt alone after %s%.3f s\n", m,
                      PlannedRateText(plan.prefill.tokens_per_s), plan.prefill.chunk, m, plan.prefill.ttft_s);
  absl::StrAppendFormat(
      &text, "decode    %s%s in %d group%s of %.4g%s; %s%.2f ms between two tokens of a sequence\n", m,
      PlannedRateText(decode.tokens_per_s), decode.groups, decode.groups == 1 ? "" : "s", decode.rows,
      decode.in_flight < decode.groups ? absl::StrCat(", ", decode.in_flight, " at once") : "", m, decode.itl_s * 1e3);
  absl::StrAppend(&text, DraftText(report));
  const SpeculationPrediction lone = SpeculationOf(report, job, report.acceptance);
  absl::StrAppendFormat(
      &text,
      "one user  %s%s; %s%s with guesses of which %g %% are right (--acceptance), %s in flight; stages "
      "beyond %d gain less than %g %% each\n",
      m, PlannedRateText(SpeculationOf(report, job, 0).tokens_per_s), m, PlannedRateText(lone.tokens_per_s),
      100 * report.acceptance, CountOf(lone.rows, "row"), lone.last_useful_stages, 100 * kLeastStageGain);
  absl::StrAppendFormat(&text,
                        "bubble    %s%s in decode: too few sequences %s, imbalance %s, hops %s, coordinator %s; %s%s "
                        "for a prompt alone (fill and drain)\n",
                        m, PercentText(decode.bubble), PercentText(decode.bubble_few),
                        PercentText(decode.bubble_imbalance), PercentText(decode.bubble_hop),
                        PercentText(decode.bubble_coordinator), m, PercentText(plan.prefill.bubble));
  const MainLimit main = MainLimitOf(job);
  absl::StrAppendFormat(&text, "limit     %s%s, in the %s, which take %s%.0f %% of the time\n", m,
                        LimitText(job, main.limit), main.prompts ? "prompts" : "decode steps", m, 100 * main.share);
  absl::StrAppendFormat(&text, "use       --micro-batches %d --prefill-chunk %d\n", plan.job.micro_batches,
                        plan.prefill.chunk);
  return text;
}

void AddMemory(const StageMemory& memory, Json* json) {
  json->update({{"weight_bytes", memory.weights},
                {"kv_bytes", memory.kv},
                {"state_bytes", memory.states},
                {"scratch_bytes", memory.scratch},
                {"grammar_bytes", memory.grammars},  // of these
                {"frame_bytes", memory.frames},
                {"total_bytes", memory.total()}});
}

Json DraftJson(const PlannedDraft& draft) {
  Json json = {{"path", draft.model->file->path()},
               {"summary", SummarizeModel(*draft.model).type},
               {"host", draft.host},
               {"beside_stages", draft.beside},
               {"fits", draft.why_not.empty()}};
  if (!draft.why_not.empty()) return json;
  json["threads"] = draft.threads;
  AddMemory(draft.memory, &json);
  json["guess_s"] = draft.guess_s;
  json["speed_assumed"] = draft.assumed;
  return json;
}

Json StagesJson(const ChosenJob& job) {
  const ClusterPlan& plan = job.plan;
  Json stages = Json::array();
  for (int s = 0; s < plan.stages(); ++s) {
    const pb::StageAssignment& stage = plan.job.stages[s];
    stages.push_back({{"stage", s},
                      {"host", HostOf(job, s).name},
                      {"first_layer", stage.first_layer()},
                      {"last_layer", stage.last_layer()},
                      {"threads", stage.threads()}});
    AddMemory(plan.memory[s], &stages.back());
    stages.back().update({{"decode_step_s", plan.decode.stage_s[s]},
                          {"prompt_s", plan.prefill.stage_s[s]},
                          {"share", plan.stage_share[s]}});
  }
  return stages;
}

Json LimitJson(const ChosenJob& job, PipelineLimit limit) {
  static constexpr NamedValue<What> kNames[] = {{What::kStage, "stage"},
                                                {What::kLink, "link"},
                                                {What::kUplink, "uplink"},
                                                {What::kCoordinator, "coordinator"},
                                                {What::kUnderWay, "too few sequences"}};
  Json json = {{"what", NameOf(kNames, limit.what)}, {"text", LimitText(job, limit)}};
  if (limit.what == What::kStage || limit.what == What::kLink) json["stage"] = limit.index;
  return json;
}

Json PredictionsJson(const PlanReport& report, const ChosenJob& job) {
  const ClusterPlan& plan = job.plan;
  const SpeculationPrediction lone = SpeculationOf(report, job, report.acceptance);
  return {{"prefill",
           {{"tokens_per_s", plan.prefill.tokens_per_s},
            {"ttft_s", plan.prefill.ttft_s},
            {"chunk", plan.prefill.chunk},
            {"bubble", plan.prefill.bubble},
            {"limit", LimitJson(job, plan.prefill.limit)}}},
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
            {"limit", LimitJson(job, plan.decode.limit)}}},
          {"speculation",
           {{"acceptance", report.acceptance},
            {"rows", lone.rows},
            {"tokens_per_s", lone.tokens_per_s},
            {"last_useful_stage", lone.last_useful_stages}}},
          {"output_tokens_per_s", plan.output_tokens_per_s},
          {"measured_steps", plan.measured}};
}

// `cores`: 0 where they are not known.
Json FiguresJson(const ChoiceFigures& figures, int64_t cores) {
  if (figures.sequences == 0) return nullptr;
  Json json = {{"output_tokens_per_s", figures.output_tokens_per_s},
               {"itl_s", figures.itl_s},
               {"ttft_s", figures.ttft_s},
               {"sequences", figures.sequences}};
  if (cores > 0) json["tokens_per_core_hour"] = TokensPerCoreHour(figures.output_tokens_per_s, cores);
  return json;
}

std::vector<std::string> NamesJson(const PlanReport& report, const std::vector<int>& hosts) {
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (const int host : hosts) names.push_back(report.question->profile.hosts[static_cast<size_t>(host)].name);
  return names;
}

Json ChoiceJson(const PlanReport& report) {
  const HostChoice& choice = *report.choice;
  Json json = {{"goal", NameOf(kPlanGoals, report.goal)},
               {"exact", choice.exact},
               {"figures", FiguresJson(choice.figures, CoresOf(report, HostsOfAll(report)))},
               {"best_host_alone", nullptr},
               {"jobs", Json::array()},
               {"left_out", Json::array()}};
  if (choice.alone.sequences > 0) {
    json["best_host_alone"] = FiguresJson(choice.alone, CoresOf(report, {choice.best_alone}));
    json["best_host_alone"]["host"] = NamesJson(report, {choice.best_alone}).front();
  }
  const std::vector<std::string> lines = JobLines(report);
  for (size_t i = 0; i < choice.jobs.size(); ++i) {
    const ChosenJob& job = choice.jobs[i];
    json["jobs"].push_back({{"hosts", NamesJson(report, HostsOf(job))},
                            {"sequences", job.plan.sequences},
                            {"stages", StagesJson(job)},
                            {"predictions", PredictionsJson(report, job)},
                            {"plan", SavedPlanJson(SavedPlanOf(report, job))},
                            {"line", lines.empty() ? Json() : Json(lines[i])}});
  }
  for (const LeftOutHosts& left_out : choice.left_out) {
    json["left_out"].push_back({{"hosts", NamesJson(report, left_out.hosts)},
                                {"with_one", FiguresJson(left_out.with_one, 0)},
                                {"why", left_out.why}});
  }
  return json;
}

}  // namespace

std::string PlanText(const PlanReport& report, bool verbose) {
  const HostChoice& choice = *report.choice;
  const ChosenJob& job = choice.jobs.front();
  const ModelSummary model = SummarizeModel(*report.question->model);
  const PlanLoad& load = report.question->load;
  std::string text =
      absl::StrFormat("load      %s at once, each of %d prompt and %d output tokens; context %d; layers split %s%s\n",
                      CountOf(choice.figures.sequences, "sequence"), load.prompt_tokens, load.output_tokens,
                      job.plan.job.context, SplitText(job.plan.job), choice.jobs.size() > 1 ? " in job 0" : "");
  absl::StrAppendFormat(&text, "model     %s, %d layers, %s MiB\n", model.type,
                        report.question->model->hyper.layer_count(), MibText(model.bytes));
  if (const JobPlan& plan = job.plan.job; plan.state_slots > 0) {
    const int64_t sequences = job.question.job.max_num_seqs();
    absl::StrAppendFormat(&text, "states    %d on every stage, of %s at once and %s; they are counted as KV%s\n",
                          plan.state_slots, CountOf(sequences, "sequence"),
                          CountOf(plan.state_slots - sequences, "cached snapshot"),
                          choice.jobs.size() > 1 ? " in job 0" : "");
  }
  absl::StrAppend(&text, HostsLine(report));
  const char* m = Mark(report);
  absl::StrAppendFormat(
      &text, "all       %s%s output tokens/s, prompts included; %s%s tokens per core-hour\n", m,
      FigureText(choice.figures.output_tokens_per_s), m,
      FigureText(TokensPerCoreHour(choice.figures.output_tokens_per_s, CoresOf(report, HostsOfAll(report)))));
  if (choice.jobs.size() > 1) {
    absl::StrAppend(&text, JobTable(report, verbose));
    absl::StrAppend(&text, "\njob 0\n");
  }
  absl::StrAppend(&text, StageTable(report, job, verbose || job.plan.stages() <= kFewStages), FiguresText(report));
  for (size_t i = 1; verbose && i < choice.jobs.size(); ++i) {
    absl::StrAppend(&text, "\njob ", i, "\n", StageTable(report, choice.jobs[i], /*every_stage=*/true));
  }
  for (const std::string& sentence : PlanSentences(report)) absl::StrAppend(&text, "\n", sentence, "\n");
  constexpr size_t kFewLines = 8;
  const std::vector<std::string> lines = JobLines(report);
  for (size_t i = 0; i < lines.size() && (verbose || i < kFewLines); ++i) absl::StrAppend(&text, "  ", lines[i], "\n");
  if (!verbose && lines.size() > kFewLines) {
    absl::StrAppend(&text, "  ... and ", lines.size() - kFewLines, " more: --verbose shows all\n");
  }
  if (!job.plan.measured) {
    absl::StrAppend(&text, "\nStep times are computed from the hosts' rates: no profile has measured this model.\n");
  }
  absl::StrAppendFormat(&text,
                        "\nReckoned with: %g us of the coordinator for a micro-batch (--coordinator-us), %g us until "
                        "whoever waits for a frame has it (--wake-us).\n",
                        report.question->coordinator_us, report.question->wake_us);
  AppendList("\nbeyond what was measured or described:\n", ExtrapolationsOf(job.question, job.plan), &text);
  AppendList("\n~ rests on assumptions:\n", report.places->assumptions, &text);
  return text;
}

Json PlanJson(const PlanReport& report) {
  const ChosenJob& job = report.choice->jobs.front();
  Json json;
  json["model"] = {{"path", report.question->model->file->path()},
                   {"summary", SummarizeModel(*report.question->model).type},
                   {"layers", report.question->model->hyper.layer_count()}};
  json["load"] = {{"sequences", report.choice->figures.sequences},
                  {"sequences_asked", report.question->job.max_num_seqs()},
                  {"prompt_tokens", report.question->load.prompt_tokens},
                  {"output_tokens", report.question->load.output_tokens},
                  {"context", job.plan.job.context}};
  json["choice"] = ChoiceJson(report);
  json["stages"] = StagesJson(job);
  if (report.draft.has_value()) json["draft"] = DraftJson(*report.draft);
  json["predictions"] = PredictionsJson(report, job);
  json["reckoned_with"] = {{"coordinator_us", report.question->coordinator_us}, {"wake_us", report.question->wake_us}};
  json["sentences"] = PlanSentences(report);
  json["assumptions"] = report.places->assumptions;
  json["extrapolations"] = ExtrapolationsOf(job.question, job.plan);
  json["plan"] = SavedPlanJson(SavedPlanOf(report, job));
  return json;
}

}  // namespace stagecoach
