#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_BACKEND_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_BACKEND_H_

// The two launchers, mpirun of Open MPI 4.1 and srun of Slurm: command line, variables, output, and how they reach
// other hosts. The ranks are Open MPI's with both; under srun they find each other by Slurm's PMIx.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/launch/launcher_output.h"
#include "coordinator/launch/placement.h"

namespace stagecoach {

// The programs of the ranks, the same paths on every host.
struct JobPrograms {
  std::string coordinator;
  std::string stage_worker;
};

// The directories of one launch. Their name ("stagecoach.AbC123") is in the command line or environment of every
// process of the job, the launcher's own on other hosts included.
struct LaunchPlaces {
  std::string directory;         // private; the socket and, on this host, the launcher's session files
  std::string shared_directory;  // private, in shared memory: MPI's segments; each host makes its own at this path
  std::string name() const { return directory.substr(directory.rfind('/') + 1); }
  std::string socket() const { return directory + "/engine.sock"; }
};

struct LauncherSetup {
  std::string program;                      // the launcher's absolute path
  std::vector<std::string> arguments = {};  // the user's, put before the programs
  std::string networks = {};                // towards the other hosts, for the TCP transports; empty: Open MPI chooses
  // Of mpirun: how it logs in to a host; empty: by the user's setting of Open MPI, else by ssh.
  std::string rsh_agent = {};
  std::string srun = {};  // of mpirun inside a Slurm allocation, where it reaches the nodes by it; else empty
};

// MCA parameters: Open MPI's settings.
using McaSettings = std::vector<std::pair<std::string, std::string>>;

// Thread-safe, immutable.
class LauncherBackend {
 public:
  explicit LauncherBackend(LauncherSetup setup) : setup_(std::move(setup)) {}
  virtual ~LauncherBackend() = default;

  virtual const char* name() const = 0;  // "mpirun", for messages

  // argv of one launch. Settings that the user's own arguments make replace ours. Rank 0 comes to lie on this host.
  virtual std::vector<std::string> Arguments(const JobPrograms& programs, const Placement& placement,
                                             const LaunchPlaces& places) const = 0;

  // Adds to the launcher's environment, which has no variables of an outer job. WriteFiles writes the files it names.
  virtual void SetEnvironment(const Placement& placement, const LaunchPlaces& places,
                              std::vector<std::string>* environment) const = 0;

  // Writes the launcher's input files into the private directory. Errors are the system's.
  virtual absl::Status WriteFiles(const Placement& placement, const LaunchPlaces& places) const = 0;

  // Whether the ranks on this host belong to the launcher's session and end with it; else the launch's name finds them.
  virtual bool RanksInItsSession() const = 0;

  // argv that runs a command on another host and passes on its output and exit.
  virtual std::vector<std::string> RemoteCommand(const std::string& host,
                                                 const std::vector<std::string>& command) const = 0;

  // The user's settings of networks or ports ("btl_tcp_if_include=ib0"): TCP is not tried beforehand then. Else empty.
  std::string OwnNetworks() const;

  // A reader of what one launch prints.
  virtual std::unique_ptr<LauncherParser> MakeParser() const = 0;

 protected:
  // The user's value of an MCA parameter, or empty.
  virtual std::string Setting(const std::string& name) const = 0;

  McaSettings RankSettings(const Placement& placement, const LaunchPlaces& places) const;
  Networks NetworksOf(const Placement& placement) const;
  // Drops settings that choose interfaces if the user has one: Open MPI refuses an inclusion with an exclusion.
  McaSettings WithoutUserConflicts(McaSettings settings) const;

  const LauncherSetup setup_;
};

std::unique_ptr<const LauncherBackend> MakeOpenMpi(LauncherSetup setup);
std::unique_ptr<const LauncherBackend> MakeSlurm(LauncherSetup setup);

// Makes a TCP layer use these networks: "btl_tcp", for MPI's messages, or "oob_tcp", for the launcher's.
McaSettings NetworkSettings(const std::string& layer, const Networks& networks);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_BACKEND_H_
