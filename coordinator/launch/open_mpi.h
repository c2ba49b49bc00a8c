#ifndef STAGECOACH_COORDINATOR_LAUNCH_OPEN_MPI_H_
#define STAGECOACH_COORDINATOR_LAUNCH_OPEN_MPI_H_

// Ranks started by mpirun of Open MPI 4.1.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/launch/launcher_backend.h"

namespace stagecoach {

struct OpenMpiOptions {
  std::string mpirun;                  // absolute path
  std::vector<std::string> arguments;  // the user's, put before the programs
  std::string rsh_agent;               // how mpirun logs in to a host; empty: the user's setting of Open MPI, else ssh
  std::string srun;                    // inside a Slurm allocation, where mpirun reaches the nodes by it; else empty
  std::string networks;                // towards the other hosts, for the TCP transports; empty: Open MPI chooses
};

// MCA parameters (Open MPI's settings) that the ranks of a job run with.
using McaSettings = std::vector<std::pair<std::string, std::string>>;
// `networks`: as in OpenMpiOptions, for a placement that knows none.
McaSettings RankSettings(const Placement& placement, const LaunchPlaces& places, const std::string& networks);

// Those that make one of the two layers which use TCP use these networks: "btl_tcp", for MPI's messages, or "oob_tcp",
// for the launcher's.
McaSettings NetworkSettings(const std::string& layer, const Networks& networks);

// The settings of networks and ports. Where the user makes one of them, nothing is tried beforehand.
const std::vector<std::string>& NetworkSettingNames();
// Of these, one that chooses interfaces or families of addresses. Where the user makes one of those, we make none: Open
// MPI refuses an exclusion beside an inclusion.
bool ChoosesInterfaces(absl::string_view name);

std::unique_ptr<const LauncherBackend> MakeOpenMpi(OpenMpiOptions options);

// What mpirun says of its own: blocks between lines of dashes, and "[host:pid] ...".
class OpenMpiWords : public LauncherWords {
 public:
  bool Take(const std::string& line) override;

 private:
  void ReadDeath(const std::string& line);

  bool in_block_ = false;
  int exiting_rank_ = -1;  // of the "Process name" line, until its "Exit code"
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_OPEN_MPI_H_
