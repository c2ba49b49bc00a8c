#include "coordinator/cli/plan/simulate_report.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/json/json_value.h"
#include "common/wire/job_proto.h"
#include "coordinator/bench/sweep_measure.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/sweep/sweep_points.h"
#include "coordinator/session/run_summary.h"

namespace stagecoach {
namespace {

void Describe(const ClusterPlan& plan, const ClusterQuestion& question, int number, pb::StageSummary* out) {
  const auto s = static_cast<size_t>(number);
  const pb::StageAssignment& stage = plan.job.stages[s];
  out->set_stage(number);
  out->set_rank(stage.rank());
  out->set_host(question.profile.hosts[static_cast<size_t>(question.stage_hosts[s])].name);
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
  pb::JobStatistics statistics;
  statistics.set_micro_batches(status.counters.micro_batches);
  statistics.set_prefill_rows(status.counters.prefill_rows);
  statistics.set_decode_rows(status.counters.decode_rows);
  statistics.set_decode_micro_batches(status.counters.decode_micro_batches);
  statistics.set_preemptions(status.counters.preemptions);
  const double busy_s = static_cast<double>(status.busy_us) * 1e-6;
  statistics.set_busy_s(busy_s);
  statistics.set_bubble(status.bubble);
  statistics.set_bubble_floor(status.bubble_floor);
  for (int s = 0; s < plan.stages(); ++s) {
    pb::StageSummary* stage = statistics.add_stages();
    Describe(plan, question, s, stage);
    const EngineStatus::Stage& work = status.stages[static_cast<size_t>(s)];
    stage->set_compute_s(static_cast<double>(work.compute_us) * 1e-6);
    stage->set_send_s(static_cast<double>(work.send_us) * 1e-6);
    stage->set_wait_s(std::max(0.0, busy_s - stage->compute_s()));
    stage->set_blocks_used_peak(status.counters.blocks_used_peak[plan.job.full_group()]);
  }
  return statistics;
}

std::vector<std::string> PercentileRow(const std::string& name, const Percentiles& p) {
  const auto ms = [](double seconds) { return absl::StrFormat("%.2f", 1e3 * seconds); };
  return {name, absl::StrCat(p.count), ms(p.mean), ms(p.p50), ms(p.p90), ms(p.p95), ms(p.p99), ms(p.max)};
}

}  // namespace

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

void TakeOutcome(const ClusterPlan& plan, const RunSummary& summary, const SimOutcome& outcome, SweepPoint* point) {
  point->simulated = true;
  point->result = outcome.result;
  TakeStatistics(pb::JobStatistics{}, *summary.job, summary.ready->blocks(), &point->result, &point->stages);
  point->result.relaunches = outcome.relaunches();
  point->origin.bf16_dot = plan.job.bf16_dot;
  point->prediction = PredictionOf(plan);
}

std::string SimulationText(const RunSummary& summary, const SweepPoint& point,
                           const std::vector<std::string>& assumptions) {
  const SweepResult& result = point.result;
  std::string text = absl::StrFormat("simulated    %d requests in %.3f s; nothing ran\n", summary.totals.requests,
                                     summary.totals.seconds);
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
  if (point.prediction.has_value()) {
    absl::StrAppendFormat(&text, "predicted    %.1f output tokens/s, TTFT of a prompt alone %.2f ms, ITL %.2f ms\n",
                          point.prediction->output_tokens_per_s, 1e3 * point.prediction->ttft_s,
                          1e3 * point.prediction->itl_s);
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
                          "rows         %d of prompts, %d decode\n"
                          "preemptions  %d\n"
                          "bubble       %.1f %% of the stages' time in %.3f s, floor for this work %.1f %%\n",
                          counters.micro_batches, job.stages, job.requests, job.tokens, counters.prefill_rows,
                          counters.decode_rows, counters.preemptions, 100 * job.status.bubble,
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
                    {"preemptions", job.status.counters.preemptions},
                    {"busy_s", static_cast<double>(job.status.busy_us) * 1e-6},
                    {"bubble", job.status.bubble},
                    {"bubble_floor", job.status.bubble_floor}});
  }
  return {{"replayed", std::move(list)}};
}

}  // namespace stagecoach
