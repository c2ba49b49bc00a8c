#ifndef STAGECOACH_COMMON_HOST_PRIVATE_DIR_H_
#define STAGECOACH_COMMON_HOST_PRIVATE_DIR_H_

// The directories of one job that nobody else may look into: its socket, MPI's session files, MPI's shared memory. They
// have one name on every host. Whoever survives removes them: the front, the guard of the launch, the engine, or
// whoever clears a host. Thread-safe.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Makes <parent>/stagecoach.XXXXXX with mode 0700. kFailedPrecondition names the parent and the system's reason.
absl::StatusOr<std::string> MakePrivateDirectory(const std::string& parent);

// The same under a name of before, in another place or on another host; one of ours that is there already is taken.
// kFailedPrecondition also for a path that is not named like ours, or is another user's.
absl::Status MakePrivateDirectoryAt(const std::string& path);

// "stagecoach." and six letters or digits: the last component of every such path.
bool IsPrivateName(absl::string_view name);
// Whether a path is named like one MakePrivateDirectory made: absolute, no "..", last component a private name.
bool IsPrivateDirectoryName(const std::string& path);

// Removes each directory with all it holds; never follows a symbolic link. Leaves alone what is not named like ours, is
// no directory, or is another user's; what is gone already is fine.
void RemovePrivateDirectories(const std::vector<std::string>& directories);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_HOST_PRIVATE_DIR_H_
