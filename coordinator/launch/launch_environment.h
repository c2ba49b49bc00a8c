#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_ENVIRONMENT_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_ENVIRONMENT_H_

#include <string>
#include <vector>

namespace stagecoach {

// The environment a launcher gets, from ours ("NAME=value"): without what the launcher of an outer job set (OMPI_*,
// PMIX_*, PMI_*, OPAL_*, ORTE_*, PRTE_*), but with the user's OMPI_MCA_* settings. Those that a launcher gives its
// ranks, to be told apart only by name, go too when there is an outer job. kHwlocComponentsVariable is added where the
// user has not set it, and HOME where neither a variable nor the list of users says it.
std::vector<std::string> LaunchEnvironment(const std::vector<std::string>& ours);

// The settings of Open MPI among them that a launcher gets: OMPI_MCA_*.
std::vector<std::string> UsersMpiSettings(const std::vector<std::string>& ours);

// The variables of this process.
std::vector<std::string> OwnEnvironment();

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_ENVIRONMENT_H_
