#ifndef STAGECOACH_COORDINATOR_PLAN_PROBE_PLAN_H_
#define STAGECOACH_COORDINATOR_PLAN_PROBE_PLAN_H_

// In which order a probe measures, so that no measurement disturbs another one. Pure.

#include <optional>
#include <string>
#include <vector>

#include "common/wire/bit_class.h"
#include "coordinator/plan/host_profile.h"
#include "proto/probe.pb.h"

namespace stagecoach {

// The stages of one host, ascending.
struct HostStages {
  std::string host;
  std::vector<int> stages;
  friend bool operator==(const HostStages&, const HostStages&) = default;
};

// `hosts`: of each stage. In the order of their first stages.
std::vector<HostStages> GroupByHost(const std::vector<std::string>& hosts);

// The links from a stage to the one behind it, as rounds of first stages. Links of one round are measured at the same
// moment, so no host has a part in two of them. Every link is in one round; a link is in the first round that takes it.
std::vector<std::vector<int>> LinkRounds(const std::vector<std::string>& hosts);

// One measurement of speed on a host: its first `processes` stages at once.
struct SpeedRun {
  int processes = 1;
  int threads = 1;  // of each
  friend bool operator==(const SpeedRun&, const SpeedRun&) = default;
};

// Of a host with so many stages of so many threads, and so many cores: one stage as it is, one with all cores, then 2,
// 4, ... and all of them as they are.
std::vector<SpeedRun> SpeedRuns(int stages, int threads, int cores);

// What was measured, as a profile. `measured_at`: when, in the profile's form. `model`: of the step times, if there are
// any; its layer is taken from the report. `isa`: what the probe was told of instruction sets.
HostProfile ProfileOf(const pb::ProbeReport& report, const std::string& measured_at,
                      const std::optional<ProbedModel>& model, const WantedIsa& isa = {});

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_PROBE_PLAN_H_
