#ifndef STAGECOACH_COMMON_HOST_PRIVATE_DIR_H_
#define STAGECOACH_COMMON_HOST_PRIVATE_DIR_H_

// The private directories of one job: its socket, MPI's session files, MPI's shared memory. They have one name on every
// host. They are removed by whoever survives: the front, the launch guard, the engine, or whoever clears a host.
// Thread-safe.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Makes <parent>/stagecoach.XXXXXX with mode 0700. kFailedPrecondition names the parent and the system's reason.
absl::StatusOr<std::string> MakePrivateDirectory(const std::string& parent);

// The same under a given name; an existing directory of ours is fine. kFailedPrecondition also for a path that is not
// named like ours, or belongs to another user.
absl::Status MakePrivateDirectoryAt(const std::string& path);

// "stagecoach." and six letters or digits: the last component of every such path.
bool IsPrivateName(absl::string_view name);
// Whether a path is named like one MakePrivateDirectory made: absolute, no "..", last component a private name.
bool IsPrivateDirectoryName(const std::string& path);

// Removes each directory and its content; never follows a symbolic link. Skips paths that are not named like ours, are
// no directories, or belong to another user; missing ones are fine.
void RemovePrivateDirectories(const std::vector<std::string>& directories);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_HOST_PRIVATE_DIR_H_
