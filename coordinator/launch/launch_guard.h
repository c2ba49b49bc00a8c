#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_GUARD_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_GUARD_H_

// The process between the front and mpirun; see launcher.h.

#include <string>
#include <vector>

namespace stagecoach {

struct GuardedLaunch {
  std::vector<char*> arguments;    // of mpirun, ending with nullptr
  std::vector<char*> environment;  // likewise
  std::vector<std::string> directories;
  int output = -1;  // becomes stdout and stderr of mpirun
  int life = -1;    // read end of the front's pipe
};

// Runs in the child of a fork: starts mpirun and never returns. Uses no lock of ours, and of the C library only what
// stays usable after the fork of a process with threads (glibc's allocator does).
[[noreturn]] void RunLaunchGuard(const GuardedLaunch& launch);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_GUARD_H_
