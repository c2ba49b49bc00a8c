#include "coordinator/sim/sim_network.h"

#include <algorithm>
#include <cmath>

#include "common/base/counter_rng.h"
#include "coordinator/sim/virtual_clock.h"

namespace stagecoach {
namespace {

bool IsBehind(const SimUplink& uplink, int host) {
  return std::find(uplink.hosts.begin(), uplink.hosts.end(), host) != uplink.hosts.end();
}

}  // namespace

SimNetwork::SimNetwork(const PipelineModel* pipeline, const std::vector<SimUplink>& uplinks, uint64_t seed)
    : pipeline_(pipeline), seed_(seed), last_arrival_ns_(pipeline->stages.size(), 0) {
  const std::vector<PipelineStage>& stages = pipeline->stages;
  for (const PipelineStage& stage : stages) {
    way_.push_back({wires_.size()});
    wires_.push_back({stage.link.bytes_per_s});
  }
  for (const SimUplink& uplink : uplinks) {
    const size_t out = wires_.size(), in = out + 1;
    wires_.insert(wires_.end(), 2, {uplink.bytes_per_s});
    for (size_t s = 0; s + 1 < stages.size(); ++s) {
      const bool from = IsBehind(uplink, stages[s].host), to = IsBehind(uplink, stages[s + 1].host);
      if (from != to) way_[s].push_back(from ? out : in);
    }
  }
}

SimNetwork::Delivery SimNetwork::Send(int stage, uint64_t frame, double rows, int64_t ready_ns) {
  const PipelineStage& from = pipeline_->stages[static_cast<size_t>(stage)];
  Delivery delivery{.sent_ns = ready_ns};
  if (stage + 1 < pipeline_->size()) {
    const double bytes = rows * pipeline_->row_bytes;
    int64_t begin_ns = ready_ns;
    double slowest = from.link.bytes_per_s;
    for (const size_t wire : way_[static_cast<size_t>(stage)]) {
      begin_ns = std::max(begin_ns, wires_[wire].free_ns);
      slowest = std::min(slowest, wires_[wire].bytes_per_s);
    }
    for (const size_t wire : way_[static_cast<size_t>(stage)]) {
      wires_[wire].free_ns = begin_ns + NsOf(bytes / wires_[wire].bytes_per_s);
    }
    delivery.sent_ns = begin_ns + NsOf(bytes / slowest);
  }
  double flight_s = from.link.latency_s;
  if (from.link.jitter_s > 0) {
    flight_s -= from.link.jitter_s * std::log1p(-UniformAt(MixBits(seed_) + static_cast<uint64_t>(stage), frame));
  }
  int64_t& last_ns = last_arrival_ns_[static_cast<size_t>(stage)];
  last_ns = delivery.arrives_ns = std::max(last_ns, delivery.sent_ns + NsOf(flight_s));
  return delivery;
}

}  // namespace stagecoach
