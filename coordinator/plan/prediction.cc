#include "coordinator/plan/prediction.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/job/job_limits.h"

namespace stagecoach {
namespace {

constexpr int kEnough = 1 << 20;  // micro-batches in flight
constexpr double kChunkMargin = 0.02;

double Sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// The time of a group of `rows` on each stage with `groups` in flight.
std::vector<double> DecodeSteps(const PipelineModel& pipeline, double rows, double context, int groups) {
  const StepLoad load = StepLoad::Decode(rows, context, pipeline.window());
  std::vector<double> steps;
  steps.reserve(static_cast<size_t>(pipeline.size()));
  for (int s = 0; s < pipeline.size(); ++s) {
    steps.push_back(StageSeconds(pipeline, s, load, ActiveStages(pipeline, s, groups)));
  }
  return steps;
}

// What one row of a lone sequence meets: its way through all stages and back, and the longest of all that every row in
// flight has to share.
struct RowTimes {
  double busy_s = 0;     // of all stages
  double outside_s = 0;  // links, waking up, the coordinator
  double slowest_s = 0;
};
RowTimes RowTimesOf(const PipelineModel& pipeline, double context, int in_flight) {
  RowTimes times;
  times.outside_s = pipeline.to_first_s + pipeline.turn_s + (pipeline.size() + 1) * pipeline.wake_s;
  times.slowest_s = pipeline.turn_s;
  for (const double step_s : DecodeSteps(pipeline, 1, context, in_flight)) {
    times.busy_s += step_s;
    times.slowest_s = std::max(times.slowest_s, step_s);
  }
  for (int s = 0; s < pipeline.size(); ++s) {
    times.outside_s += LinkSeconds(pipeline, s, 1) + pipeline.stages[static_cast<size_t>(s)].link.latency_s;
    times.slowest_s = std::max(times.slowest_s, LinkSeconds(pipeline, s, 1));
  }
  for (const SharedWire& wire : pipeline.wires)
    times.slowest_s = std::max(times.slowest_s, WireSeconds(pipeline, wire, 1));
  return times;
}

double GuessedTokenSeconds(const RowTimes& times, double acceptance, int rows, double guess_s) {
  const double slowest_s = rows > 1 ? std::max(times.slowest_s, guess_s) : times.slowest_s;
  const double loop_s = std::max(times.busy_s + times.outside_s, rows * slowest_s);
  return loop_s * (acceptance / rows + 1 - acceptance);
}

// With so many equal stages.
double BestTokenSeconds(const RowTimes& of, int of_stages, int stages, double acceptance, int most_rows,
                        double guess_s) {
  const RowTimes times = {
      .busy_s = of.busy_s, .outside_s = of.outside_s * (stages + 1) / (of_stages + 1), .slowest_s = of.busy_s / stages};
  double best_s = GuessedTokenSeconds(times, acceptance, 1, guess_s);
  for (int rows = 2; rows <= std::min(stages + 1, most_rows); ++rows) {
    best_s = std::min(best_s, GuessedTokenSeconds(times, acceptance, rows, guess_s));
  }
  return best_s;
}

// When the last chunk of a prompt that is alone is back at the coordinator; `busy_s`: the stages' time, all together.
double LonePromptSeconds(const PipelineModel& pipeline, const std::vector<StepLoad>& chunks, int in_flight,
                         double* busy_s) {
  const double at_once = std::min<double>(in_flight, static_cast<double>(chunks.size()));
  std::vector<double> ends;  // of the chunks so far
  std::vector<double> stage_free(static_cast<size_t>(pipeline.size()), 0), link_free(stage_free);
  double coordinator_free = 0;
  *busy_s = 0;
  for (const StepLoad& chunk : chunks) {
    const bool waits = static_cast<int>(ends.size()) >= in_flight;
    const double ready = waits ? ends[ends.size() - static_cast<size_t>(in_flight)] : 0;
    coordinator_free = std::max(ready, coordinator_free) + pipeline.turn_s;
    double arrival = coordinator_free + pipeline.to_first_s + pipeline.wake_s;
    for (int s = 0; s < pipeline.size(); ++s) {
      const double seconds = StageSeconds(pipeline, s, chunk, ActiveStages(pipeline, s, at_once));
      stage_free[s] = std::max(arrival, stage_free[s]) + seconds;
      link_free[s] = std::max(stage_free[s], link_free[s]) + LinkSeconds(pipeline, s, chunk.rows);
      arrival = link_free[s] + pipeline.stages[s].link.latency_s + pipeline.wake_s;
      *busy_s += seconds;
    }
    ends.push_back(arrival);
  }
  return ends.back();
}

// The longest of several times, and what takes it.
struct Longest {
  double seconds = 0;
  PipelineLimit limit = {};

  void Add(double more, PipelineLimit of) {
    if (more <= seconds) return;
    seconds = more;
    limit = of;
  }
  void AddWires(const PipelineModel& pipeline, double rows) {
    for (const SharedWire& wire : pipeline.wires) {
      // A link that is as slow as the uplink on its way is so because of that.
      const double wire_s = WireSeconds(pipeline, wire, rows);
      if (wire_s > 0 && wire_s >= seconds) *this = {wire_s, {PipelineLimit::What::kUplink, wire.uplink}};
    }
  }
};

}  // namespace

void ShareUplinks(const std::vector<PipelineUplink>& uplinks, PipelineModel* pipeline) {
  std::vector<PipelineStage>& stages = pipeline->stages;
  for (size_t u = 0; u < uplinks.size(); ++u) {
    SharedWire out{.uplink = static_cast<int>(u), .bytes_per_s = uplinks[u].bytes_per_s}, in = out;
    const auto behind = [&hosts = uplinks[u].hosts](int host) {
      return std::find(hosts.begin(), hosts.end(), host) != hosts.end();
    };
    for (size_t s = 0; s + 1 < stages.size(); ++s) {
      const bool from = behind(stages[s].host), to = behind(stages[s + 1].host);
      if (from == to) continue;
      (from ? out : in).stages.push_back(static_cast<int>(s));
      stages[s].link.bytes_per_s = std::min(stages[s].link.bytes_per_s, uplinks[u].bytes_per_s);
    }
    for (SharedWire* wire : {&out, &in}) {
      if (!wire->stages.empty()) pipeline->wires.push_back(std::move(*wire));
    }
  }
}

double StageSeconds(const PipelineModel& pipeline, int stage, const StepLoad& load, double active) {
  if (load.rows <= 0) return 0;
  const PipelineStage& of = pipeline.stages[static_cast<size_t>(stage)];
  const double seconds = of.costs->Layers(of.layers.begin, of.layers.end, load, active);
  return stage + 1 == pipeline.size() ? seconds + of.costs->Head(load, active) : seconds;
}

double ActiveStages(const PipelineModel& pipeline, int stage, double in_flight) {
  const double on_host = pipeline.stages[stage].host_stages;
  return std::clamp(on_host * std::min<double>(in_flight, pipeline.size()) / pipeline.size(), 1.0, on_host);
}

double LinkSeconds(const PipelineModel& pipeline, int stage, double rows) {
  if (stage + 1 == pipeline.size()) return 0;
  return rows * pipeline.row_bytes / pipeline.stages[stage].link.bytes_per_s;
}

double WireSeconds(const PipelineModel& pipeline, const SharedWire& wire, double rows) {
  return static_cast<double>(wire.stages.size()) * rows * pipeline.row_bytes / wire.bytes_per_s;
}

DecodePrediction PredictDecode(const PipelineModel& pipeline, int64_t sequences, double context, int groups,
                               int in_flight) {
  CHECK(1 <= groups && groups <= sequences && 0 <= in_flight && in_flight <= groups);
  if (in_flight == 0) in_flight = groups;
  const int stages = pipeline.size();
  DecodePrediction result;
  result.groups = groups;
  result.in_flight = in_flight;
  result.rows = static_cast<double>(sequences) / groups;
  result.stage_s = DecodeSteps(pipeline, result.rows, context, in_flight);
  double hops = pipeline.to_first_s + (stages + 1) * pipeline.wake_s;
  Longest longest;
  for (int s = 0; s < stages; ++s) longest.Add(result.stage_s[s], {PipelineLimit::What::kStage, s});
  const double slowest = longest.seconds;
  for (int s = 0; s < stages; ++s) {
    const double link = LinkSeconds(pipeline, s, result.rows);
    hops += link + pipeline.stages[s].link.latency_s;
    longest.Add(link, {PipelineLimit::What::kLink, s});
  }
  longest.AddWires(pipeline, result.rows);
  const double busy = Sum(result.stage_s), mean = busy / stages;
  const double rounds = static_cast<double>(groups) / in_flight;  // one behind the other
  const double full = groups * mean;
  const double balanced = std::max(full, rounds * stages * mean);
  const double without_hops = std::max({balanced, rounds * busy, groups * slowest});
  const double without_turn = std::max({without_hops, rounds * (busy + hops), groups * longest.seconds});
  const double round = rounds * (busy + hops + pipeline.turn_s);
  longest.Add(pipeline.turn_s, {PipelineLimit::What::kCoordinator, 0});
  const double cycle = std::max({round, without_turn, groups * longest.seconds});
  result.limit = longest.limit;
  if (stages > 1 && round > groups * longest.seconds) result.limit = {PipelineLimit::What::kUnderWay, 0};
  if (stages == 1 && hops + pipeline.turn_s > busy) {
    result.limit.what = pipeline.turn_s > hops ? PipelineLimit::What::kCoordinator : PipelineLimit::What::kUnderWay;
  }
  result.itl_s = cycle;
  result.tokens_per_s = static_cast<double>(sequences) / cycle;
  result.bubble_few = (balanced - full) / cycle;
  result.bubble_imbalance = (without_hops - balanced) / cycle;
  result.bubble_hop = (without_turn - without_hops) / cycle;
  result.bubble_coordinator = (cycle - without_turn) / cycle;
  result.bubble = result.bubble_few + result.bubble_imbalance + result.bubble_hop + result.bubble_coordinator;
  return result;
}

PromptChunks ChunksOf(int64_t prompt_tokens, int64_t chunk, int64_t window, int64_t most) {
  PromptChunks chunks;
  if ((prompt_tokens + chunk - 1) / chunk > most) {
    const double tokens = static_cast<double>(prompt_tokens) / static_cast<double>(most);  // that each stands for
    const auto rows = static_cast<double>(chunk);
    chunks.each = tokens / rows;
    for (int64_t k = 0; k < most; ++k) {
      const double history = (static_cast<double>(k) + 0.5) * tokens - rows / 2;
      chunks.loads.push_back(
          StepLoad::Chunk(rows, history, /*last=*/false, window));  // of so many, the last's head is nothing
    }
    return chunks;
  }
  for (int64_t done = 0; done < prompt_tokens; done += chunk) {
    const int64_t rows = std::min(chunk, prompt_tokens - done);
    chunks.loads.push_back(
        StepLoad::Chunk(static_cast<double>(rows), static_cast<double>(done), done + rows == prompt_tokens, window));
  }
  return chunks;
}

SpeculationPrediction PredictSpeculation(const PipelineModel& pipeline, double context, double acceptance,
                                         int most_rows, double guess_s, int in_flight) {
  CHECK(0 <= acceptance && acceptance <= 1 && most_rows >= 1 && in_flight >= 0);
  SpeculationPrediction result;
  const int most = in_flight > 0 ? std::min(most_rows, in_flight) : most_rows;
  for (int rows = 1; rows <= most; ++rows) {
    const RowTimes times = RowTimesOf(pipeline, context, rows);
    const double tokens_per_s = 1 / GuessedTokenSeconds(times, acceptance, rows, guess_s);
    if (tokens_per_s <= result.tokens_per_s * (1 + 1e-9)) continue;  // of equal ones the fewest rows
    result.rows = rows;
    result.tokens_per_s = tokens_per_s;
  }
  const RowTimes alone = RowTimesOf(pipeline, context, 1);
  const auto seconds = [&](int stages) {
    return BestTokenSeconds(alone, pipeline.size(), stages, acceptance, most_rows, guess_s);
  };
  int& last = result.last_useful_stages;
  while (last < JobLimits::kStages.range.max && seconds(last) >= (1 + kLeastStageGain) * seconds(last + 1)) ++last;
  return result;
}

PrefillPredictor::PrefillPredictor(const PipelineModel* pipeline, int64_t prompt_tokens, int64_t chunk)
    : pipeline_(pipeline),
      prompt_tokens_(prompt_tokens),
      chunk_(chunk),
      chunks_(ChunksOf(prompt_tokens, chunk, pipeline->window())),
      count_(chunks_.each * static_cast<double>(chunks_.loads.size())) {
  CHECK(prompt_tokens >= 1 && chunk >= 1);
  for (const PipelineStage& stage : pipeline->stages) shared_ = shared_ || stage.host_stages > 1;
}

void PrefillPredictor::UpdateStages(int in_flight) {
  in_flight = shared_ ? std::min(in_flight, pipeline_->size()) : 1;
  if (stages_for_ == in_flight) return;
  stages_for_ = in_flight;
  stage_s_.clear();
  Longest longest;
  for (int s = 0; s < pipeline_->size(); ++s) {
    const double active = ActiveStages(*pipeline_, s, in_flight);
    double seconds = 0;
    for (const StepLoad& load : chunks_.loads) seconds += chunks_.each * StageSeconds(*pipeline_, s, load, active);
    stage_s_.push_back(seconds);
    longest.Add(seconds, {PipelineLimit::What::kStage, s});
  }
  const auto rows = static_cast<double>(prompt_tokens_);
  for (int s = 0; s < pipeline_->size(); ++s) {
    longest.Add(LinkSeconds(*pipeline_, s, rows), {PipelineLimit::What::kLink, s});
  }
  longest.AddWires(*pipeline_, rows);
  longest.Add(count_ * pipeline_->turn_s, {PipelineLimit::What::kCoordinator, 0});
  longest_s_ = longest.seconds;
  limit_ = longest.limit;
}

double PrefillPredictor::SecondsOfPrompt(int in_flight) {
  CHECK_GE(in_flight, 1);
  UpdateStages(in_flight);
  const auto stages = pipeline_->size();
  double rounds = count_ * (pipeline_->turn_s + pipeline_->to_first_s + (stages + 1) * pipeline_->wake_s);
  for (int s = 0; s < stages; ++s) {
    rounds += stage_s_[static_cast<size_t>(s)] + LinkSeconds(*pipeline_, s, static_cast<double>(prompt_tokens_)) +
              count_ * pipeline_->stages[static_cast<size_t>(s)].link.latency_s;
  }
  return std::max(longest_s_, rounds / in_flight);
}

// Of a whole prompt, of which there may only be samples. In e times the time of every e-th chunk alone, what comes once
// (the pipeline fills and drains) comes e times; samples half as dense tell how long that is.
double PrefillPredictor::FirstTokenSeconds(int in_flight) {
  double wires = 0;
  for (const SharedWire& wire : pipeline_->wires) {
    wires = std::max(wires, WireSeconds(*pipeline_, wire, static_cast<double>(prompt_tokens_)));
  }
  if (chunks_.each == 1) return std::max(wires, LonePromptSeconds(*pipeline_, chunks_.loads, in_flight, &busy_s_));
  int64_t half = kMostChunks / 2;
  if (in_flight < half) half -= half % in_flight;  // whole rounds of those in flight
  const PromptChunks dense = ChunksOf(prompt_tokens_, chunk_, pipeline_->window(), 2 * half);
  const PromptChunks sparse = ChunksOf(prompt_tokens_, chunk_, pipeline_->window(), half);
  const double sparse_s = sparse.each * LonePromptSeconds(*pipeline_, sparse.loads, in_flight, &busy_s_);
  const double dense_s = dense.each * LonePromptSeconds(*pipeline_, dense.loads, in_flight, &busy_s_);
  busy_s_ *= dense.each;
  return std::max(wires, dense_s - (dense.each - 1) * (sparse_s - dense_s) / (sparse.each - dense.each));
}

PrefillPrediction PrefillPredictor::Predict(int in_flight) {
  const double seconds = SecondsOfPrompt(in_flight);
  PrefillPrediction result;
  result.chunk = chunk_;
  result.tokens_per_s = static_cast<double>(prompt_tokens_) / seconds;
  result.stage_s = stage_s_;
  result.limit = limit_;
  if (seconds > longest_s_ && pipeline_->size() > 1) result.limit = {PipelineLimit::What::kUnderWay, 0};
  result.ttft_s = FirstTokenSeconds(in_flight);
  result.bubble = std::max(0.0, 1 - busy_s_ / (pipeline_->size() * result.ttft_s));
  return result;
}

PrefillPrediction PredictPrefill(const PipelineModel& pipeline, int64_t prompt_tokens, int64_t chunk, int in_flight) {
  return PrefillPredictor(&pipeline, prompt_tokens, chunk).Predict(in_flight);
}

PrefillPrediction PredictBestPrefill(const PipelineModel& pipeline, int64_t prompt_tokens, int64_t most_rows) {
  std::vector<int64_t> chunks = {most_rows};
  for (int64_t chunk = kSmallestChunk; chunk < std::min(most_rows, 2 * prompt_tokens); chunk *= 2) {
    chunks.push_back(chunk);
  }
  std::vector<double> ttft_s;
  ttft_s.reserve(chunks.size());
  for (const int64_t chunk : chunks) {
    ttft_s.push_back(PrefillPredictor(&pipeline, prompt_tokens, chunk).FirstTokenSeconds(kEnough));
  }
  const double least = *std::min_element(ttft_s.begin(), ttft_s.end());
  int64_t best = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (ttft_s[i] <= least * (1 + kChunkMargin)) best = std::max(best, chunks[i]);
  }
  return PredictPrefill(pipeline, prompt_tokens, best, kEnough);
}

}  // namespace stagecoach
