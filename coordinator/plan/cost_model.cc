#include "coordinator/plan/cost_model.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace stagecoach {
namespace {

constexpr double kGiga = 1e9;

double Over(double amount, double rate) { return amount == 0 ? 0 : amount / rate; }

double MatrixSeconds(const PartWork& part, double rows, const StageSpeed& speed) {
  const double reading = Over(part.BytesTouched(rows), speed.read_bytes);
  const double computing = rows * (Over(part.int8_ops, speed.int8_ops) + Over(part.bf16_ops, speed.bf16_ops) +
                                   Over(part.f32_ops, speed.f32_ops));
  return std::max(reading, computing);
}

// The measured load a step time is of.
StepLoad LoadOf(const StepTime& step) {
  if (step.rows == step.sequences) return StepLoad::Decode(step.rows, static_cast<double>(step.context));
  const double rows = static_cast<double>(step.rows) / step.sequences;
  StepLoad load = StepLoad::Chunk(rows, std::max(0.0, static_cast<double>(step.context) - rows), true);
  for (double* value : {&load.rows, &load.sequences, &load.positions, &load.kv_tokens, &load.head_rows}) {
    *value *= step.sequences;
  }
  return load;
}

// `load` with `rows` rows in place of its own: what it has a sequence stays for decode, its history for a chunk.
StepLoad WithRows(const StepLoad& load, double rows, bool decode) {
  if (decode) return StepLoad::Decode(rows, load.positions / load.rows);
  const double history = load.kv_tokens - load.rows;
  StepLoad chunk = StepLoad::Chunk(rows, history, load.head_rows > 0);
  return chunk;
}

}  // namespace

StepLoad StepLoad::Decode(double sequences, double context) {
  return {.rows = sequences,
          .sequences = sequences,
          .positions = sequences * context,
          .kv_tokens = sequences * context,
          .head_rows = sequences};
}

StepLoad StepLoad::Chunk(double rows, double history, bool last) {
  return {.rows = rows,
          .sequences = 1,
          .positions = rows * history + rows * (rows + 1) / 2,
          .kv_tokens = history + rows,
          .head_rows = last ? 1.0 : 0.0};
}

std::optional<StageSpeed> SpeedOfStage(const HostFacts& host, int threads, double active) {
  const HostSpeed* of_host = SpeedOf(host, static_cast<int>(std::ceil(active)), threads);
  if (of_host == nullptr) return std::nullopt;
  const double measured_threads = static_cast<double>(of_host->stages) * of_host->threads;
  const double useful = std::min<double>(threads, std::max(1.0, host.cores / active));
  StageSpeed speed;
  speed.read_bytes = of_host->read_gbps * kGiga / active;
  speed.int8_ops = of_host->int8_gops * kGiga / measured_threads * useful;
  speed.f32_ops = of_host->f32_gops * kGiga / measured_threads * useful;
  // Without a dot instruction for bfloat16 its matrices are multiplied as floats.
  speed.bf16_ops = of_host->bf16_gops > 0 ? of_host->bf16_gops * kGiga / measured_threads * useful : speed.f32_ops;
  speed.barriers_s = threads > 1 ? kBarriersPerLayer * kBarrierSeconds : 0;
  return speed;
}

double LayerSeconds(const PartWork& layer, const StepLoad& load, const StageSpeed& speed) {
  const double attention = std::max(Over(load.kv_tokens * layer.kv_token_bytes, speed.read_bytes),
                                    Over(load.positions * layer.attention_ops, speed.f32_ops));
  return MatrixSeconds(layer, load.rows, speed) + attention + speed.barriers_s;
}

double HeadSeconds(const PartWork& head, const StepLoad& load, const StageSpeed& speed) {
  return MatrixSeconds(head, load.head_rows, speed);
}

StageCosts::StageCosts(const HostFacts* host, int threads, const ModelParts* parts, const PartWork* measured_layer)
    : host_(host), threads_(threads), parts_(parts), measured_layer_(measured_layer) {
  CHECK(!host->speeds.empty());
}

double StageCosts::Layer(int64_t layer, const StepLoad& load, double active) const {
  return Seconds(parts_->layers[static_cast<size_t>(layer)], load, active, /*head=*/false);
}

double StageCosts::Head(const StepLoad& load, double active) const {
  return load.head_rows > 0 ? Seconds(parts_->head, load, active, /*head=*/true) : 0;
}

std::vector<StageCosts::Point> StageCosts::Points(const PartWork& part, const StepLoad& load, double active,
                                                  bool head) const {
  const bool decode = head || load.rows == load.sequences;
  const StageSpeed speed = *SpeedOfStage(*host_, threads_, active);
  const auto roofline = [&](const PartWork& of, const StepLoad& steps, const StageSpeed& at) {
    return head ? HeadSeconds(of, steps, at) : LayerSeconds(of, steps, at);
  };
  std::vector<Point> points;
  for (const StepTime& step : host_->steps) {
    const double seconds = (head ? step.head_us : step.layer_us) * 1e-6;
    if (seconds <= 0 || (decode ? step.rows != step.sequences : step.sequences != 1)) continue;
    const StepLoad wanted =
        head ? StepLoad{.head_rows = static_cast<double>(step.rows)} : WithRows(load, step.rows, decode);
    const double measured =
        roofline(head ? part : *measured_layer_, LoadOf(step), *SpeedOfStage(*host_, step.threads, 1));
    if (measured <= 0) continue;
    points.push_back({static_cast<double>(step.rows), seconds * roofline(part, wanted, speed) / measured});
  }
  std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.rows < b.rows; });
  // Of several threads or contexts the mean.
  std::vector<Point> merged;
  for (size_t i = 0; i < points.size();) {
    size_t end = i;
    double sum = 0;
    for (; end < points.size() && points[end].rows == points[i].rows; ++end) sum += points[end].seconds;
    merged.push_back({points[i].rows, sum / static_cast<double>(end - i)});
    i = end;
  }
  return merged;
}

double StageCosts::Seconds(const PartWork& part, const StepLoad& load, double active, bool head) const {
  const std::vector<Point> points = measured() ? Points(part, load, active, head) : std::vector<Point>{};
  const double rows = head ? load.head_rows : load.rows;
  if (points.empty()) {
    const StageSpeed speed = *SpeedOfStage(*host_, threads_, active);
    return head ? HeadSeconds(part, load, speed) : LayerSeconds(part, load, speed);
  }
  if (rows <= points.front().rows) return points.front().seconds;
  for (size_t i = 1; i < points.size(); ++i) {
    if (rows > points[i].rows) continue;
    const double share = (rows - points[i - 1].rows) / (points[i].rows - points[i - 1].rows);
    return points[i - 1].seconds + share * (points[i].seconds - points[i - 1].seconds);
  }
  return points.back().seconds * rows / points.back().rows;  // larger steps are bound by arithmetic
}

}  // namespace stagecoach
