#include "coordinator/plan/assumed_facts.h"

#include <algorithm>

namespace stagecoach {

HostFacts AssumedHost(const std::string& name, int cores, uint64_t available_bytes) {
  HostFacts host;
  host.name = name;
  host.cores = cores;
  host.hardware_threads = cores;
  host.memory_bytes = available_bytes;
  host.available_bytes = available_bytes;
  host.speeds.push_back({.stages = 1,
                         .threads = cores,
                         .read_gbps = std::min(kAssumedReadGbpsOfCore * cores, kAssumedReadGbpsOfHost),
                         .int8_gops = kAssumedInt8GopsOfCore * cores,
                         .bf16_gops = 0,
                         .f32_gops = kAssumedF32GopsOfCore * cores});
  return host;
}

LinkFacts AssumedLink() {
  LinkFacts link;
  link.latency_us = kAssumedLinkLatencyUs;
  link.bandwidth_gbit_s = kAssumedLinkGbitS;
  return link;
}

}  // namespace stagecoach
