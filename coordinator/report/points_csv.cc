// All points as CSV.

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "coordinator/report/report_tables.h"

namespace stagecoach {
namespace {

// One line: names and values in the same order.
class CsvLine {
 public:
  void Add(absl::string_view name, absl::string_view text) {
    AddCell(name, absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\""));
  }
  void Add(absl::string_view name, int64_t value) { AddCell(name, absl::StrCat(value)); }
  void Add(absl::string_view name, uint64_t value) { AddCell(name, absl::StrCat(value)); }
  void Add(absl::string_view name, double value) { AddCell(name, std::isfinite(value) ? absl::StrCat(value) : ""); }
  void AddNothing(absl::string_view name) { AddCell(name, ""); }

  std::string names() const { return names_ + "\r\n"; }
  std::string values() const { return values_ + "\r\n"; }

 private:
  void AddCell(absl::string_view name, absl::string_view cell) {
    const char* separator = names_.empty() ? "" : ",";
    absl::StrAppend(&names_, separator, name);
    absl::StrAppend(&values_, separator, cell);
  }

  std::string names_, values_;
};

void AddConfig(const SweepConfig& config, CsvLine* line) {
  line->Add("model", config.model);
  line->Add("stages", config.stages);
  line->Add("threads", config.threads);
  line->Add("hosts", config.hosts);
  line->Add("decode_groups", config.decode_groups);
  line->Add("micro_batches", config.micro_batches);
  line->Add("max_num_seqs", config.max_num_seqs);
  line->Add("max_num_batched_tokens", config.max_num_batched_tokens);
  line->Add("prefill_chunk", config.prefill_chunk);
  line->Add("chunking", config.chunking);
  line->Add("policy", config.policy);
  line->Add("wire_type", config.wire_type);
  line->Add("kv_type", config.kv_type);
  line->Add("isa", config.isa);
  line->Add("cpu_bind", config.cpu_bind);
  line->Add("weights", config.weights);
  line->Add("block_tokens", config.block_tokens);
  line->Add("kv_cache_bytes", config.kv_cache_bytes);
  line->Add("link_latency_s", config.link_latency_s);
  line->Add("link_bytes_per_s", config.link_bytes_per_s);
  line->Add("arrivals", config.arrivals);
  line->Add("concurrency", config.concurrency);
  line->Add("prompt", config.prompt);
  line->Add("output", config.output);
  line->Add("requests_asked", config.requests);
  line->Add("duration_s", config.duration_s);
  line->Add("slo_ttft_s", config.slo_ttft_s);
  line->Add("slo_itl_s", config.slo_itl_s);
  line->Add("seed", config.seed);
  line->Add("repetition", config.repetition);
}

void AddPercentiles(const std::string& name, const Percentiles& sample, CsvLine* line) {
  const std::pair<const char*, double> kValues[] = {{"_mean", sample.mean}, {"_p50", sample.p50}, {"_p90", sample.p90},
                                                    {"_p95", sample.p95},   {"_p99", sample.p99}, {"_max", sample.max}};
  for (const auto& [suffix, value] : kValues) line->Add(name + suffix, value);
}

void AddResult(const SweepResult& result, CsvLine* line) {
  line->Add("load_s", result.load_s);
  line->Add("wall_s", result.wall_s);
  line->Add("requests", result.requests);
  line->Add("failed", result.failed);
  line->Add("unfinished", result.unfinished);
  line->Add("prompt_tokens", result.prompt_tokens);
  line->Add("output_tokens", result.output_tokens);
  line->Add("prompt_tokens_per_s", result.prompt_tokens_per_s);
  line->Add("output_tokens_per_s", result.output_tokens_per_s);
  AddPercentiles("ttft_s", result.ttft_s, line);
  AddPercentiles("itl_s", result.itl_s, line);
  AddPercentiles("latency_s", result.latency_s, line);
  line->Add("slo_share", result.slo_share);
  line->Add("goodput_requests_per_s", result.goodput_requests_per_s);
  line->Add("goodput_tokens_per_s", result.goodput_tokens_per_s);
  line->Add("busy_s", result.busy_s);
  line->Add("bubble", result.bubble);
  line->Add("bubble_floor", result.bubble_floor);
  line->Add("micro_batches_run", result.micro_batches);
  line->Add("prefill_rows", result.prefill_rows);
  line->Add("decode_rows", result.decode_rows);
  line->Add("rows_per_pass", result.rows_per_pass);
  line->Add("preemptions", result.preemptions);
  line->Add("relaunches", result.relaunches);
}

// Sums over the stages; each of them is in the record.
void AddStages(const std::vector<SweepStage>& stages, CsvLine* line) {
  double compute = 0, send = 0, wait = 0;
  for (const SweepStage& stage : stages) compute += stage.compute_s, send += stage.send_s, wait += stage.wait_s;
  line->Add("stages_compute_s", compute);
  line->Add("stages_send_s", send);
  line->Add("stages_wait_s", wait);
}

void AddPrediction(const SweepPoint& point, CsvLine* line) {
  const SweepPrediction prediction = point.prediction.value_or(SweepPrediction());
  const std::pair<const char*, double> kValues[] = {{"predicted_prefill_tokens_per_s", prediction.prefill_tokens_per_s},
                                                    {"predicted_decode_tokens_per_s", prediction.decode_tokens_per_s},
                                                    {"predicted_output_tokens_per_s", prediction.output_tokens_per_s},
                                                    {"predicted_ttft_s", prediction.ttft_s},
                                                    {"predicted_itl_s", prediction.itl_s},
                                                    {"predicted_bubble", prediction.bubble}};
  line->Add("predicted_from", prediction.source);
  for (const auto& [name, value] : kValues) {
    if (point.prediction.has_value())
      line->Add(name, value);
    else
      line->AddNothing(name);
  }
}

CsvLine LineOf(const SweepPoint& point) {
  CsvLine line;
  line.Add("origin", point.simulated ? "simulated" : point.link_emulated() ? "emulated links" : "measured");
  line.Add("error", point.error);
  AddConfig(point.config, &line);
  AddResult(point.result, &line);
  AddStages(point.stages, &line);
  AddPrediction(point, &line);
  line.Add("version", point.origin.program_version);
  line.Add("started_at", point.origin.started_at);
  line.Add("host", point.origin.host);
  line.Add("processor", point.origin.processor);
  line.Add("cores", point.origin.cores);
  line.Add("load_average", point.origin.load_average);
  line.Add("command", point.origin.command);
  return line;
}

}  // namespace

std::string PointsCsv(absl::Span<const SweepPoint> points) {
  std::string text = LineOf(points.empty() ? SweepPoint() : points[0]).names();
  for (const SweepPoint& point : points) text += LineOf(point).values();
  return text;
}

}  // namespace stagecoach
