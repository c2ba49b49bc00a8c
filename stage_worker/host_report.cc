#include "stage_worker/host_report.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/host_limits.h"
#include "common/base/private_dir.h"
#include "common/wire/handshake.h"
#include "common/wire/host_report.h"
#include "stage_worker/kernels/select.h"

namespace stagecoach {
namespace {

// Those that a front that gives up the host would wait for at most.
constexpr absl::Duration kProcessesEnd = absl::Seconds(20);
constexpr size_t kMostLeft = 16;  // that are named

std::string ReadProcFile(pid_t pid, const char* name) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/", name));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  std::string name;
  std::string state;
};

// From /proc/<pid>/stat: pid (name) state parent ...; the name may hold anything.
std::optional<Process> ReadProcess(pid_t pid) {
  const std::string stat = ReadProcFile(pid, "stat");
  const size_t open = stat.find('('), close = stat.rfind(')');
  char state = '?';
  int parent = 0;
  if (open == std::string::npos || close == std::string::npos ||
      std::sscanf(stat.c_str() + close + 1, " %c %d", &state, &parent) != 2) {
    return std::nullopt;
  }
  return Process{pid, parent, stat.substr(open + 1, close - open - 1), std::string(1, state)};
}

// This process and whoever started it, the login on whose behalf it runs among them.
std::set<pid_t> Ancestors() {
  std::set<pid_t> ancestors;
  for (pid_t pid = getpid(); pid > 0 && ancestors.insert(pid).second;) {
    const std::optional<Process> process = ReadProcess(pid);
    pid = process.has_value() ? process->parent : 0;
  }
  return ancestors;
}

bool IsOurs(pid_t pid) {
  struct stat info;
  return stat(absl::StrCat("/proc/", pid).c_str(), &info) == 0 && info.st_uid == geteuid();
}

// Whether a process is of one of the launches. Those that ask a host to be cleared name it, too.
bool HasName(pid_t pid, const std::vector<std::string>& names) {
  const std::string line = ReadProcFile(pid, "cmdline");
  if (absl::StrContains(line, kHostReportFlag)) return false;
  const std::string text = line + ReadProcFile(pid, "environ");
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return absl::StrContains(text, name); });
}

// Live processes of the names.
std::vector<Process> Find(const std::vector<std::string>& names, const std::set<pid_t>& spared) {
  std::vector<Process> found;
  DIR* directory = opendir("/proc");
  if (directory == nullptr) return found;
  while (const dirent* entry = readdir(directory)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid) || spared.contains(pid) || !IsOurs(pid) || !HasName(pid, names)) {
      continue;
    }
    std::optional<Process> process = ReadProcess(pid);
    if (process.has_value() && process->state != "Z" && process->state != "X") found.push_back(*std::move(process));
  }
  closedir(directory);
  return found;
}

int RankOf(pid_t pid) {
  for (const absl::string_view variable : absl::StrSplit(ReadProcFile(pid, "environ"), '\0')) {
    int rank = -1;
    if (absl::StartsWith(variable, "OMPI_COMM_WORLD_RANK=") &&
        absl::SimpleAtoi(variable.substr(variable.find('=') + 1), &rank)) {
      return rank;
    }
  }
  return -1;
}

std::vector<pb::StoppedProcess> StoppedProcesses(const std::string& name) {
  std::vector<pb::StoppedProcess> stopped;
  for (const Process& process : Find({name}, Ancestors())) {
    if (process.state != "T" || stopped.size() == kMostLeft) continue;
    stopped.emplace_back();
    stopped.back().set_pid(process.pid);
    stopped.back().set_name(process.name);
    stopped.back().set_rank(RankOf(process.pid));
  }
  return stopped;
}

bool CanRead(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), R_OK) == 0;
}

}  // namespace

std::vector<pb::LeftProcess> ClearHost(const std::vector<std::string>& names, absl::Duration most) {
  const int64_t deadline_us = MonotonicUs() + absl::ToInt64Microseconds(most);
  const std::set<pid_t> spared = Ancestors();
  std::vector<Process> left = Find(names, spared);
  while (!left.empty() && MonotonicUs() < deadline_us) {
    for (const Process& process : left) kill(process.pid, SIGKILL);
    absl::SleepFor(absl::Milliseconds(10));
    left = Find(names, spared);
  }
  std::vector<pb::LeftProcess> out;
  for (const Process& process : left) {
    if (out.size() == kMostLeft) break;
    out.emplace_back();
    out.back().set_pid(process.pid);
    out.back().set_name(process.name);
    out.back().set_state(process.state);
  }
  if (!out.empty()) return out;
  std::vector<std::string> directories;
  for (const std::string& name : names) {
    for (const char* parent : {kLaunchDirectoryOfAllHosts, "/dev/shm"}) {
      directories.push_back(absl::StrCat(parent, "/", name));
    }
  }
  RemovePrivateDirectories(directories);
  return out;
}

absl::StatusOr<std::string> ReportHost(const std::vector<std::string>& arguments,
                                       std::optional<NetworkAgent>* network) {
  pb::HostReport report;
  std::vector<std::string> names;
  std::string model;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const std::string value = i + 1 < arguments.size() ? arguments[i + 1] : "";
    if (arguments[i] == kClearFlag && IsPrivateName(value)) {
      names.push_back(value);
    } else if (arguments[i] == kLookFlag && IsPrivateName(value)) {
      const std::vector<pb::StoppedProcess> stopped = StoppedProcesses(value);
      report.mutable_stopped()->Add(stopped.begin(), stopped.end());
    } else if (arguments[i] == kModelToReadFlag && absl::StartsWith(value, "/")) {
      model = value;
    } else if (int seconds = 0; network != nullptr && arguments[i] == kNetworkFlag &&
                                absl::SimpleAtoi(value, &seconds) && seconds > 0 &&
                                seconds <= absl::ToInt64Seconds(NetworkAgent::kLongestService)) {
      network->emplace(absl::Seconds(seconds));
    } else {
      return absl::InvalidArgumentError(absl::StrCat("after ", kHostReportFlag, ": '", arguments[i], "', expected ",
                                                     kClearFlag, " or ", kLookFlag, " stagecoach.AbC123, ",
                                                     kModelToReadFlag, " with an absolute path or ", kNetworkFlag,
                                                     " with a number of seconds"));
    }
  }
  if (!names.empty()) {
    const std::vector<pb::LeftProcess> left = ClearHost(names, kProcessesEnd);
    report.mutable_left()->Assign(left.begin(), left.end());
  }
  *report.mutable_hello() = MakeHello(pb::Hello::ROLE_STAGE, AvailableInstructionSets());
  *report.mutable_limits() = ToProto(ReadHostLimits(kLaunchDirectoryOfAllHosts));
  if (CanRead(model)) report.mutable_hello()->set_model_path(model);
  if (network != nullptr && network->has_value()) (*network)->Announce(&report);
  return EncodeHostReport(report);
}

}  // namespace stagecoach
