#include "coordinator/plan/prediction.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"

namespace stagecoach {
namespace {

constexpr int kEnough = 1 << 20;  // micro-batches in flight
constexpr double kChunkMargin = 0.02;

double Sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// A step of one stage: its layers, and the head for the last.
double StageSeconds(const PipelineModel& pipeline, int stage, const StepLoad& load, double in_flight) {
  const PipelineStage& of = pipeline.stages[stage];
  const double active = ActiveStages(pipeline, stage, in_flight);
  double seconds = 0;
  for (int64_t layer = of.layers.begin; layer < of.layers.end; ++layer) {
    seconds += of.costs->Layer(layer, load, active);
  }
  return stage + 1 == pipeline.size() ? seconds + of.costs->Head(load, active) : seconds;
}

// The time of a group of `rows` on each stage with `groups` in flight.
std::vector<double> DecodeSteps(const PipelineModel& pipeline, double rows, double context, int groups) {
  std::vector<double> steps;
  steps.reserve(static_cast<size_t>(pipeline.size()));
  for (int s = 0; s < pipeline.size(); ++s) {
    steps.push_back(StageSeconds(pipeline, s, StepLoad::Decode(rows, context, pipeline.window()), groups));
  }
  return steps;
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
      const double seconds = StageSeconds(pipeline, s, chunk, at_once);
      stage_free[s] = std::max(arrival, stage_free[s]) + seconds;
      link_free[s] = std::max(stage_free[s], link_free[s]) + LinkSeconds(pipeline, s, chunk.rows);
      arrival = link_free[s] + pipeline.stages[s].link.latency_s + pipeline.wake_s;
      *busy_s += seconds;
    }
    ends.push_back(arrival);
  }
  return ends.back();
}

// The same for a whole prompt, of which there may only be samples. In e times the time of every e-th chunk alone, what
// comes once (the pipeline fills and drains) comes e times; samples half as dense tell how long that is.
double FirstTokenSeconds(const PipelineModel& pipeline, int64_t prompt_tokens, int64_t chunk, int in_flight,
                         double* busy_s) {
  const PromptChunks chunks = ChunksOf(prompt_tokens, chunk, pipeline.window());
  if (chunks.each == 1) return LonePromptSeconds(pipeline, chunks.loads, in_flight, busy_s);
  int64_t half = kMostChunks / 2;
  if (in_flight < half) half -= half % in_flight;  // whole rounds of those in flight
  const PromptChunks dense = ChunksOf(prompt_tokens, chunk, pipeline.window(), 2 * half);
  const PromptChunks sparse = ChunksOf(prompt_tokens, chunk, pipeline.window(), half);
  double sparse_busy = 0;
  const double sparse_s = sparse.each * LonePromptSeconds(pipeline, sparse.loads, in_flight, &sparse_busy);
  const double dense_s = dense.each * LonePromptSeconds(pipeline, dense.loads, in_flight, busy_s);
  *busy_s *= dense.each;
  return dense_s - (dense.each - 1) * (sparse_s - dense_s) / (sparse.each - dense.each);
}

}  // namespace

double ActiveStages(const PipelineModel& pipeline, int stage, double in_flight) {
  const double on_host = pipeline.stages[stage].host_stages;
  return std::clamp(on_host * std::min<double>(in_flight, pipeline.size()) / pipeline.size(), 1.0, on_host);
}

double LinkSeconds(const PipelineModel& pipeline, int stage, double rows) {
  if (stage + 1 == pipeline.size()) return 0;
  return rows * pipeline.row_bytes / pipeline.stages[stage].link.bytes_per_s;
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
  double hops = pipeline.to_first_s + (stages + 1) * pipeline.wake_s, slowest = 0, slowest_link = 0;
  for (int s = 0; s < stages; ++s) {
    const double link = LinkSeconds(pipeline, s, result.rows);
    hops += link + pipeline.stages[s].link.latency_s;
    if (result.stage_s[s] > std::max(slowest, slowest_link)) result.bottleneck = s, result.link_is_bottleneck = false;
    slowest = std::max(slowest, result.stage_s[s]);
    if (link > std::max(slowest, slowest_link)) result.bottleneck = s, result.link_is_bottleneck = true;
    slowest_link = std::max(slowest_link, link);
  }
  const double busy = Sum(result.stage_s), mean = busy / stages;
  const double rounds = static_cast<double>(groups) / in_flight;  // one behind the other
  const double without_turn = std::max(rounds * (busy + hops), groups * std::max(slowest, slowest_link));
  const double cycle = std::max({rounds * (busy + hops + pipeline.turn_s), without_turn, groups * pipeline.turn_s});
  const double without_hops = std::max(rounds * busy, groups * slowest);
  const double balanced = rounds * std::max(in_flight, stages) * mean;
  result.itl_s = cycle;
  result.tokens_per_s = static_cast<double>(sequences) / cycle;
  result.bubble_few = (balanced - groups * mean) / cycle;
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

PrefillPrediction PredictPrefill(const PipelineModel& pipeline, int64_t prompt_tokens, int64_t chunk, int in_flight) {
  CHECK(prompt_tokens >= 1 && chunk >= 1 && in_flight >= 1);
  const int stages = pipeline.size();
  const PromptChunks chunks = ChunksOf(prompt_tokens, chunk, pipeline.window());
  PrefillPrediction result;
  result.chunk = chunk;
  const auto count = chunks.each * static_cast<double>(chunks.loads.size());
  double busiest = 0, busy = 0;
  double rounds = count * (pipeline.turn_s + pipeline.to_first_s + (stages + 1) * pipeline.wake_s);
  for (int s = 0; s < stages; ++s) {
    double seconds = 0, link = 0;
    for (const StepLoad& load : chunks.loads) {
      seconds += chunks.each * StageSeconds(pipeline, s, load, in_flight);
      link += chunks.each * LinkSeconds(pipeline, s, load.rows);
    }
    rounds += seconds + link + count * pipeline.stages[s].link.latency_s;
    result.stage_s.push_back(seconds);
    if (std::max(seconds, link) > busiest) {
      busiest = std::max(seconds, link);
      result.bottleneck = s;
      result.link_is_bottleneck = link > seconds;
    }
  }
  const double each = std::max({busiest, rounds / in_flight, count * pipeline.turn_s});
  result.tokens_per_s = static_cast<double>(prompt_tokens) / each;
  result.ttft_s = FirstTokenSeconds(pipeline, prompt_tokens, chunk, in_flight, &busy);
  result.bubble = 1 - busy / (stages * result.ttft_s);
  return result;
}

PrefillPrediction PredictBestPrefill(const PipelineModel& pipeline, int64_t prompt_tokens, int64_t most_rows) {
  std::vector<PrefillPrediction> all = {PredictPrefill(pipeline, prompt_tokens, most_rows, kEnough)};
  double least = all[0].ttft_s;
  for (int64_t chunk = kSmallestChunk; chunk < std::min(most_rows, 2 * prompt_tokens); chunk *= 2) {
    all.push_back(PredictPrefill(pipeline, prompt_tokens, chunk, kEnough));
    least = std::min(least, all.back().ttft_s);
  }
  PrefillPrediction best;
  for (const PrefillPrediction& prediction : all) {
    if (prediction.ttft_s <= least * (1 + kChunkMargin) && prediction.chunk > best.chunk) best = prediction;
  }
  return best;
}

}  // namespace stagecoach
