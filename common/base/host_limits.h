#ifndef STAGECOACH_COMMON_BASE_HOST_LIMITS_H_
#define STAGECOACH_COMMON_BASE_HOST_LIMITS_H_

// A host's limits on space, open files, processes and address space, and the least that MPI's ranks need to start.
// Below that, MPI hangs or reports another cause. Thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/host_info.h"

namespace stagecoach {

// The file that each rank exchanges messages by in /dev/shm: 4 MiB and some bytes, sparse at first. Open MPI refuses to
// start, or ranks end by SIGBUS later, where they do not fit.
inline constexpr uint64_t kSharedMemoryPerRank = 5ull << 20;

struct FileSystemRoom {
  uint64_t free_bytes = kUnlimited;
  uint64_t total_bytes = kUnlimited;
  bool takes_files = true;  // it has room for another file, and we may write there
  friend bool operator==(const FileSystemRoom&, const FileSystemRoom&) = default;
};

// The defaults limit nothing.
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

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_HOST_LIMITS_H_
