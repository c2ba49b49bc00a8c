#include "coordinator/cli/plan/simulate_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/statistics.h"

namespace stagecoach {
namespace {

std::vector<std::string> PercentileRow(const std::string& name, const Percentiles& p) {
  const auto ms = [](double seconds) { return absl::StrFormat("%.2f", 1e3 * seconds); };
  return {name, absl::StrCat(p.count), ms(p.mean), ms(p.p50), ms(p.p90), ms(p.p95), ms(p.p99), ms(p.max)};
}

}  // namespace

std::string SplitText(const JobPlan& job) {
  constexpr size_t kMostNumbers = 16;
  std::vector<std::string> runs;
  std::vector<int64_t> layers;
  for (const pb::StageAssignment& stage : job.stages) layers.push_back(stage.last_layer() - stage.first_layer());
  if (layers.size() <= kMostNumbers) return absl::StrJoin(layers, ",");
  for (size_t i = 0; i < layers.size();) {
    size_t end = i;
    while (end < layers.size() && layers[end] == layers[i]) ++end;
    runs.push_back(end - i == 1 ? absl::StrCat(layers[i]) : absl::StrCat(end - i, " x ", layers[i]));
    i = end;
  }
  return absl::StrJoin(runs, ", ");
}

std::string LoadText(const SweepConfig& load, const std::string& split) {
  const std::string at_once = load.concurrency > 0 ? absl::StrCat(", ", load.concurrency, " at once") : "";
  const std::string lengths =
      load.prompt == "trace" ? "" : absl::StrCat(" of ", load.prompt, " prompt and ", load.output, " output tokens");
  return absl::StrCat("load         ", load.requests, " requests", lengths, ", ", load.arrivals, at_once,
                      "; layers split ", split, "\n");
}

std::string SimulationText(const RunSummary& summary, const SweepPoint& point, const std::string& split,
                           const std::vector<std::string>& assumptions) {
  const SweepResult& result = point.result;
  std::string text =
      absl::StrCat(LoadText(point.config, split), absl::StrFormat("simulated    %d requests in %.3f s; nothing ran\n",
                                                                  summary.totals.requests, summary.totals.seconds));
  for (const std::string& assumption : assumptions) absl::StrAppend(&text, "assumed      ", assumption, "\n");
  absl::StrAppend(&text, StatisticsText(summary), "\n");
  TextTable table({"ms", "samples", "mean", "p50", "p90", "p95", "p99", "max"}, 1);
  table.Add(PercentileRow("TTFT", result.ttft_s));
  table.Add(PercentileRow("ITL", result.itl_s));
  table.Add(PercentileRow("latency", result.latency_s));
  absl::StrAppend(&text, table.Text());
  absl::StrAppendFormat(&text, "output       %.1f tokens/s, %.2f rows a pass over the weights\n",
                        result.output_tokens_per_s, result.rows_per_pass);
  if (point.config.slo_ttft_s > 0 || point.config.slo_itl_s > 0) {
    absl::StrAppendFormat(&text,
                          "goodput      %.3f requests/s, %.1f tokens/s: %.1f %% of the requests met both bounds\n",
                          result.goodput_requests_per_s, result.goodput_tokens_per_s, 100 * result.slo_share);
  }
  if (const std::optional<SweepPrediction>& planned = point.prediction; planned.has_value()) {
    absl::StrAppendFormat(&text, "predicted    %.1f output tokens/s, TTFT of a prompt alone %.2f ms, ITL %.2f ms\n",
                          planned->output_tokens_per_s, 1e3 * planned->ttft_s, 1e3 * planned->itl_s);
    // The prediction is of the typical gap, without prompts beside it: a mean has those of all others in it.
    absl::StrAppendFormat(&text, "this run     %.1f output tokens/s, TTFT p50 %.2f ms, ITL p50 %.2f ms\n",
                          result.output_tokens_per_s, 1e3 * result.ttft_s.p50, 1e3 * result.itl_s.p50);
  }
  return text;
}

std::string ReplayText(const std::vector<ReplayedJob>& jobs) {
  std::string text;
  for (const ReplayedJob& job : jobs) {
    const SchedulerCounters& counters = job.status.counters;
    absl::StrAppendFormat(&text,
                          "replayed     %d micro-batches over %d stages, each as it was recorded\n"
                          "requests     %d, %d tokens sampled\n"
                          "rows         %d of prompts, %d decode, %d guessed\n"
                          "preemptions  %d\n"
                          "bubble       %.1f %% of the stages' time in %.3f s, floor for this work %.1f %%\n",
                          counters.micro_batches, job.stages, job.requests, job.tokens, counters.prefill_rows,
                          counters.decode_rows, counters.guesses, counters.preemptions, 100 * job.status.bubble,
                          static_cast<double>(job.status.busy_us) * 1e-6, 100 * job.status.bubble_floor);
  }
  return text;
}

Json ReplayJson(const std::vector<ReplayedJob>& jobs) {
  Json list = Json::array();
  for (const ReplayedJob& job : jobs) {
    list.push_back({{"stages", job.stages},
                    {"requests", job.requests},
                    {"tokens", job.tokens},
                    {"micro_batches", job.status.counters.micro_batches},
                    {"prefill_rows", job.status.counters.prefill_rows},
                    {"decode_rows", job.status.counters.decode_rows},
                    {"guesses", job.status.counters.guesses},
                    {"preemptions", job.status.counters.preemptions},
                    {"busy_s", static_cast<double>(job.status.busy_us) * 1e-6},
                    {"bubble", job.status.bubble},
                    {"bubble_floor", job.status.bubble_floor}});
  }
  return {{"replayed", std::move(list)}};
}

}  // namespace stagecoach
