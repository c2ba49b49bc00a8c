#include "tests/testing/process_tree.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

namespace stagecoach::testing {
namespace {

namespace fs = std::filesystem;

struct Stat {
  char state = 'X';
  pid_t parent = 0;
};

// "" of a process that has ended, and of one that ends in between: reading fails then, which iterators would throw.
std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The fields after the command's name, which may hold anything and ends at the last parenthesis.
Stat ReadStat(pid_t pid) {
  const std::string text = ReadAll("/proc/" + std::to_string(pid) + "/stat");
  const size_t close = text.rfind(')');
  Stat stat;
  if (close == std::string::npos) return stat;
  std::istringstream fields(text.substr(close + 1));
  fields >> stat.state >> stat.parent;
  return stat;
}

}  // namespace

std::vector<ProcessInfo> Descendants(pid_t root) {
  std::map<pid_t, Stat> all;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = std::stoi(name);
    all[pid] = ReadStat(pid);
  }
  std::map<std::pair<int, pid_t>, std::string> found;  // commands by generation and id
  for (const auto& [pid, stat] : all) {
    if (stat.state == 'Z' || stat.state == 'X') continue;
    pid_t ancestor = stat.parent;
    int generation = 1;
    for (; ancestor > 1 && ancestor != root; ++generation) ancestor = all.count(ancestor) ? all[ancestor].parent : 0;
    if (ancestor != root) continue;
    std::string command = ReadAll("/proc/" + std::to_string(pid) + "/cmdline");
    std::replace(command.begin(), command.end(), '\0', ' ');
    found[{generation, pid}] = std::move(command);
  }
  std::vector<ProcessInfo> processes;
  for (auto& [place, command] : found) processes.push_back({place.second, std::move(command)});
  return processes;
}

std::vector<ProcessInfo> DescendantsNamed(pid_t root, const std::string& text) {
  std::vector<ProcessInfo> found = Descendants(root);
  std::erase_if(found, [&](const ProcessInfo& process) {
    // mpirun's own command line names all programs.
    return process.command.find("mpirun") != std::string::npos || process.command.find(text) == std::string::npos;
  });
  return found;
}

std::vector<ProcessInfo> AwaitDescendants(pid_t root, const std::string& text, size_t count, double timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  std::vector<ProcessInfo> found;
  while ((found = DescendantsNamed(root, text)).size() < count && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return found;
}

bool IsAlive(pid_t pid) {
  const char state = ReadStat(pid).state;
  return state != 'X' && state != 'Z';
}

namespace {

// A number in /proc/<...>/status.
uint64_t StatusField(const std::string& directory, const std::string& field) {
  std::istringstream lines(ReadAll(directory + "/status"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(field, 0) == 0) return std::stoull(line.substr(field.size()));
  }
  return 0;
}

uint64_t StatusBytes(pid_t pid, const std::string& field) {
  return StatusField("/proc/" + std::to_string(pid), field) * 1024;  // it is in KiB
}

}  // namespace

uint64_t ResidentBytesOf(pid_t pid) { return StatusBytes(pid, "VmRSS:"); }
uint64_t PeakResidentBytesOf(pid_t pid) { return StatusBytes(pid, "VmHWM:"); }

SchedulingCounts SchedulingCountsOf(pid_t pid) {
  SchedulingCounts counts;
  std::error_code error;
  for (const fs::directory_entry& thread : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    const std::string directory = thread.path();
    double cpu_ns = 0;
    std::istringstream(ReadAll(directory + "/schedstat")) >> cpu_ns;
    counts.cpu_s += cpu_ns * 1e-9;
    counts.sleeps += StatusField(directory, "voluntary_ctxt_switches:");
  }
  return counts;
}

std::vector<std::string> JobDirectories(pid_t root) {
  std::vector<std::string> found;
  for (const ProcessInfo& process : Descendants(root)) {
    if (process.command.find("mpirun") == std::string::npos) continue;
    std::istringstream words(process.command);
    for (std::string word; words >> word;) {
      if (word == "--cleanup" && words >> word) found.push_back(word);
    }
  }
  return found;
}

}  // namespace stagecoach::testing
