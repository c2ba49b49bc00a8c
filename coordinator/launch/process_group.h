#ifndef STAGECOACH_COORDINATOR_LAUNCH_PROCESS_GROUP_H_
#define STAGECOACH_COORDINATOR_LAUNCH_PROCESS_GROUP_H_

// The processes of one Unix session (setsid), found in /proc. A launch lives in a session of its own, so this is how
// everything it started on this host is seen and ended, whoever its parent is by now. The session's id stays taken as
// long as its leader has not been waited for; callers make sure of that.

#include <sys/types.h>

#include <vector>

namespace stagecoach {

// A descriptor of a process that becomes readable when it ends; -1 with errno set where the process or the kernel's
// support is missing. (The header of Debian 12's C library declares pidfd_open without C linkage.)
int OpenProcess(pid_t pid);

struct SessionProcess {
  pid_t pid = 0;
  char state = '?';  // of /proc/<pid>/stat: 'T' is stopped
  int rank = -1;     // in MPI_COMM_WORLD, from OMPI_COMM_WORLD_RANK; -1: none
};

// All live processes (no zombies) of the session, by ascending pid.
std::vector<SessionProcess> ListSession(pid_t session);

// SIGKILLs every process of the session but `except` (0: none) until none is left, for at most two seconds. `reap`:
// also waits for children of the calling process as they end; only for a process whose children are all the session's.
void KillSession(pid_t session, pid_t except, bool reap);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_PROCESS_GROUP_H_
