#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SIM_SIM_CLUSTER_TESTING_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SIM_SIM_CLUSTER_TESTING_H_

// Clusters whose steps cost what is easily reckoned: a layer of every stage takes a millisecond to read, and nothing
// for its rows.

#include <deque>
#include <vector>

#include "coordinator/sim/simulation.h"

namespace stagecoach {

struct TestCluster {
  ModelParts parts;
  HostFacts host;  // all hosts are alike
  std::deque<StageCosts> costs;
  SimCluster sim;

  // `host_of`: of each stage. `layers`: of each stage; of one layer all over where empty.
  explicit TestCluster(const std::vector<int>& host_of, std::vector<int> layers = {}) {
    if (layers.empty()) layers.assign(host_of.size(), 1);
    int64_t all = 0;
    for (const int count : layers) all += count;
    parts.hidden = 1000;
    parts.layers.assign(static_cast<size_t>(all), {.bytes_kept = 1e6});
    host.name = "h";
    host.cores = 1;
    host.speeds = {{.stages = 1, .threads = 1, .read_gbps = 1, .int8_gops = 1e6, .f32_gops = 1e6}};
    sim.pipeline.row_bytes = 4000;
    int64_t layer = 0;
    for (size_t s = 0; s < host_of.size(); ++s) {
      costs.emplace_back(&host, 1, &parts, nullptr);
      PipelineStage& stage = sim.pipeline.stages.emplace_back();
      stage.costs = &costs.back();
      stage.layers = {layer, layer + layers[s]};
      layer += layers[s];
      stage.host = host_of[s];
      stage.host_stages = static_cast<int>(std::count(host_of.begin(), host_of.end(), host_of[s]));
      stage.link = {.latency_s = 0, .bytes_per_s = 1e12};
    }
  }
  static TestCluster OfOwnHosts(int stages) {
    std::vector<int> hosts;
    for (int s = 0; s < stages; ++s) hosts.push_back(s);
    return TestCluster(hosts);
  }
  TestCluster(const TestCluster&) = delete;
};

// `requests` of one shape, all there at once, on a scheduler with room for `sequences` of them.
inline SimOptions RunOf(const TestCluster& cluster, int64_t requests, int64_t prompt, int64_t output, int sequences) {
  SimOptions options;
  options.cluster = cluster.sim;
  options.scheduler.max_num_seqs = sequences;
  options.scheduler.policy = Policy::kInterleaved;
  options.scheduler.prefix_caching = false;
  options.scheduler.context = 2048;
  options.scheduler.max_open_tokens = 16384;
  options.scheduler.group_blocks = {sequences * 64};
  options.scheduler.micro_batches = cluster.sim.pipeline.size();
  options.vocab = 1000;
  options.requests.assign(static_cast<size_t>(requests), {0, prompt, output});
  return options;
}

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SIM_SIM_CLUSTER_TESTING_H_
