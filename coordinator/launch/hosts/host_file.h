#ifndef STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_FILE_H_
#define STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_FILE_H_

// Which hosts a launch has: a file or a list names them, or a batch system gives them.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Open MPI's two ways to name hosts: a file with one host a line, `name slots=N`, where `#` begins a comment; and a
// list on the command line, `name:N,name`. Three words of the file are our own: `spare`, a host that runs stages only
// in place of a lost one; `model=PATH`, where this host has the model file; and `draft`, on one line at most: it runs
// the job's draft and none of the model's stages (`model=` is then where it has the draft's file).
//
// Read as Open MPI 4.1 reads them: `slots = 2`, its other words for slots and max_slots, comments after `//`, CRLF, a
// byte-order mark. Refused, with what to write instead: user@host, username= and port= (settings of the login), IPv6
// addresses (mpirun's list of hosts cannot say them), ^host and +n0, comments between /* and */, UTF-16.
struct HostSlots {
  std::string name;
  int slots = 1;
  bool spare = false;
  std::string model;  // absolute; empty: where the coordinator has it
  bool draft = false;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// The hosts in the file's order. A line without slots= counts one slot (Open MPI would count cores, which depends on
// the machine); a name on several lines keeps its places. max_slots= is accepted and must not be below slots. Errors
// name `file` and the line: kInvalidArgument for anything else on a line, slots outside 1..65536, a path that is not
// absolute, a draft that is spare, has more than one slot or is the second one, or a file without a host for stages
// that is no spare one.
absl::StatusOr<std::vector<HostSlots>> ParseHostFile(absl::string_view file, absl::string_view text);

// Reads and parses. kNotFound when it cannot be read.
absl::StatusOr<std::vector<HostSlots>> ReadHostFile(const std::string& file);

// A list, in its order: `name` is one slot more of that host, `name:N` are N. kInvalidArgument, naming the field
// `hosts` and the part, for what is no host name, a number outside 1..65536, or a list without a host.
absl::StatusOr<std::vector<HostSlots>> ParseHostList(absl::string_view text);

// The hosts of an allocation. The variable that says so:
//   SLURM_JOB_ID                      an allocation of Slurm, which is asked for its nodes
//   PBS_NODEFILE, LSB_DJOB_HOSTFILE   a file of a host a line, once for each slot (PBS and Torque, LSF)
//   PE_HOSTFILE                       a file of "host slots ..." a line (Grid Engine)
//   OMPI_MCA_orte_default_hostfile    a host file of Open MPI, as an operator of Kubernetes sets it
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

#endif  // STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_FILE_H_
