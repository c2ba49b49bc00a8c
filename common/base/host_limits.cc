#include "common/base/host_limits.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/host_info.h"

namespace stagecoach {
namespace {

constexpr char kSharedMemory[] = "/dev/shm";

// Measured with Open MPI 4.1.4. With less, mpirun hangs in four of five cases.
constexpr uint64_t kTemporaryBytes = 10ull << 20;  // PMIx's files: 8.3 MiB with three ranks
constexpr uint64_t kFileBytes = 5ull << 20;        // its largest and the ranks' segments: 4 MiB and some bytes
// mpirun: 40 were enough for 3 ranks, 60 for 8.
constexpr uint64_t kOpenFiles = 40;
constexpr uint64_t kOpenFilesPerRank = 4;
// mpirun and the guard of the launch, and each rank beside its compute threads: 18 were enough for 3 ranks.
constexpr uint64_t kTasks = 8;
constexpr uint64_t kTasksPerRank = 5;
constexpr uint64_t kAddressBytes = 1ull << 30;  // a rank before it has a model

std::string InMib(uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

FileSystemRoom RoomOf(const char* directory) {
  struct statvfs info;
  if (statvfs(directory, &info) != 0) return {.free_bytes = 0, .total_bytes = 0, .takes_files = false};
  FileSystemRoom room;
  room.free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
  room.total_bytes = uint64_t{info.f_blocks} * info.f_frsize;
  // Some file systems count no files.
  room.takes_files = access(directory, W_OK | X_OK) == 0 && (info.f_files == 0 || info.f_favail > 0);
  return room;
}

void CheckDirectories(const RanksOnHost& ranks, const HostLimits& limits, std::vector<std::string>* out) {
  const uint64_t segments = kSharedMemoryPerRank * static_cast<uint64_t>(ranks.ranks);
  const std::string count = absl::StrCat(ranks.ranks, ranks.ranks == 1 ? " rank" : " ranks");
  if (limits.has_shared_memory && limits.shared_memory.free_bytes < segments) {
    out->push_back(absl::StrCat(kSharedMemory, " has ", InMib(limits.shared_memory.free_bytes), " free of ",
                                InMib(limits.shared_memory.total_bytes), ", and ", count, " exchange messages by ",
                                InMib(segments),
                                " there; remove what fills it, or give the container more (docker run --shm-size=1g)"));
  }
  const uint64_t needed = kTemporaryBytes + (limits.has_shared_memory ? 0 : segments);
  const char* elsewhere = ranks.own_directory ? ", or set TMPDIR to a directory with more" : "";
  if (!limits.temporary.takes_files) {
    out->push_back(absl::StrCat("no file can be made in the directory for temporary files, '",
                                limits.temporary_directory,
                                "': it is not there, not ours to write, or full; repair that", elsewhere));
  } else if (limits.temporary.free_bytes < needed) {
    out->push_back(absl::StrCat("the directory for temporary files, '", limits.temporary_directory, "', has ",
                                InMib(limits.temporary.free_bytes), " free, and a launch needs ", InMib(needed),
                                "; make room there", elsewhere));
  }
}

}  // namespace

HostLimits ReadHostLimits(const std::string& temporary_directory) {
  HostLimits limits;
  limits.temporary_directory = temporary_directory;
  limits.temporary = RoomOf(temporary_directory.c_str());
  limits.shared_memory = RoomOf(kSharedMemory);
  limits.has_shared_memory = limits.shared_memory.takes_files;
  limits.open_files = ResourceLimit(RLIMIT_NOFILE);
  limits.file_bytes = ResourceLimit(RLIMIT_FSIZE);
  limits.address_bytes = ResourceLimit(RLIMIT_AS);
  limits.tasks_left = TasksLeft();
  return limits;
}

std::vector<std::string> ShortagesFor(const RanksOnHost& ranks, const HostLimits& limits) {
  std::vector<std::string> shortages;
  const auto too_few = [&](uint64_t found, uint64_t needed, const std::string& text) {
    if (found < needed) shortages.push_back(text);
  };
  CheckDirectories(ranks, limits, &shortages);
  const uint64_t count = static_cast<uint64_t>(ranks.ranks);
  const uint64_t files = kOpenFiles + kOpenFilesPerRank * count;
  too_few(limits.open_files, files,
          absl::StrCat("a process may have ", limits.open_files, " files open (ulimit -n), and the launcher of ", count,
                       count == 1 ? " rank" : " ranks", " needs ", files, "; raise the limit: ulimit -n 1024"));
  too_few(limits.file_bytes, kFileBytes,
          absl::StrCat("a file may have ", limits.file_bytes >> 10, " KiB (ulimit -f), and MPI makes files of ",
                       InMib(kFileBytes), "; lift the limit: ulimit -f unlimited"));
  too_few(limits.address_bytes, kAddressBytes,
          absl::StrCat("a process may have ", InMib(limits.address_bytes),
                       " of address space (ulimit -v), and a rank needs ", InMib(kAddressBytes),
                       " before it has a model; lift the limit: ulimit -v unlimited"));
  const uint64_t tasks = kTasks + kTasksPerRank * count + static_cast<uint64_t>(ranks.compute_threads);
  too_few(limits.tasks_left, tasks,
          absl::StrCat("this user may start ", limits.tasks_left,
                       " more processes and threads (ulimit -u, or the container's limit of pids), and ", count,
                       count == 1 ? " rank with " : " ranks with ", ranks.compute_threads, " compute threads need ",
                       tasks, "; raise the limit, or end other processes"));
  return shortages;
}

}  // namespace stagecoach
