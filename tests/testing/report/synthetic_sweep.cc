#include "tests/testing/report/synthetic_sweep.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr double kPassSeconds = 0.02;   // all layers once over the weights, on one thread
constexpr double kRowSeconds = 0.0012;  // and for each row of it
constexpr double kHopSeconds = 0.0003;
constexpr int64_t kPrompt = 128, kOutput = 64;

// The same every time, between -1 and 1.
double Scatter(const SweepConfig& config, int which) {
  uint64_t bits = static_cast<uint64_t>(which) + 1;
  for (char c : SweepKey(config)) bits = (bits ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return static_cast<double>(bits >> 40) / static_cast<double>(1 << 23) - 1;
}

Percentiles Around(double median, double spread) {
  return {1000,
          median * 1.05,
          median,
          median * (1 + spread),
          median * (1 + 1.5 * spread),
          median * (1 + 3 * spread),
          median * (1 + 5 * spread)};
}

SweepConfig BaseConfig(const SyntheticMatrix& matrix) {
  SweepConfig config;
  config.model = "/models/synthetic-0.6b-q8_0.gguf";
  config.program_version = "0.1.0";
  config.emulated_link.latency_s = matrix.link_latency_s;
  config.prompt = absl::StrCat(kPrompt);
  config.output = matrix.prefill_only ? "1" : absl::StrCat(kOutput);
  config.slo_ttft_s = matrix.prefill_only ? 0 : 2;
  config.slo_itl_s = matrix.prefill_only ? 0 : 0.05;
  return config;
}

SweepOrigin Origin(const SweepConfig& config) {
  SweepOrigin origin;
  origin.command =
      absl::StrCat("coordinator sweep -m ", config.model, " --pp ", config.stages, " --threads ", config.threads,
                   " --concurrency ", config.concurrency, " --policy ", PolicyName(config.policy), " --prompt ",
                   config.prompt, " --output ", config.output, " --out synthetic");
  origin.started_at = absl::StrCat("2000-01-01T0", config.stages % 10, ":00:00Z");
  origin.model_type = "synthetic 0.6B Q8_0";
  origin.model_bytes = uint64_t{604} << 20;
  origin.host = "synthetic-host";
  origin.processor = "Synthetic CPU @ 1.00 GHz (no measurement)";
  origin.cores = 8;
  return origin;
}

void FillStages(double cycle, double stage_s, double groups, SweepPoint* point) {
  const int64_t stages = point->config.stages;
  for (int64_t s = 0; s < stages; ++s) {
    SweepStage stage;
    stage.host = absl::StrCat("synthetic-", s);
    stage.rank = s + 1;
    stage.threads = point->config.threads;
    stage.isa = "avx512-vnni";
    const double share =
        std::min(0.985, groups * stage_s / cycle * (s + 1 == stages ? 1.04 : 1 - 0.03 * static_cast<double>(s % 3)));
    stage.compute_s = point->result.busy_s * share;
    stage.wait_s = point->result.busy_s - stage.compute_s;
    stage.send_s = s + 1 == stages ? 0 : point->result.busy_s * 0.03;
    stage.bubble = 1 - share;
    point->stages.push_back(stage);
  }
}

void Predict(const SyntheticMatrix& matrix, SweepPoint* point) {
  if (!matrix.predicted) return;
  const SweepResult& result = point->result;
  SweepConfig first = point->config;
  first.repetition = 0;
  const auto about = [&](double value, int which) { return value * (1 + 0.12 * Scatter(first, 20 + which)); };
  SweepPrediction prediction;
  prediction.source = "profile synthetic.json";
  prediction.measured_steps = true;
  prediction.prefill_tokens_per_s = about(matrix.prefill_only ? result.prompt_tokens_per_s : 900, 0);
  prediction.decode_tokens_per_s = about(result.output_tokens_per_s * 1.1, 1);
  prediction.output_tokens_per_s = about(result.output_tokens_per_s, 2);
  prediction.ttft_s = about(result.ttft_s.p50, 3);
  prediction.itl_s = about(result.itl_s.p50, 4);
  prediction.bubble = about(result.bubble, 5);
  point->prediction = prediction;
}

SweepPoint Point(const SyntheticMatrix& matrix, const SweepConfig& config) {
  SweepPoint point;
  point.config = config;
  point.origin = Origin(config);
  point.simulated = matrix.simulated;
  const auto stages = static_cast<double>(config.stages), threads = static_cast<double>(config.threads);
  const auto sequences = static_cast<double>(config.concurrency);
  const double groups =
      std::min(sequences, config.decode_groups > 0 ? static_cast<double>(config.decode_groups) : stages);
  const double rows = sequences / groups;
  const double speed = std::pow(threads, 0.8) * (config.policy == Policy::kPrefillFirst ? 0.94 : 1);
  const double stage_s = (kPassSeconds + kRowSeconds * rows) / stages / speed + 0.0002;
  const double hop = kHopSeconds * (config.wire_type == WireType::kF32 ? 1 : 0.6) + config.emulated_link.latency_s;
  const double round = stages * (stage_s + hop), cycle = std::max(round, groups * stage_s * 1.04);
  const double noise = 1 + 0.025 * Scatter(config, 1);
  SweepResult& result = point.result;
  const double prompt_s =
      1.1e-3 * static_cast<double>(kPrompt) / speed * (1 + 24.0 / static_cast<double>(config.prefill_chunk));
  result.itl_s = Around(cycle * noise, config.policy == Policy::kPrefillFirst ? 0.9 : 0.4);
  result.ttft_s = Around((prompt_s * (1 + 0.15 * sequences / stages) + stages * hop) * noise, 0.5);
  const double request_s =
      matrix.prefill_only ? prompt_s * std::max(1.0, sequences / (0.93 * stages)) : result.ttft_s.p50 + kOutput * cycle;
  result.latency_s = Around(request_s, 0.2);
  result.requests = config.requests;
  const double requests_per_s = sequences / request_s / noise;
  result.prompt_tokens = config.requests * kPrompt;
  result.output_tokens = config.requests * (matrix.prefill_only ? 1 : kOutput);
  result.wall_s = static_cast<double>(config.requests) / requests_per_s;
  result.prompt_tokens_per_s = requests_per_s * kPrompt;
  result.output_tokens_per_s = requests_per_s * (matrix.prefill_only ? 1 : kOutput);
  if (matrix.prefill_only) result.itl_s = {};
  result.busy_s = result.wall_s * 0.98;
  result.bubble = std::clamp(1 - groups * stage_s / cycle, 0.0, 1.0) * (1 + 0.05 * Scatter(config, 2));
  result.bubble_floor = result.bubble * 0.7;
  result.rows_per_pass = rows;
  result.slo_share = std::clamp(1.5 - result.itl_s.p90 / 0.05, 0.0, 1.0);
  result.slo_requests = static_cast<int64_t>(result.slo_share * static_cast<double>(config.requests));
  result.goodput_requests_per_s = requests_per_s * result.slo_share;
  result.goodput_tokens_per_s = result.output_tokens_per_s * result.slo_share;
  FillStages(cycle, stage_s, groups, &point);
  Predict(matrix, &point);
  return point;
}

void Append(const std::vector<SweepPoint>& more, std::vector<SweepPoint>* points) {
  points->insert(points->end(), more.begin(), more.end());
}

}  // namespace

std::vector<SweepPoint> SyntheticSweep(const SyntheticMatrix& matrix) {
  std::vector<SweepPoint> points;
  SweepConfig config = BaseConfig(matrix);
  const auto each = [](auto& field, const auto& values, auto then) {
    for (const auto& value : values) {
      field = value;
      then();
    }
  };
  each(config.stages, matrix.stages, [&] {
    each(config.threads, matrix.threads, [&] {
      each(config.policy, matrix.policies, [&] {
        each(config.wire_type, matrix.wire_types, [&] {
          each(config.decode_groups, matrix.decode_groups, [&] {
            each(config.prefill_chunk, matrix.chunks, [&] {
              each(config.concurrency, matrix.concurrency, [&] {
                config.max_num_seqs = config.concurrency;
                config.requests = 4 * config.concurrency;
                for (config.repetition = 0; config.repetition < matrix.repetitions; ++config.repetition) {
                  points.push_back(Point(matrix, config));
                }
              });
            });
          });
        });
      });
    });
  });
  return points;
}

std::vector<SweepPoint> SyntheticExperiment() {
  std::vector<SweepPoint> points = SyntheticSweep({});
  SyntheticMatrix threads, policies, groups, links, simulated, prefill;
  threads.threads = {2}, threads.stages = {1, 2}, threads.concurrency = {8};
  policies.policies = {Policy::kPrefillFirst}, policies.stages = {2}, policies.concurrency = {8, 16},
  policies.chunks = {64, 256};
  groups.decode_groups = {1, 2, 4}, groups.stages = {4}, groups.concurrency = {16};
  links.link_latency_s = 0.002, links.stages = {2}, links.wire_types = {WireType::kF32, WireType::kBF16},
  links.concurrency = {4, 8, 16};
  simulated.simulated = true, simulated.stages = {8, 16, 32}, simulated.concurrency = {32}, simulated.repetitions = 1;
  prefill.prefill_only = true, prefill.concurrency = {1, 8};
  for (const SyntheticMatrix* matrix : {&threads, &policies, &groups, &links, &simulated, &prefill}) {
    Append(SyntheticSweep(*matrix), &points);
  }
  for (int i : {3, 20}) {
    SweepPoint failed;
    failed.config = points[static_cast<size_t>(i)].config;
    failed.origin = points[static_cast<size_t>(i)].origin;
    failed.error = "the job was lost: stage 1 on synthetic-1 sent no heartbeat for 6 s";
    points[static_cast<size_t>(i)] = failed;
  }
  return points;
}

}  // namespace stagecoach
