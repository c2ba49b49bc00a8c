#include "coordinator/plan/assumed_facts.h"

#include <algorithm>

namespace stagecoach {

AssumedRates AssumedRatesOfCore(InstructionSet isa) {
  switch (isa) {
    case InstructionSet::kScalar: return {.int8_gops = 8, .f32_gops = 10};
    case InstructionSet::kAvx2: return {.int8_gops = 120, .f32_gops = 40};
    case InstructionSet::kAvx512: return {.int8_gops = 140, .f32_gops = 75};
    case InstructionSet::kAvx512Bf16: return {.int8_gops = 300, .bf16_gops = 75, .f32_gops = 75};
    case InstructionSet::kAvx512Vnni:
    case InstructionSet::kNeonDotprod:
    case InstructionSet::kNeonI8mm: break;
  }
  return {.int8_gops = 300, .f32_gops = 75};
}

HostFacts AssumedHost(const std::string& name, int cores, uint64_t available_bytes, InstructionSet isa) {
  HostFacts host;
  host.name = name;
  host.cores = cores;
  host.hardware_threads = cores;
  host.memory_bytes = available_bytes;
  host.available_bytes = available_bytes;
  host.isas.push_back(InstructionSetName(isa));
  const AssumedRates core = AssumedRatesOfCore(isa);
  host.speeds.push_back({.stages = 1,
                         .threads = cores,
                         .read_gbps = std::min(kAssumedReadGbpsOfCore * cores, kAssumedReadGbpsOfHost),
                         .int8_gops = core.int8_gops * cores,
                         .bf16_gops = core.bf16_gops * cores,
                         .f32_gops = core.f32_gops * cores});
  return host;
}

LinkFacts AssumedLink() {
  LinkFacts link;
  link.latency_us = kAssumedLinkLatencyUs;
  link.bandwidth_gbit_s = kAssumedLinkGbitS;
  return link;
}

}  // namespace stagecoach
