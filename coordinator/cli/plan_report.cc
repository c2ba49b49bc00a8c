#include "coordinator/cli/plan_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/json/json_value.h"
#include "coordinator/bench/bench_work.h"
#include "coordinator/cli/text_table.h"
#include "coordinator/plan/extrapolation.h"

namespace stagecoach {
namespace {

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

}  // namespace

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

}  // namespace stagecoach
