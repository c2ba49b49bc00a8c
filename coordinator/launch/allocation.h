#ifndef STAGECOACH_COORDINATOR_LAUNCH_ALLOCATION_H_
#define STAGECOACH_COORDINATOR_LAUNCH_ALLOCATION_H_

// The hosts that a batch system or the site gives to whatever runs here, as files that variables name. Slurm's are in
// slurm.h.
//
//   PBS_NODEFILE, LSB_DJOB_HOSTFILE      a host a line, once for each slot (PBS and Torque, LSF)
//   PE_HOSTFILE                          "host slots ..." a line (Grid Engine)
//   OMPI_MCA_orte_default_hostfile       a host file of Open MPI, as an operator of Kubernetes sets it

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/launch/host_file.h"

namespace stagecoach {

struct AllocatedHosts {
  std::string source;            // for messages: "PBS_NODEFILE '/var/spool/pbs/aux/7'"
  std::vector<HostSlots> hosts;  // empty: none of the variables is set
};

// The first of these that is set. kFailedPrecondition, saying which variable to unset where the job is over, for a file
// that cannot be read or names no host.
absl::StatusOr<AllocatedHosts> HostsOfAllocationFile();

// Lines of a host and, where `has_slots`, its slots, else once for each slot; hosts in the order of their first line.
// kInvalidArgument for what is neither.
absl::StatusOr<std::vector<HostSlots>> ParseAllocation(absl::string_view text, bool has_slots);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_ALLOCATION_H_
