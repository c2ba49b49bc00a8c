#ifndef STAGECOACH_STAGE_WORKER_HOST_REPORT_H_
#define STAGECOACH_STAGE_WORKER_HOST_REPORT_H_

// What a front asks of another host, by running stage_worker alone.
//   --host-report [--clear NAME]... [--look NAME] [--model FILE] [--network SECONDS]
//     before ranks are started there (coordinator/launch/hosts/host_survey.h). With --network the host then answers TCP
//     trials, and tries other hosts on the front's orders (coordinator/launch/hosts/network_trial.h).
//   --host-guard NAME COMMAND...
//     runs the launcher's own process (Open MPI's orted), so that a host that the front cannot reach any more cleans up
//     when that process ends.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/tcp_trial.h"
#include "proto/control.pb.h"

namespace stagecoach {

// Not thread-safe.
class NetworkAgent {
 public:
  // However the front ends, and whatever is lost on the way.
  static constexpr absl::Duration kLongestService = absl::Minutes(2);

  // Listens. `awaits`: how long for the front's first connection.
  explicit NetworkAgent(absl::Duration awaits);

  // This host's addresses, and where it listens.
  void Announce(pb::HostReport* report) const;

  // Serves until the front has closed its connections, none came in time, or nobody reads this program's output any
  // more (the login has ended).
  void Serve();

 private:
  const absl::Duration awaits_;
  std::unique_ptr<TrialServer> server_;  // nullptr: it cannot listen
};

// Clears this host of these launches (stagecoach.AbC123) and reports what it is and has, as one line of text, and
// whether it can read the model. With --network, `network` listens, and is to serve once the line is printed; nullptr
// refuses that. `arguments`: those after --host-report: --clear NAME, --look NAME (reports that launch's stopped
// processes), --model with an absolute path, --network SECONDS; anything else is kInvalidArgument.
absl::StatusOr<std::string> ReportHost(const std::vector<std::string>& arguments,
                                       std::optional<NetworkAgent>* network = nullptr);

// Kills every process of this user with one of the names on its command line or in its environment: ranks of lost jobs,
// and what started them; but not the caller's ancestors, nor processes with --host-report on their command line. Then
// removes the directories of these names in /tmp and /dev/shm. Returns processes that do not end within `most`, for
// example because they wait for a device.
std::vector<pb::LeftProcess> ClearHost(const std::vector<std::string>& names, absl::Duration most);

// Runs the command with our descriptors, waits for its end, and clears the host of this launch (ClearHost). Returns the
// command's exit code; 127 if it cannot be run; 128 plus the signal that ended it; 2 for wrong arguments. `arguments`:
// those after --host-guard.
int GuardHost(std::vector<std::string> arguments);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_HOST_REPORT_H_
