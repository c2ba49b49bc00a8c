#include "stage_worker/host_report.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/host/host_info.h"
#include "common/host/private_dir.h"
#include "common/net/addresses.h"
#include "common/net/tcp_trial.h"
#include "common/wire/handshake.h"
#include "common/wire/host_report.h"
#include "stage_worker/kernels/select.h"

namespace stagecoach {
namespace {

constexpr size_t kMostTrials = 256;  // at a time, of one front

// A front's connection, and what it has ordered.
struct Control {
  struct Ordered {
    int id;
    std::unique_ptr<TcpTrial> trial;
  };
  explicit Control(int socket) : channel(socket) {}

  // False once the front has gone.
  bool Advance() {
    if (!channel.Receive()) return false;
    while (const std::optional<std::string> message = channel.Next()) {
      pb::TrialOrder order;
      if (!order.ParseFromString(*message) || trials.size() >= kMostTrials) return false;
      trials.push_back(
          {order.id(), std::make_unique<TcpTrial>(order.address(), order.port(), order.token(), TrialKind::kTrial)});
    }
    for (const Ordered& ordered : trials) {
      ordered.trial->Advance();
      if (!ordered.trial->ended()) continue;
      pb::TrialOutcome outcome;
      outcome.set_id(ordered.id);
      outcome.set_step(static_cast<int>(ordered.trial->step()));
      outcome.set_error(ordered.trial->error());
      if (!channel.Send(outcome.SerializeAsString())) return false;
    }
    std::erase_if(trials, [](const Ordered& ordered) { return ordered.trial->ended(); });
    return true;
  }

  MessageChannel channel;
  std::vector<Ordered> trials;
};

}  // namespace

NetworkAgent::NetworkAgent(absl::Duration awaits) : awaits_(awaits) {
  absl::StatusOr<std::unique_ptr<TrialServer>> server = TrialServer::Listen();
  if (server.ok()) {
    server_ = *std::move(server);
  } else {
    LogError(server.status().message());
  }
}

void NetworkAgent::Announce(pb::HostReport* report) const {
  for (pb::HostAddress& address : OwnAddresses()) *report->add_addresses() = std::move(address);
  if (server_ == nullptr) return;
  report->set_trial_port(server_->port());
  report->set_trial_token(server_->token());
}

void NetworkAgent::Serve() {
  if (server_ == nullptr) return;
  const int64_t begin_us = MonotonicUs();
  std::vector<std::unique_ptr<Control>> controls;
  bool had_control = false;
  while (true) {
    const absl::Duration served = absl::Microseconds(MonotonicUs() - begin_us);
    if (served >= kLongestService || (!had_control && served >= awaits_)) return;
    std::vector<pollfd> waits = {{STDOUT_FILENO, 0, 0}};
    server_->AddWaits(&waits);
    for (const auto& control : controls) {
      control->channel.AddWaits(&waits);
      for (const Control::Ordered& ordered : control->trials) ordered.trial->AddWaits(&waits);
    }
    poll(waits.data(), waits.size(), 100);
    if ((waits.front().revents & (POLLERR | POLLHUP)) != 0) return;
    server_->Advance();
    while (const std::optional<int> socket = server_->TakeControl()) {
      controls.push_back(std::make_unique<Control>(*socket));
      had_control = true;
    }
    std::erase_if(controls, [](const std::unique_ptr<Control>& control) { return !control->Advance(); });
    if (controls.empty() && (had_control || server_->LostControls())) return;
  }
}

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

namespace {

constexpr int kExitUsage = 2;
constexpr int kCannotExec = 127;
constexpr absl::Duration kRanksEnd = absl::Seconds(20);

[[noreturn]] void Exec(std::vector<std::string>* command) {
  std::vector<char*> words;
  for (std::string& word : *command) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words[0], words.data());
  LogError(absl::StrCat("cannot run '", words[0], "': ", std::strerror(errno)));
  _exit(kCannotExec);
}

}  // namespace

int GuardHost(std::vector<std::string> arguments) {
  if (arguments.size() < 2 || !IsPrivateName(arguments[0])) {
    LogError("expected the name of a launch, such as stagecoach.AbC123, and a command");
    return kExitUsage;
  }
  const std::string name = arguments[0];
  arguments.erase(arguments.begin());
  const pid_t command = fork();
  if (command == 0) Exec(&arguments);
  int status = 0, code = kCannotExec;
  if (command > 0) {
    while (waitpid(command, &status, 0) < 0 && errno == EINTR) {
    }
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  ClearHost({name}, kRanksEnd);
  return code;
}

}  // namespace stagecoach
