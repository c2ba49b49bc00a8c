#ifndef STAGECOACH_STAGE_WORKER_HOST_GUARD_H_
#define STAGECOACH_STAGE_WORKER_HOST_GUARD_H_

// `stage_worker --host-guard NAME COMMAND...`: on another host than the front's, the launcher's own process (Open MPI's
// orted) runs under it. A host that the front cannot reach any more so cleans itself as soon as that process has
// noticed and ended.

#include <string>
#include <vector>

namespace stagecoach {

// Runs the command with our descriptors, waits for its end, and clears the host of the launch of this name (ClearHost).
// Returns the command's exit code, 127 when it cannot be run, 128 and the signal when one ended it. `arguments`: those
// after --host-guard; 2 when they are no name and a command.
int GuardHost(std::vector<std::string> arguments);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_HOST_GUARD_H_
