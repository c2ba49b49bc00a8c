#ifndef STAGECOACH_COMMON_HOST_HOST_INFO_H_
#define STAGECOACH_COMMON_HOST_HOST_INFO_H_

// What this process may use of its host: CPUs and memory, within the limits of its control groups (versions 1 and 2).
// Read from the kernel at each call; what is unreadable counts as no limit. Thread-safe.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach {

inline constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// This process's own limit of a RLIMIT_... resource; kUnlimited without one.
uint64_t ResourceLimit(int resource);

// The CPUs that the calling thread's affinity allows, ascending. Never empty.
std::vector<int> AllowedCpus();

// Threads that can compute at once: the allowed CPUs, or a smaller CPU quota of a control group, rounded down, at least
// 1.
int AllowedCores();

// Memory available without swapping: MemAvailable, or less if a control group's limit or this process's address-space
// limit leaves less. The group's file pages count as available, because the kernel reclaims them.
uint64_t AvailableMemoryBytes();

// Memory of the host, whatever limits there are.
uint64_t TotalMemoryBytes();

// The kernel's setting for huge pages of anonymous memory: "always", "madvise" or "never"; empty if unknown.
std::string HugePageSetting();

// Free space in /dev/shm; 0 where there is none.
uint64_t FreeSharedMemoryBytes();

// Processes and threads that this user may still start, by its own limit (which does not bind root) and those of the
// control groups; kUnlimited without one.
uint64_t TasksLeft();

// Whether a thread may be bound to one of the CPUs; tries it with a new thread.
bool CanBindThreads();

// Runnable threads of the host, averaged over the last minute; negative where it is not known.
double LoadAverage();

// Resident memory of this process.
uint64_t ResidentBytes();

std::string HostName();

// What the kernel calls the processors; "unknown" where it does not say.
std::string ProcessorName();

// For tests: the same limits below another root directory, which holds proc/ and the mounted control groups. The quota
// is in cores, infinity if there is none; the others kUnlimited.
double CgroupCpuQuota(const std::string& root);
uint64_t CgroupAvailableMemoryBytes(const std::string& root);
uint64_t CgroupTasksLeft(const std::string& root);

// Each rank's file for messages in /dev/shm: 4 MiB and some bytes, sparse at first. If they do not fit, Open MPI
// refuses to start, or ranks end later by SIGBUS.
inline constexpr uint64_t kSharedMemoryPerRank = 5ull << 20;

struct FileSystemRoom {
  uint64_t free_bytes = kUnlimited;
  uint64_t total_bytes = kUnlimited;
  bool takes_files = true;  // it has room for another file, and we may write there
  friend bool operator==(const FileSystemRoom&, const FileSystemRoom&) = default;
};

// What a host limits. With too little of it, MPI's ranks hang or report another cause. The defaults limit nothing.
struct HostLimits {
  std::string temporary_directory;
  FileSystemRoom temporary;
  bool has_shared_memory = true;  // /dev/shm is there and takes files; otherwise ranks meet in the temporary directory
  FileSystemRoom shared_memory;
  uint64_t open_files = kUnlimited;     // of one process
  uint64_t file_bytes = kUnlimited;     // of one file
  uint64_t address_bytes = kUnlimited;  // of one process
  uint64_t tasks_left = kUnlimited;     // processes and threads that may still be started
  friend bool operator==(const HostLimits&, const HostLimits&) = default;
};

// Of this process on this host.
HostLimits ReadHostLimits(const std::string& temporary_directory);

struct RanksOnHost {
  int ranks = 1;              // the coordinator's among them
  int compute_threads = 1;    // of all of them
  bool own_directory = true;  // TMPDIR chooses the temporary directory
};

// What these ranks lack, a sentence each: what there is, what is needed, and after the last "; " what to do. Empty:
// they can start.
std::vector<std::string> ShortagesFor(const RanksOnHost& ranks, const HostLimits& limits);

// Whoever starts Open MPI sets this variable, unless the user has: mpirun and every rank read the topology with all
// components of hwloc. It excludes the one that looks for graphics cards on ten X displays (seconds with a slow
// resolver) and the two that read PCI devices (in a virtual machine half of the kernel's start-up time). Only
// libfabric's providers use their findings.
inline constexpr char kHwlocComponentsVariable[] = "HWLOC_COMPONENTS";
inline constexpr char kHwlocComponents[] = "-gl,-pci,-linuxio";

// A hardware thread.
struct CpuPlace {
  int cpu = 0;   // the kernel's number
  int core = 0;  // threads of one physical core have the same number, others another
  int node = 0;  // of NUMA memory: where what it touches first comes to lie
  friend bool operator==(const CpuPlace&, const CpuPlace&) = default;
};

// The CPUs that the calling thread's affinity allows, ordered by NUMA node, shared cache and core. If the topology
// cannot be read: one thread a core, one node. Never empty. Takes milliseconds. Thread-safe.
std::vector<CpuPlace> AllowedCpuPlaces();

// The same of a made-up machine in hwloc's words, such as "numa:2 core:4 pu:2"; for tests.
absl::StatusOr<std::vector<CpuPlace>> SyntheticCpuPlaces(const std::string& machine, const std::vector<int>& allowed);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_HOST_HOST_INFO_H_
