#include "common/host/host_info.h"

#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace stagecoach {
namespace {

// The first line of a small file; empty when it cannot be read.
std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// A number alone on its line; kUnlimited for "max", "-1", or an unreadable file.
uint64_t ReadNumber(const std::string& path) {
  uint64_t value;
  return absl::SimpleAtoi(FirstLine(path), &value) ? value : kUnlimited;
}

// The value after `key` in a file of "key value" lines; 0 when absent.
uint64_t ReadKeyed(const std::string& path, absl::string_view key) {
  std::ifstream in(path);
  std::string name, rest;
  uint64_t value;
  while (in >> name && std::getline(in, rest)) {
    const std::vector<std::string> words = absl::StrSplit(rest, ' ', absl::SkipEmpty());
    if (name == key && !words.empty() && absl::SimpleAtoi(words[0], &value)) return value;
  }
  return 0;
}

// The path of this process in a hierarchy: lines "id:controllers:path", where version 2 has no controllers.
bool FindGroupPath(const std::string& root, absl::string_view controller, std::string* path) {
  std::ifstream in(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) != controllers.end()) {
      *path = fields[2];
      return true;
    }
  }
  return false;
}

// Where a hierarchy is mounted, and which of its groups the mount shows as its root. Lines of mountinfo: "id parent
// device root mount-point options.. - type source super-options".
bool FindMount(const std::string& root, absl::string_view controller, std::string* point, std::string* shown) {
  std::ifstream in(root + "/proc/self/mountinfo");
  std::string line;
  while (std::getline(in, line)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const std::vector<std::string> options = absl::StrSplit(dash[3], ',');
    const bool found = controller.empty() ? dash[1] == "cgroup2"
                                          : dash[1] == "cgroup" &&
                                                std::find(options.begin(), options.end(), controller) != options.end();
    if (!found) continue;
    *shown = words[3];
    *point = words[4];
    return true;
  }
  return false;
}

// The directories of this process's group and of its ancestors, innermost first: a limit holds for everything below it.
std::vector<std::string> GroupDirectories(const std::string& root, absl::string_view controller) {
  std::string group, point, shown;
  if (!FindGroupPath(root, controller, &group) || !FindMount(root, controller, &point, &shown)) return {};
  // A container sees its own group as the root of the mount, but its path may still be told from the host's root.
  if (shown != "/" && absl::StartsWith(group, shown)) group = group.substr(shown.size());
  while (!group.empty() && group.back() == '/') group.pop_back();
  std::vector<std::string> directories;
  while (!group.empty()) {
    directories.push_back(root + point + group);
    group.erase(std::min(group.rfind('/'), group.size()));
  }
  directories.push_back(root + point);
  return directories;
}

double QuotaV2(const std::string& directory) {
  const std::vector<std::string> words = absl::StrSplit(FirstLine(directory + "/cpu.max"), ' ');
  double quota, period;
  if (words.size() != 2 || !absl::SimpleAtod(words[0], &quota) || !absl::SimpleAtod(words[1], &period) || period <= 0) {
    return std::numeric_limits<double>::infinity();
  }
  return quota / period;
}

double QuotaV1(const std::string& directory) {
  const uint64_t quota = ReadNumber(directory + "/cpu.cfs_quota_us");
  const uint64_t period = ReadNumber(directory + "/cpu.cfs_period_us");
  if (quota == kUnlimited || period == kUnlimited || period == 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(quota) / static_cast<double>(period);
}

// `used`: kUnlimited where it cannot be read.
uint64_t LimitLeft(uint64_t limit, uint64_t used) {
  return limit == kUnlimited || used == kUnlimited ? limit : limit - std::min(limit, used);
}

// What a group's limit leaves, where its file pages can be reclaimed.
uint64_t MemoryLeft(const std::string& directory, const char* limit_file, const char* usage_file, const char* prefix) {
  const uint64_t limit = ReadNumber(directory + limit_file);
  const uint64_t usage = ReadNumber(directory + usage_file);
  if (usage == kUnlimited) return limit;
  const std::string statistics = directory + "/memory.stat";
  const uint64_t files = ReadKeyed(statistics, std::string(prefix) + "inactive_file") +
                         ReadKeyed(statistics, std::string(prefix) + "active_file");
  return LimitLeft(limit, usage - std::min(usage, files));
}

// A number of this process's memory, in pages there; 0 when it cannot be read.
uint64_t ReadMemory(size_t word) {
  const std::vector<std::string> words = absl::StrSplit(FirstLine("/proc/self/statm"), ' ');
  uint64_t pages = 0;
  if (words.size() <= word || !absl::SimpleAtoi(words[word], &pages)) return 0;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}
constexpr size_t kMapped = 0, kResident = 1;

// Processes and threads of the whole host: "... 2/345 ..." in loadavg.
uint64_t TasksOfHost() {
  uint64_t tasks = 0;
  const std::vector<std::string> words = absl::StrSplit(FirstLine("/proc/loadavg"), ' ');
  if (words.size() < 4) return kUnlimited;
  return absl::SimpleAtoi(words[3].substr(words[3].find('/') + 1), &tasks) ? tasks : kUnlimited;
}

// Of this user. The links of a process's directory of threads are two more than there are.
uint64_t TasksOfUser() {
  uint64_t tasks = 0;
  DIR* directory = opendir("/proc");
  if (directory == nullptr) return 0;
  while (const dirent* entry = readdir(directory)) {
    int pid = 0;
    struct stat info;
    if (!absl::SimpleAtoi(entry->d_name, &pid) || stat(absl::StrCat("/proc/", pid, "/task").c_str(), &info) != 0) {
      continue;
    }
    if (info.st_uid == getuid() && info.st_nlink > 2) tasks += info.st_nlink - 2;
  }
  closedir(directory);
  return tasks;
}

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

std::vector<int> AllowedCpus() {
  // The kernel refuses a set smaller than its own: grow until it fits.
  for (int count = 1024; count <= (1 << 20); count *= 2) {
    cpu_set_t* set = CPU_ALLOC(count);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(count);
    std::vector<int> cpus;
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (int cpu = 0; cpu < count; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

int AllowedCores() {
  const double cpus = static_cast<double>(AllowedCpus().size());
  return std::max(1, static_cast<int>(std::floor(std::min(cpus, CgroupCpuQuota("")))));
}

uint64_t ResourceLimit(int resource) {
  rlimit limit;
  const bool known = getrlimit(static_cast<decltype(RLIMIT_AS)>(resource), &limit) == 0;
  return known && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : kUnlimited;
}

uint64_t AvailableMemoryBytes() {
  uint64_t available = ReadKeyed("/proc/meminfo", "MemAvailable:") * 1024;
  if (available == 0) available = ReadKeyed("/proc/meminfo", "MemFree:") * 1024;  // kernels before 3.14
  return std::min(
      {available, CgroupAvailableMemoryBytes(""), LimitLeft(ResourceLimit(RLIMIT_AS), ReadMemory(kMapped))});
}

uint64_t TotalMemoryBytes() { return ReadKeyed("/proc/meminfo", "MemTotal:") * 1024; }

std::string HugePageSetting() {
  const std::string line = FirstLine("/sys/kernel/mm/transparent_hugepage/enabled");  // "always [madvise] never"
  const size_t open = line.find('['), close = line.find(']');
  return open < close && close != std::string::npos ? line.substr(open + 1, close - open - 1) : "";
}

uint64_t FreeSharedMemoryBytes() { return RoomOf(kSharedMemory).free_bytes; }

uint64_t TasksLeft() {
  constexpr uint64_t kPlenty = 4096;  // beyond it nobody asks, and nobody's processes have to be counted
  const uint64_t limit = geteuid() == 0 ? kUnlimited : ResourceLimit(RLIMIT_NPROC);
  uint64_t left = LimitLeft(limit, TasksOfHost());
  if (left < kPlenty) left = LimitLeft(limit, TasksOfUser());
  return std::min(left, CgroupTasksLeft(""));
}

bool CanBindThreads() {
  const int cpu = AllowedCpus().front();
  bool bound = false;
  try {
    std::thread([cpu, &bound] {
      const size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
      cpu_set_t* set = CPU_ALLOC(cpu + 1);
      if (set == nullptr) return;
      CPU_ZERO_S(bytes, set);
      CPU_SET_S(cpu, bytes, set);
      bound = sched_setaffinity(0, bytes, set) == 0;
      CPU_FREE(set);
    }).join();
  } catch (const std::system_error&) {
    return false;
  }
  return bound;
}

double LoadAverage() {
  double load = 0;
  const std::vector<std::string> words = absl::StrSplit(FirstLine("/proc/loadavg"), ' ');
  return absl::SimpleAtod(words[0], &load) ? load : -1;
}

uint64_t ResidentBytes() { return ReadMemory(kResident); }

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown-host";
  return name;
}

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    return std::string(absl::StripAsciiWhitespace(parts.second));
  }
  return "unknown";
}

double CgroupCpuQuota(const std::string& root) {
  double cores = std::numeric_limits<double>::infinity();
  for (const std::string& directory : GroupDirectories(root, "")) cores = std::min(cores, QuotaV2(directory));
  for (const std::string& directory : GroupDirectories(root, "cpu")) cores = std::min(cores, QuotaV1(directory));
  return cores;
}

uint64_t CgroupAvailableMemoryBytes(const std::string& root) {
  uint64_t left = kUnlimited;
  for (const std::string& directory : GroupDirectories(root, "")) {
    left = std::min(left, MemoryLeft(directory, "/memory.max", "/memory.current", ""));
  }
  for (const std::string& directory : GroupDirectories(root, "memory")) {
    left = std::min(left, MemoryLeft(directory, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_"));
  }
  return left;
}

uint64_t CgroupTasksLeft(const std::string& root) {
  uint64_t left = kUnlimited;
  for (const absl::string_view controller : {"", "pids"}) {
    for (const std::string& directory : GroupDirectories(root, controller)) {
      left = std::min(left, LimitLeft(ReadNumber(directory + "/pids.max"), ReadNumber(directory + "/pids.current")));
    }
  }
  return left;
}

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
