#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_GUARD_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_GUARD_H_

// The process between the front and the launcher; see launcher.h.

#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {

struct GuardedLaunch {
  std::vector<char*> arguments;    // of the launcher, ending with nullptr
  std::vector<char*> environment;  // likewise
  std::vector<std::string> directories;
  std::vector<std::vector<char*>> clearing;  // what clears the hosts if the front dies, each ending with nullptr
  int output = -1;                           // becomes stdout and stderr of the launcher
  int life = -1;                             // the guard's end of a socket; the front says a byte there unless it dies
};

// The commands that clear other hosts run all at once, and are killed when they take longer: a host that cannot be
// reached now is cleared before it is used again.
inline constexpr int64_t kHostsClearedWithinUs = 10000000;

// Runs in the child of a fork: starts the launcher and never returns. Uses no lock of ours, and of the C library only
// what stays usable after the fork of a process with threads (glibc's allocator does).
[[noreturn]] void RunLaunchGuard(const GuardedLaunch& launch);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_GUARD_H_
