#ifndef STAGECOACH_COORDINATOR_CLI_PROBE_TABLES_H_
#define STAGECOACH_COORDINATOR_CLI_PROBE_TABLES_H_

#include <string>

#include "coordinator/plan/host_profile.h"

namespace stagecoach {

// A profile for people: its hosts, their speeds, the links with the clocks, the times of the model's steps.
std::string ProbeTables(const HostProfile& profile);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PROBE_TABLES_H_
