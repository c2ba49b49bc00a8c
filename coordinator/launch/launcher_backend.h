#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_BACKEND_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_BACKEND_H_

// One kind of program that starts the ranks of a job, and everything that is its own: its command line, its variables,
// its words, and how it reaches another host. Bodies: open_mpi.h, slurm.h. Thread-safe, immutable.

#include <memory>
#include <string>
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

class LauncherBackend {
 public:
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

  // What the user has set of the networks or ports that ranks use ("btl_tcp_if_include=ib0"): it is taken as it is, and
  // replaces all that we would set. Empty: nothing.
  virtual std::string OwnNetworks() const = 0;

  // A reader of what one launch prints.
  virtual std::unique_ptr<LauncherWords> Words() const = 0;
};

// Sets NAME=value, in place of what was there.
void SetVariable(const std::string& name, const std::string& value, std::vector<std::string>* environment);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCHER_BACKEND_H_
