#include "coordinator/plan/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <numeric>

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

// What a layer does with the states of a step's sequences.
double StateSeconds(const PartWork& layer, const StepLoad& load, const StageSpeed& speed) {
  return std::max(Over(2 * load.sequences * layer.state_bytes, speed.read_bytes),
                  Over(load.rows * layer.state_ops, speed.f32_ops));
}

// The measured load a step time is of.
StepLoad LoadOf(const StepTime& step, int64_t window) {
  const auto context = static_cast<double>(step.context);
  if (step.rows == step.sequences) return StepLoad::Decode(step.rows, context, window);
  const double rows = static_cast<double>(step.rows) / step.sequences;
  StepLoad load = StepLoad::Chunk(rows, std::max(0.0, context - rows), true, window);
  for (double* value : {&load.rows, &load.sequences, &load.positions, &load.kv_tokens, &load.window_positions,
                        &load.window_kv_tokens, &load.head_rows}) {
    *value *= step.sequences;
  }
  return load;
}

// Those of the number of threads that is nearest, the lower one of two.
std::vector<StepTime> StepsOfThreads(const HostFacts& host, int threads) {
  int nearest = 0;
  for (const StepTime& step : host.steps) {
    if (step.layer_us <= 0) continue;
    const int distance = std::abs(step.threads - threads), least = std::abs(nearest - threads);
    if (nearest == 0 || distance < least || (distance == least && step.threads < nearest)) nearest = step.threads;
  }
  std::vector<StepTime> steps;
  for (const StepTime& step : host.steps) {
    if (step.layer_us > 0 && step.threads == nearest) steps.push_back(step);
  }
  return steps;
}

// Seconds that one more of `amount` costs, by the two steps of one kind and as many rows that differ most in it; absent
// where there are no two, or noise has it that more costs less.
template <typename Amount>
std::optional<double> Slope(const std::vector<StepTime>& steps, bool decode, const Amount& amount) {
  std::optional<double> slope;
  double widest = 0;
  for (const StepTime& a : steps) {
    for (const StepTime& b : steps) {
      const bool alike = a.rows == b.rows && a.sequences == b.sequences && (a.rows == a.sequences) == decode;
      const double apart = alike ? amount(b) - amount(a) : 0;
      if (apart <= widest) continue;
      widest = apart;
      slope = (b.layer_us - a.layer_us) * 1e-6 / apart;
    }
  }
  return slope.has_value() && *slope > 0 ? slope : std::nullopt;
}

// The read rate of `threads` threads, from a measurement with as many or more.
double ReadGbps(const HostSpeed& of_host, double threads) {
  const double measured = static_cast<double>(of_host.stages) * of_host.threads;
  if (threads >= measured) return of_host.read_gbps;
  return std::min(of_host.read_gbps, threads * std::max(kAssumedReadGbpsOfCore, of_host.read_gbps / measured));
}

// Positions beyond the first row's that reads their K and V.
double SharedPositionsIn(const PartWork& layer, const StepLoad& load) {
  return std::max(0.0, load.PositionsIn(layer) - load.KvTokensIn(layer));
}

// That `rows` rows behind `history` others attend to where they see all.
double PositionsBehind(double history, double rows) { return rows * history + rows * (rows + 1) / 2; }

}  // namespace

StepLoad StepLoad::Decode(double sequences, double context, int64_t window) {
  const double within = window > 0 ? std::min(context, static_cast<double>(window)) : context;
  return {.rows = sequences,
          .sequences = sequences,
          .positions = sequences * context,
          .kv_tokens = sequences * context,
          .window_positions = sequences * within,
          .window_kv_tokens = sequences * within,
          .head_rows = sequences};
}

StepLoad StepLoad::Chunk(double rows, double history, bool last, int64_t window) {
  StepLoad load = {.rows = rows,
                   .sequences = 1,
                   .positions = PositionsBehind(history, rows),
                   .kv_tokens = history + rows,
                   .head_rows = last ? 1.0 : 0.0};
  load.window_positions = load.positions;
  load.window_kv_tokens = load.kv_tokens;
  if (window > 0) {
    const auto most = static_cast<double>(window);
    const double whole = std::clamp(most - history, 0.0, rows);  // rows that see all before them
    load.window_positions = PositionsBehind(history, whole) + (rows - whole) * most;
    load.window_kv_tokens = std::min(load.kv_tokens, most + rows - 1);
  }
  return load;
}

std::optional<StageSpeed> SpeedOfStage(const HostFacts& host, int threads, double active) {
  const HostSpeed* of_host = SpeedOf(host, static_cast<int>(std::ceil(active)), threads);
  if (of_host == nullptr) return std::nullopt;
  const double measured_threads = static_cast<double>(of_host->stages) * of_host->threads;
  const double useful = std::min<double>(threads, std::max(1.0, host.cores / active));
  StageSpeed speed;
  speed.read_bytes = ReadGbps(*of_host, threads * active) * kGiga / active;
  speed.int8_ops = of_host->int8_gops * kGiga / measured_threads * useful;
  speed.f32_ops = of_host->f32_gops * kGiga / measured_threads * useful;
  // Without a dot instruction for bfloat16 its matrices are multiplied as floats.
  speed.bf16_ops = of_host->bf16_gops > 0 ? of_host->bf16_gops * kGiga / measured_threads * useful : speed.f32_ops;
  speed.barriers_s = threads > 1 ? kBarriersPerLayer * kBarrierSeconds : 0;
  return speed;
}

double LayerSeconds(const PartWork& layer, const StepLoad& load, const StageSpeed& speed) {
  const double attention = std::max(Over(load.KvTokensIn(layer) * layer.kv_token_bytes, speed.read_bytes),
                                    Over(load.PositionsIn(layer) * layer.attention_ops, speed.f32_ops));
  return MatrixSeconds(layer, load.rows, speed) + attention + StateSeconds(layer, load, speed) + speed.barriers_s;
}

StageCosts::StageCosts(const HostFacts* host, int threads, const ModelParts* parts, const PartWork* measured_layer)
    : host_(host), threads_(threads), parts_(parts), measured_layer_(measured_layer) {
  CHECK(!host->speeds.empty());
  if (measured_layer != nullptr) measured_ = Fit(*host, threads, *measured_layer, parts->window);
}

std::optional<StageCosts::Measured> StageCosts::Fit(const HostFacts& host, int threads, const PartWork& layer,
                                                    int64_t window) {
  constexpr double kLeastMatrices = 0.1;  // of a step, whatever attention seems to take
  const std::vector<StepTime> steps = StepsOfThreads(host, threads);
  if (steps.empty()) return std::nullopt;
  Measured fit;
  fit.threads = steps.front().threads;
  fit.speed = *SpeedOfStage(host, fit.threads, 1);
  for (const StepTime& step : steps) fit.context = std::max(fit.context, step.context);
  const double kv_read_s = Over(layer.kv_token_bytes, fit.speed.read_bytes);
  const double position_s = Over(layer.attention_ops, fit.speed.f32_ops);
  const auto kv_tokens = [&](const StepTime& step) { return LoadOf(step, window).KvTokensIn(layer); };
  const auto shared = [&](const StepTime& step) { return SharedPositionsIn(layer, LoadOf(step, window)); };
  fit.kv_token_s = Slope(steps, /*decode=*/true, kv_tokens).value_or(std::max(kv_read_s, position_s));
  std::vector<StepTime> without_kv = steps;
  for (StepTime& step : without_kv) step.layer_us -= fit.kv_token_s * kv_tokens(step) * 1e6;
  fit.position_s = Slope(without_kv, /*decode=*/false, shared).value_or(position_s);
  std::map<int, std::vector<double>> matrices, head;  // seconds, by rows
  for (const StepTime& step : steps) {
    const double seconds = step.layer_us * 1e-6;
    const double attention = fit.kv_token_s * kv_tokens(step) + fit.position_s * shared(step);
    matrices[step.rows].push_back(std::max(kLeastMatrices * seconds, seconds - attention));
    if (step.head_us > 0) head[step.sequences].push_back(step.head_us * 1e-6);
  }
  const auto points = [](const std::map<int, std::vector<double>>& by_rows) {
    std::vector<Point> means;
    for (const auto& [rows, seconds] : by_rows) {
      const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
      means.push_back({static_cast<double>(rows), sum / static_cast<double>(seconds.size())});
    }
    return means;
  };
  fit.matrices = points(matrices);
  fit.head = points(head);
  return fit;
}

// What was measured for `rows` rows of `measured`, for those of `part` at this speed.
double StageCosts::MatrixTime(const std::vector<Point>& points, const PartWork& measured, const PartWork& part,
                              double rows, StageSpeed speed) const {
  constexpr double kCached = 0.8;  // of the time that reading the weights from memory takes
  const StageSpeed& there = measured_->speed;
  if (points.front().seconds < kCached * Over(measured.BytesTouched(points.front().rows), there.read_bytes)) {
    speed.read_bytes = std::max(speed.read_bytes, there.read_bytes);
  }
  const auto roofline = [&](double of_rows) { return MatrixSeconds(measured, of_rows, there); };
  const double alone = roofline(rows);
  double seconds = 0;
  const auto above =
      std::find_if(points.begin(), points.end(), [rows](const Point& point) { return point.rows >= rows; });
  if (above == points.begin() || above == points.end()) {
    const Point& nearest = above == points.end() ? points.back() : *above;
    const double of_nearest = roofline(nearest.rows);
    seconds = of_nearest > 0 ? nearest.seconds * alone / of_nearest : nearest.seconds;
  } else {
    const Point& below = *std::prev(above);
    const double way = (rows - below.rows) / (above->rows - below.rows);
    if (measured.expert_bytes > 0) {
      const double of_below = below.seconds / roofline(below.rows), of_above = above->seconds / roofline(above->rows);
      seconds = alone * (of_below + way * (of_above - of_below));
    } else {
      seconds = below.seconds + way * (above->seconds - below.seconds);
    }
  }
  return alone > 0 ? seconds * MatrixSeconds(part, rows, speed) / alone : seconds;
}

double StageCosts::Layer(int64_t layer, const StepLoad& load, double active) const {
  const PartWork& part = parts_->layers[static_cast<size_t>(layer)];
  const StageSpeed speed = *SpeedOfStage(*host_, threads_, active);
  if (!measured_.has_value()) return LayerSeconds(part, load, speed);
  const PartWork& of = *measured_layer_;
  const StageSpeed& alone = measured_->speed;
  const double kv = of.kv_token_bytes > 0 ? part.kv_token_bytes / of.kv_token_bytes : 1;
  const double ops = of.attention_ops > 0 ? part.attention_ops / of.attention_ops : 1;
  return MatrixTime(measured_->matrices, of, part, load.rows, speed) +
         measured_->kv_token_s * load.KvTokensIn(part) * kv * alone.read_bytes / speed.read_bytes +
         measured_->position_s * SharedPositionsIn(part, load) * ops * alone.f32_ops / speed.f32_ops +
         StateSeconds(part, load, speed);
}

template <typename Visit>
void StageCosts::ForEach(int64_t begin, int64_t end, const StepLoad& load, double active, const Visit& visit) const {
  struct Known {
    const PartWork* work = nullptr;
    double seconds = 0;
  };
  std::array<Known, 2> known;  // the last ones that differ: models alternate between two kinds of layers at most
  for (int64_t layer = begin; layer < end; ++layer) {
    const PartWork& work = parts_->layers[static_cast<size_t>(layer)];
    const auto* same =
        std::find_if(known.begin(), known.end(), [&](const Known& k) { return k.work != nullptr && *k.work == work; });
    if (same == known.end()) {
      known[1] = known[0];
      known[0] = {&work, Layer(layer, load, active)};
      same = known.begin();
    }
    visit(static_cast<size_t>(layer), same->seconds);
  }
}

double StageCosts::Layers(int64_t begin, int64_t end, const StepLoad& load, double active) const {
  double seconds = 0;
  ForEach(begin, end, load, active, [&](size_t, double of_layer) { seconds += of_layer; });
  return seconds;
}

void StageCosts::AddLayers(const StepLoad& load, double active, double times, std::vector<double>* seconds) const {
  ForEach(0, static_cast<int64_t>(seconds->size()), load, active,
          [&](size_t layer, double of_layer) { (*seconds)[layer] += times * of_layer; });
}

double StageCosts::Head(const StepLoad& load, double active) const {
  if (load.head_rows <= 0) return 0;
  const StageSpeed speed = *SpeedOfStage(*host_, threads_, active);
  if (!measured_.has_value() || measured_->head.empty()) return MatrixSeconds(parts_->head, load.head_rows, speed);
  return MatrixTime(measured_->head, parts_->head, parts_->head, load.head_rows, speed);
}

}  // namespace stagecoach
