#ifndef STAGECOACH_COMMON_HOST_HOST_INFO_H_
#define STAGECOACH_COMMON_HOST_HOST_INFO_H_

// What this process may use of its host: CPUs and memory, with the limits of its control groups (versions 1 and 2)
// respected. Read from the kernel at each call; anything unreadable counts as no limit. Thread-safe.

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

// The file that each rank exchanges messages by in /dev/shm: 4 MiB and some bytes, sparse at first. Open MPI refuses to
// start, or ranks end by SIGBUS later, where they do not fit.
inline constexpr uint64_t kSharedMemoryPerRank = 5ull << 20;

struct FileSystemRoom {
  uint64_t free_bytes = kUnlimited;
  uint64_t total_bytes = kUnlimited;
  bool takes_files = true;  // it has room for another file, and we may write there
  friend bool operator==(const FileSystemRoom&, const FileSystemRoom&) = default;
};

// What a host limits, and below what MPI's ranks do not start: MPI then hangs or reports another cause. The defaults
// limit nothing.
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

// What is not enough for these ranks, a sentence each: what there is, what is needed, and behind the last "; " what to
// do. Empty: they can start.
std::vector<std::string> ShortagesFor(const RanksOnHost& ranks, const HostLimits& limits);

// Open MPI reads the topology too, in mpirun and in every rank's MPI_Init, with all components of hwloc. Whoever starts
// Open MPI sets this variable, unless the user has. It leaves out the component that looks for graphics cards on ten X
// displays (where the resolver is slow, that takes seconds) and the two that read PCI devices (in a virtual machine,
// half of the kernel's time in a start). Only libfabric's providers use what these find, to choose the nearest device.
inline constexpr char kHwlocComponentsVariable[] = "HWLOC_COMPONENTS";
inline constexpr char kHwlocComponents[] = "-gl,-pci,-linuxio";

// A hardware thread.
struct CpuPlace {
  int cpu = 0;   // the kernel's number
  int core = 0;  // threads of one physical core have the same number, others another
  int node = 0;  // of NUMA memory: where what it touches first comes to lie
  friend bool operator==(const CpuPlace&, const CpuPlace&) = default;
};

// The CPUs that the calling thread's affinity allows, near ones side by side: by NUMA node, shared cache and core. A
// host whose topology cannot be read has one thread a core and one node. Never empty. Takes milliseconds. Thread-safe.
std::vector<CpuPlace> AllowedCpuPlaces();

// The same of a made-up machine in hwloc's words, such as "numa:2 core:4 pu:2"; for tests.
absl::StatusOr<std::vector<CpuPlace>> SyntheticCpuPlaces(const std::string& machine, const std::vector<int>& allowed);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_HOST_HOST_INFO_H_
