#ifndef STAGECOACH_COORDINATOR_LAUNCH_PRIVATE_DIR_H_
#define STAGECOACH_COORDINATOR_LAUNCH_PRIVATE_DIR_H_

// The directories of one job that nobody else may look into: its socket, MPI's session files, MPI's shared memory.
// Whoever survives removes them: the front, the guard of the launch, or the engine. Thread-safe.

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach {

// Makes <parent>/stagecoach.XXXXXX with mode 0700. kFailedPrecondition names the parent and the system's reason.
absl::StatusOr<std::string> MakePrivateDirectory(const std::string& parent);

// Whether a path is named like one MakePrivateDirectory made: absolute, no "..", last component "stagecoach." and six
// characters.
bool IsPrivateDirectoryName(const std::string& path);

// Removes each directory with all it holds; never follows a symbolic link. Leaves alone what is not named like ours, is
// no directory, or is another user's; what is gone already is fine.
void RemovePrivateDirectories(const std::vector<std::string>& directories);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_PRIVATE_DIR_H_
