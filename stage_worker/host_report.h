#ifndef STAGECOACH_STAGE_WORKER_HOST_REPORT_H_
#define STAGECOACH_STAGE_WORKER_HOST_REPORT_H_

// `stage_worker --host-report [--clear NAME]... [--model FILE] [--network SECONDS]`: what a front asks of another host
// before it starts ranks there (coordinator/launch/host_survey.h).

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/control.pb.h"
#include "stage_worker/network_agent.h"

namespace stagecoach {

// Clears this host of the launches of these names (stagecoach.AbC123), then says what it is and has, as one line of
// text; and whether it can read the model. With --network `network` listens, and is to serve when the line is printed;
// nullptr refuses that.
// `arguments`: those after --host-report. kInvalidArgument for anything else than --clear NAME, --look NAME (whose
// stopped processes are then in the report), --model with an absolute path and --network SECONDS.
absl::StatusOr<std::string> ReportHost(const std::vector<std::string>& arguments,
                                       std::optional<NetworkAgent>* network = nullptr);

// Ends (SIGKILL) every process of this user that has one of the names on its command line or in its environment: ranks
// of lost jobs, which hold memory, and what had started them; but not the caller's own ancestors, nor who asks for it
// (--host-report on its command line). When all have gone,
// removes the directories of these names in /tmp and in shared memory. Returns what does not go within `most`, such as
// a process that waits for a device.
std::vector<pb::LeftProcess> ClearHost(const std::vector<std::string>& names, absl::Duration most);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_HOST_REPORT_H_
