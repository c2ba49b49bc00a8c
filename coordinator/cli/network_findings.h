#ifndef STAGECOACH_COORDINATOR_CLI_NETWORK_FINDINGS_H_
#define STAGECOACH_COORDINATOR_CLI_NETWORK_FINDINGS_H_

// What `coordinator doctor` finds of the network between hosts.

#include <string>
#include <vector>

#include "coordinator/cli/findings.h"
#include "coordinator/launch/network_trial.h"

namespace stagecoach {

// By which interface each host is reached, what Open MPI is told of it, and who cannot reach whom: an error where the
// others have too few slots for the stages, and the host is not a spare one. `own_networks`: what the user has set
// instead (LauncherBackend::OwnNetworks).
Findings FindingsOfNetwork(const TriedHosts& tried, const std::string& own_networks,
                           const std::vector<LaunchHost>& hosts, int stages);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_NETWORK_FINDINGS_H_
