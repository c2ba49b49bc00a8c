#ifndef STAGECOACH_COORDINATOR_LAUNCH_SLURM_H_
#define STAGECOACH_COORDINATOR_LAUNCH_SLURM_H_

// Ranks started by srun inside a Slurm allocation; Open MPI's ranks find each other by Slurm's PMIx.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/launch/host_file.h"
#include "coordinator/launch/launcher_backend.h"

namespace stagecoach {

struct SlurmOptions {
  std::string srun;                    // absolute path
  std::vector<std::string> arguments;  // the user's
  std::string networks;                // as in OpenMpiOptions
};

std::unique_ptr<const LauncherBackend> MakeSlurm(SlurmOptions options);

// argv that runs a command on a node of this allocation.
std::vector<std::string> SrunCommand(const std::string& srun, const std::string& host,
                                     const std::vector<std::string>& command);

// Whether this process lives inside an allocation: SLURM_JOB_ID is set.
bool InSlurmAllocation();

// Whether this srun offers PMIx.
bool OffersPmix(const std::string& srun);

// The nodes of the allocation, each with as many slots as tasks were asked for there, else one. One of this node alone
// is "localhost" with its tasks; nothing where none were asked for. kFailedPrecondition when Slurm cannot say.
absl::StatusOr<std::vector<HostSlots>> HostsOfAllocation();

// Slurm's form for numbers of each node, "2(x3),1". kInvalidArgument for anything else.
absl::StatusOr<std::vector<int>> ParseTasksPerNode(absl::string_view text);

// What srun says of its own: lines beginning with "srun:" or "slurmstepd:".
class SlurmWords : public LauncherWords {
 public:
  bool Take(const std::string& line) override;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_SLURM_H_
