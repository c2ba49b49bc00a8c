#ifndef STAGECOACH_TESTS_TESTING_PROCESS_TREE_H_
#define STAGECOACH_TESTS_TESTING_PROCESS_TREE_H_

// The processes of one job among all of a machine, by their ancestry: a test only ever signals what it started.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach::testing {

struct ProcessInfo {
  pid_t pid = 0;
  std::string command;  // the whole command line, words separated by blanks
};

// All living descendants of `root` (zombies excluded), children before grandchildren: a grandchild's id is the smaller
// one where the kernel has begun anew with its ids. The session of a launched job keeps its ancestry while the front
// lives.
std::vector<ProcessInfo> Descendants(pid_t root);

// The descendants whose command line contains `text`.
std::vector<ProcessInfo> DescendantsNamed(pid_t root, const std::string& text);

// Waits until at least `count` such descendants exist; fewer when the time is over.
std::vector<ProcessInfo> AwaitDescendants(pid_t root, const std::string& text, size_t count, double timeout_s);

bool IsAlive(pid_t pid);  // exists and is no zombie

// Resident bytes of a process by /proc/<pid>/status (VmRSS); 0 when it is gone.
uint64_t ResidentBytesOf(pid_t pid);
// The most it ever had (VmHWM).
uint64_t PeakResidentBytesOf(pid_t pid);

// What the scheduler has counted for all threads of a process since they began; 0 when it is gone.
struct SchedulingCounts {
  double cpu_s = 0;     // on a processor, counted in nanoseconds
  uint64_t sleeps = 0;  // a thread left its processor to wait; yielding and being interrupted are not counted
};
SchedulingCounts SchedulingCountsOf(pid_t pid);

// The private directories of the job that `root` launched, as its launch line names them. Empty when there is no
// launcher now.
std::vector<std::string> JobDirectories(pid_t root);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_PROCESS_TREE_H_
