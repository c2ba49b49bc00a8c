#include "common/base/host_info.h"

#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
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

// What this process has mapped.
uint64_t MappedBytes() {
  uint64_t pages = 0;
  const std::vector<std::string> words = absl::StrSplit(FirstLine("/proc/self/statm"), ' ');
  return absl::SimpleAtoi(words[0], &pages) ? pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

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
  return std::min({available, CgroupAvailableMemoryBytes(""), LimitLeft(ResourceLimit(RLIMIT_AS), MappedBytes())});
}

uint64_t TotalMemoryBytes() { return ReadKeyed("/proc/meminfo", "MemTotal:") * 1024; }

std::string HugePageSetting() { return BracketedChoice(FirstLine("/sys/kernel/mm/transparent_hugepage/enabled")); }

uint64_t FreeSharedMemoryBytes() {
  struct statvfs info;
  return statvfs("/dev/shm", &info) == 0 ? uint64_t{info.f_bavail} * info.f_frsize : 0;
}

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

std::string BracketedChoice(const std::string& line) {
  const size_t open = line.find('[');
  const size_t close = line.find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return "";
  return line.substr(open + 1, close - open - 1);
}

uint64_t ResidentBytes() {
  const std::vector<std::string> words = absl::StrSplit(FirstLine("/proc/self/statm"), ' ');
  uint64_t pages;
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &pages)) return 0;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

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

}  // namespace stagecoach
