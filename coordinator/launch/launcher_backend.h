#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_BACKEND_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_BACKEND_H_

// The programs that start the ranks of a job, mpirun of Open MPI 4.1 and srun of Slurm, with all that is their own:
// command line, variables, words, and how they reach another host. The ranks are Open MPI's with both; under srun they
// find each other by Slurm's PMIx.

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

// The places of one launch. All hosts know them by one name ("stagecoach.AbC123"), which every process of the job, and
// the launcher's own on other hosts, has on its command line or in its environment.
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

  // Changes the environment that the launcher is started with, which has no variable of an outer job any more. Files
  // that it names are written by WriteFiles.
  virtual void SetEnvironment(const Placement& placement, const LaunchPlaces& places,
                              std::vector<std::string>* environment) const = 0;

  // What the launcher reads beside its arguments, into the private directory. Errors are the system's.
  virtual absl::Status WriteFiles(const Placement& placement, const LaunchPlaces& places) const = 0;

  // Whether the ranks on this host are processes of the launcher's session, so that they end with it. Others have to be
  // found by the launch's name.
  virtual bool RanksAreOfItsSession() const = 0;

  // argv that runs a command on another host and passes on what it prints and how it ends.
  virtual std::vector<std::string> RemoteCommand(const std::string& host,
                                                 const std::vector<std::string>& command) const = 0;

  // What the user has set of the networks or ports that ranks use ("btl_tcp_if_include=ib0"): nothing is tried
  // beforehand then. Empty: nothing.
  std::string OwnNetworks() const;

  // A reader of what one launch prints.
  virtual std::unique_ptr<LauncherWords> Words() const = 0;

 protected:
  // What the user has set an MCA parameter to; empty: nothing.
  virtual std::string Setting(const std::string& name) const = 0;

  // What the ranks of a placement run with.
  McaSettings RankSettings(const Placement& placement, const LaunchPlaces& places) const;
  Networks NetworksOf(const Placement& placement) const;
  // Without settings that choose interfaces, where the user makes one of these: Open MPI refuses an exclusion beside an
  // inclusion.
  McaSettings BesideTheUsers(McaSettings settings) const;

  const LauncherSetup setup_;
};

std::unique_ptr<const LauncherBackend> MakeOpenMpi(LauncherSetup setup);
std::unique_ptr<const LauncherBackend> MakeSlurm(LauncherSetup setup);

// By which one of the two layers that use TCP takes these networks: "btl_tcp", for MPI's messages, or "oob_tcp", for
// the launcher's.
McaSettings NetworkSettings(const std::string& layer, const Networks& networks);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_BACKEND_H_
