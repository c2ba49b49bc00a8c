#ifndef STAGECOACH_COMMON_BASE_HOST_INFO_H_
#define STAGECOACH_COMMON_BASE_HOST_INFO_H_

// What this process may use of its host: CPUs and memory, with the limits of its control groups (versions 1 and 2)
// respected. Read from the kernel at each call; anything unreadable counts as no limit. Thread-safe.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace stagecoach {

inline constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// This process's own limit of a RLIMIT_... resource; kUnlimited without one.
uint64_t ResourceLimit(int resource);

// The CPUs that the calling thread's affinity allows, ascending. Never empty.
std::vector<int> AllowedCpus();

// How many threads can compute at once: the number of allowed CPUs, or less where a control group's CPU quota is
// smaller (rounded down, at least 1).
int AllowedCores();

// Memory that can be taken without swapping: the kernel's MemAvailable, or less where a control group's limit, or this
// process's own limit of address space, leaves less. File pages of the group count as available, for the kernel gives
// them back under pressure.
uint64_t AvailableMemoryBytes();

// Memory of the host, whatever limits there are.
uint64_t TotalMemoryBytes();

// Which of its choices the kernel made for huge pages of anonymous memory: "always", "madvise" or "never"; empty where
// it does not say.
std::string HugePageSetting();

// Free space in /dev/shm; 0 where there is none.
uint64_t FreeSharedMemoryBytes();

// How many processes and threads this user may still start here, by its own limit (which counts all that it runs, and
// does not bind root) and by those of the control groups; kUnlimited without one.
uint64_t TasksLeft();

// Whether a thread of this process may be bound to one of its CPUs: tries it, with a thread made for that.
bool CanBindThreads();

// Runnable threads of the host, averaged over the last minute; negative where it is not known.
double LoadAverage();

// Resident memory of this process.
uint64_t ResidentBytes();

std::string HostName();

// What the kernel calls the processors; "unknown" where it does not say.
std::string ProcessorName();

// The same limits read below another root directory (which holds proc/ and the mounted control groups); for tests.
// The quota is in cores, infinity when there is none; the others UINT64_MAX.
double CgroupCpuQuota(const std::string& root);
uint64_t CgroupAvailableMemoryBytes(const std::string& root);
uint64_t CgroupTasksLeft(const std::string& root);

// The choice in brackets of a kernel setting such as "always [madvise] never"; empty where none is. For tests.
std::string BracketedChoice(const std::string& line);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_HOST_INFO_H_
