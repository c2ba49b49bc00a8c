#ifndef STAGECOACH_COORDINATOR_LAUNCH_HOSTS_ALLOCATION_H_
#define STAGECOACH_COORDINATOR_LAUNCH_HOSTS_ALLOCATION_H_

// The hosts that a batch system or the site gives to whatever runs here, by a variable:
//
//   SLURM_JOB_ID                         an allocation of Slurm, which is asked for its nodes
//   PBS_NODEFILE, LSB_DJOB_HOSTFILE      a file of a host a line, once for each slot (PBS and Torque, LSF)
//   PE_HOSTFILE                          a file of "host slots ..." a line (Grid Engine)
//   OMPI_MCA_orte_default_hostfile       a host file of Open MPI, as an operator of Kubernetes sets it

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/launch/hosts/host_file.h"

namespace stagecoach {

struct AllocatedHosts {
  std::string source;            // for messages: "PBS_NODEFILE '/var/spool/pbs/aux/7'"
  std::vector<HostSlots> hosts;  // empty: this one alone
};

// By the first of these that is set. A node of Slurm has as many slots as tasks were asked for there, else one; one of
// this node alone is "localhost" with its tasks, none where none were asked for. kFailedPrecondition, saying which
// variable to unset where the job is over: Slurm or the file does not tell, or this host is not in Slurm's allocation.
absl::StatusOr<AllocatedHosts> HostsOfAllocation();

// Whether this process lives inside an allocation of Slurm.
bool InSlurmAllocation();
// Whether this srun offers PMIx, which Open MPI's ranks find each other by.
bool OffersPmix(const std::string& srun);

// What a variable of a batch system says of where this is, "a PBS job"; empty for any other.
absl::string_view AllocationNamedBy(absl::string_view variable);

// Lines of a host and, where `has_slots`, its slots, else once for each slot; hosts in the order of their first line.
// kInvalidArgument for what is neither.
absl::StatusOr<std::vector<HostSlots>> ParseAllocation(absl::string_view text, bool has_slots);

// Slurm's form for numbers of each node, "2(x3),1". kInvalidArgument for anything else.
absl::StatusOr<std::vector<int>> ParseTasksPerNode(absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_HOSTS_ALLOCATION_H_
