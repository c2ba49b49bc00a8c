#include "coordinator/sim/sim_network.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/base/counter_rng.h"
#include "coordinator/sim/virtual_clock.h"

namespace stagecoach {
SimNetwork::SimNetwork(const PipelineModel* pipeline, uint64_t seed) : pipeline_(pipeline), seed_(seed) {
  const std::vector<PipelineStage>& stages = pipeline->stages;
  for (const PipelineStage& stage : stages) ways_.push_back({.bytes_per_s = stage.link.bytes_per_s});
  std::vector<std::vector<int>> wires(stages.size());
  for (const SharedWire& shared : pipeline->wires) {
    double most_bytes_per_s = 0;
    for (const int stage : shared.stages) most_bytes_per_s += ways_[static_cast<size_t>(stage)].bytes_per_s;
    if (most_bytes_per_s <= shared.bytes_per_s) continue;
    const int wire = sharing_.AddWire(shared.bytes_per_s);
    for (const int stage : shared.stages) wires[static_cast<size_t>(stage)].push_back(wire);
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    if (!wires[s].empty()) ways_[s].kind = sharing_.AddKind(ways_[s].bytes_per_s, std::move(wires[s]));
  }
}

SimNetwork::Delivery SimNetwork::Send(int stage, uint64_t frame, double rows, int64_t ready_ns) {
  CHECK(!SharesItsWay(stage));
  if (stage + 1 == pipeline_->size()) return FrameSent(stage, frame, ready_ns);
  Way& way = ways_[static_cast<size_t>(stage)];
  way.free_ns = std::max(ready_ns, way.free_ns) + NsOf(rows * pipeline_->row_bytes / way.bytes_per_s);
  return FrameSent(stage, frame, way.free_ns);
}

void SimNetwork::Begin(int stage, double rows, int64_t now_ns) {
  CHECK(SharesItsWay(stage));
  sharing_.Begin(ways_[static_cast<size_t>(stage)].kind, static_cast<uint64_t>(stage), rows * pipeline_->row_bytes,
                 now_ns);
}

std::vector<int> SimNetwork::TakeSent(int64_t now_ns) {
  std::vector<int> stages;
  for (const uint64_t stage : sharing_.TakeEnded(now_ns)) stages.push_back(static_cast<int>(stage));
  return stages;
}

SimNetwork::Delivery SimNetwork::FrameSent(int stage, uint64_t frame, int64_t sent_ns) {
  const StageLink& link = pipeline_->stages[static_cast<size_t>(stage)].link;
  double flight_s = link.latency_s;
  if (link.jitter_s > 0) {
    flight_s -= link.jitter_s * std::log1p(-UniformAt(MixBits(seed_) + static_cast<uint64_t>(stage), frame));
  }
  int64_t& last_ns = ways_[static_cast<size_t>(stage)].last_arrival_ns;
  last_ns = std::max(last_ns, sent_ns + NsOf(flight_s));
  return {.sent_ns = sent_ns, .arrives_ns = last_ns};
}

}  // namespace stagecoach
