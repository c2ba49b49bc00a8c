#ifndef STAGECOACH_COORDINATOR_PLAN_PROBE_PLAN_H_
#define STAGECOACH_COORDINATOR_PLAN_PROBE_PLAN_H_

// The order of a probe's measurements, so that none disturbs another. Pure.

#include <optional>
#include <string>
#include <vector>

#include "common/wire/handshake.h"
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

// The links from each stage to the next, as rounds of first stages. Links of one round are measured at the same time,
// so no host takes part in two of them. Each link is in the first round that admits it.
std::vector<std::vector<int>> LinkRounds(const std::vector<std::string>& hosts);

// One measurement of speed on a host: its first `processes` stages at once.
struct SpeedRun {
  int processes = 1;
  int threads = 1;  // of each
  friend bool operator==(const SpeedRun&, const SpeedRun&) = default;
};

// The measurements of a host with so many stages, threads of each and cores: 1 stage, 1 with all cores, 2, 4, ... all.
std::vector<SpeedRun> SpeedRuns(int stages, int threads, int cores);

// The profile of a report. `measured_at`: in the profile's format. `model`: of the step times, if any; its layer is
// taken from the report. `isa`: the instruction set that the probe was asked for.
HostProfile ProfileOf(const pb::ProbeReport& report, const std::string& measured_at,
                      const std::optional<ProbedModel>& model, const WantedIsa& isa = {});

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_PROBE_PLAN_H_
