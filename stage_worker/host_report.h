#ifndef STAGECOACH_STAGE_WORKER_HOST_REPORT_H_
#define STAGECOACH_STAGE_WORKER_HOST_REPORT_H_

// What a front asks of another host, by stage_worker alone.
//   --host-report [--clear NAME]... [--look NAME] [--model FILE] [--network SECONDS]
//     before it starts ranks there (coordinator/launch/hosts/host_survey.h). With --network the host then stays to be
//     tried by TCP, and to try other hosts as the front tells it (coordinator/launch/hosts/network_trial.h).
//   --host-guard NAME COMMAND...
//     the launcher's own process (Open MPI's orted) runs under it, so that a host that the front cannot reach any more
//     cleans itself as soon as that process has noticed and ended.

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

  // Until the front has closed its connections, none came in time, or nobody reads this program's output any more (its
  // login has ended).
  void Serve();

 private:
  const absl::Duration awaits_;
  std::unique_ptr<TrialServer> server_;  // nullptr: it cannot listen
};

// Clears this host of the launches of these names (stagecoach.AbC123), then says what it is and has, as one line of
// text; and whether it can read the model. With --network `network` listens, and is to serve when the line is printed;
// nullptr refuses that.
// `arguments`: those after --host-report. kInvalidArgument for anything else than --clear NAME, --look NAME (whose
// stopped processes are then in the report), --model with an absolute path and --network SECONDS.
absl::StatusOr<std::string> ReportHost(const std::vector<std::string>& arguments,
                                       std::optional<NetworkAgent>* network = nullptr);

// Ends (SIGKILL) every process of this user that has one of the names on its command line or in its environment: ranks
// of lost jobs, which hold memory, and what had started them; but not the caller's own ancestors, nor who asks for it
// (--host-report on its command line). When all have gone, removes the directories of these names in /tmp and in shared
// memory. Returns what does not go within `most`, such as a process that waits for a device.
std::vector<pb::LeftProcess> ClearHost(const std::vector<std::string>& names, absl::Duration most);

// Runs the command with our descriptors, waits for its end, and clears the host of the launch of this name (ClearHost).
// Returns the command's exit code, 127 when it cannot be run, 128 and the signal when one ended it. `arguments`: those
// after --host-guard; 2 when they are no name and a command.
int GuardHost(std::vector<std::string> arguments);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_HOST_REPORT_H_
