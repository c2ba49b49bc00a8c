#include "tests/testing/hosts/emulated_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"

namespace stagecoach::testing {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

std::string TestHost() { return BuildPath("tests/hosts/test_host"); }

constexpr double kSetUpTimeoutS = 30;
// Beside what leads to the other hosts, and before it; with a carrier, as where containers run.
constexpr char kDocker[] =
    "ip link add docker0 type veth peer name container; ip addr add 172.17.0.1/16 dev docker0; "
    "ip link set docker0 up; ip link set container up; ";
// A router asks for a neighbour's address only from one of its own that nobody else was found to have, which takes a
// second or two.
constexpr char kTakeAddressesAtOnce[] = "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ";

// Namespaces of everything that a host has for itself. Their process 1 is killed when its parent dies, and takes all
// others along.
const Words kUnshare = {"unshare", "--net", "--mount", "--propagation", "private",
                        "--uts",   "--ipc", "--pid",   "--fork",        "--kill-child=KILL"};

// A monotonic clock of the host's own, as if it had been started at another time.
Words OwnClock(int host) { return {"--time", "--monotonic", absl::StrCat(EmulatedHosts::ClockOffsetS(host))}; }

std::string Link(int host) { return absl::StrCat("port", host); }
// setpriv: that parent's parent is us.
std::unique_ptr<Subprocess> StartWords(Words words,
                                       const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  words.insert(words.begin(), {"--pdeathsig", "KILL"});
  return std::make_unique<Subprocess>("setpriv", words, environment);
}

Words Joined(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Words Inside(pid_t init, const Words& words) {
  return Joined({"nsenter", "--target", absl::StrCat(init), "--all", "--"}, words);
}

// What a command prints on stderr when it fails.
std::string ErrorOf(const Words& words) {
  const ProgramResult result = StartWords(words)->Wait(kSetUpTimeoutS);
  if (result.exit_code == 0) return "";
  return absl::StrCat("'", absl::StrJoin(words, " "), "' ended with exit code ", result.exit_code, ": ", result.err);
}

void RunOrDie(const Words& words) {
  const std::string error = ErrorOf(words);
  if (!error.empty()) internal::CheckFailed(__FILE__, __LINE__, "RunOrDie", error);
}

Words InNetwork(pid_t init, const std::string& script) {
  return {"nsenter", "--target", absl::StrCat(init), "--net", "--", "sh", "-ec", script};
}

// In the network namespace of a process.
void RunInNetwork(pid_t init, const std::string& script) { RunOrDie(InNetwork(init, script)); }

// The process id in "ready <pid>".
pid_t AwaitReady(Subprocess* process) {
  process->WaitForOutput("\n", kSetUpTimeoutS);
  int pid = 0;
  if (!absl::StartsWith(process->out(), "ready ") || !absl::SimpleAtoi(process->out().substr(6), &pid))
    internal::CheckFailed(__FILE__, __LINE__, "a namespace's process 1 does not start", process->err());
  return pid;
}

bool IsBelow(const fs::path& path, const fs::path& directory) {
  return absl::StartsWith(path.lexically_normal().string() + "/", directory.string() + "/");
}

std::string PidNamespace(const std::string& pid) {
  std::error_code error;
  return fs::read_symlink(fs::path("/proc") / pid / "ns/pid", error).string();
}

}  // namespace

std::string EmulatedHosts::WhyNot() {
  if (geteuid() != 0) return "it takes root";
  for (const char* directory : {"/dev/shm", "/mnt"}) {
    if (IsBelow(TestHost(), directory) || IsBelow(DemoModelPath(), directory))
      return absl::StrCat("this tree lies in ", directory, ", which emulated hosts have for themselves");
  }
  for (const char* tool : {"ip", "bridge", "nsenter", "unshare", "setpriv"}) {
    if (RunProgram("sh", {"-c", absl::StrCat("command -v ", tool)}).exit_code != 0)
      return absl::StrCat("there is no ", tool, " (packages: iproute2, util-linux)");
  }
  const std::string error = ErrorOf(Joined(
      kUnshare, {"sh", "-ec", "mount -t tmpfs none /mnt; mount -t proc proc /proc; ip link add name lab type bridge"}));
  return error.empty() ? "" : absl::StrCat("namespaces cannot be made: ", error);
}

bool EmulatedHosts::HaveClocks() {
  static const bool have = ErrorOf({"unshare", "--time", "--monotonic", "1", "--fork", "true"}).empty();
  return have;
}

std::vector<std::string> EmulatedHosts::TreeBelowTmp() {
  std::vector<std::string> kept;
  for (const std::string& directory : {SourcePath(), BuildPath()}) {
    if (IsBelow(directory, "/tmp")) kept.emplace_back(directory);
  }
  return kept;
}

EmulatedHosts::EmulatedHosts(int count, std::vector<std::string> kept, Network network)
    : kept_(std::move(kept)), network_(network), hosts_(static_cast<size_t>(count)) {
  holder_ = StartWords(Joined(kUnshare, {TestHost(), "lab"}));
  init_ = AwaitReady(holder_.get());
  std::string addresses = "127.0.0.1 localhost\n";
  for (int host = 1; host <= count; ++host) absl::StrAppend(&addresses, Address(host), " ", Name(host), "\n");
  WriteFileOrDie(Outside("/mnt/hosts"), addresses);
  fs::create_directory(Outside("/mnt/hang"));
  WriteFileOrDie(Outside(agent()), absl::StrCat("#!/bin/sh\nexec ", TestHost(), " shell \"$@\"\n"));
  fs::permissions(Outside(agent()), fs::perms::owner_all);
  if (network_ == Network::kBridge) {
    RunInNetwork(init_, "ip link add name lab type bridge; ip link set lab up");
  } else {
    RunInNetwork(init_,
                 absl::StrCat(kTakeAddressesAtOnce,
                              "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding"));
  }
  for (int host = 1; host <= count; ++host) Revive(host);
}

EmulatedHosts::~EmulatedHosts() = default;

std::string EmulatedHosts::Outside(const std::string& path) const {
  return absl::StrCat("/proc/", init_, "/root", path);
}

void EmulatedHosts::Revive(int host) {
  Host& h = hosts_[static_cast<size_t>(host - 1)];
  CHECK_EQ(h.init, 0);
  const Words namespaces = HaveClocks() ? Joined(kUnshare, OwnClock(host)) : kUnshare;
  h.holder = StartWords(Inside(init_, Joined(Joined(namespaces, {TestHost(), "host", Name(host)}), kept_)));
  h.init = AwaitReady(h.holder.get());
  if (network_ != Network::kBridge) RunInNetwork(h.init, absl::StrCat(kTakeAddressesAtOnce, kDocker));
  // The last one's link goes only some time after its host.
  RunInNetwork(init_, absl::StrCat("! ip link show ", Link(host), " >/dev/null 2>&1 || ip link del ", Link(host),
                                   "; ip link add ", Link(host), " type veth peer name eth0 address 02:00:00:00:00:",
                                   absl::Dec(host, absl::kZeroPad2), " netns ", h.init, "; ip link set ", Link(host),
                                   network_ == Network::kBridge ? " master lab up" : " up"));
  const bool ipv6 = network_ == Network::kRoutedIpv6;
  const std::string bits = ipv6 ? "/64" : "/24";
  RunInNetwork(h.init,
               absl::StrCat("ip addr add ", Address(host), bits, " dev eth0; ip link set eth0 up; ip link set lo up"));
  if (network_ == Network::kBridge) return;
  const std::string router = ipv6 ? absl::StrCat("fd00:77:", host, "::fe") : absl::StrCat("10.77.", host, ".254");
  RunInNetwork(init_, absl::StrCat("ip addr add ", router, bits, " dev ", Link(host)));
  RunInNetwork(h.init, absl::StrCat("ip route add default via ", router));
}

std::string EmulatedHosts::Address(int host) const {
  switch (network_) {
    case Network::kRouted: return absl::StrCat("10.77.", host, ".1");
    case Network::kRoutedIpv6: return absl::StrCat("fd00:77:", host, "::1");
    case Network::kBridge: break;
  }
  return absl::StrCat("10.77.0.", host);
}

void EmulatedHosts::Ip(int host, const std::string& script) {
  RunInNetwork(hosts_[static_cast<size_t>(host - 1)].init, script);
}

std::unique_ptr<Subprocess> EmulatedHosts::Start(int host, const std::string& program, const Words& arguments,
                                                 std::vector<std::pair<std::string, std::string>> environment) {
  const Host& h = hosts_[static_cast<size_t>(host - 1)];
  CHECK_GT(h.init, 0);
  environment.emplace_back("TMPDIR", "");
  return StartWords(Inside(h.init, Joined({program}, arguments)), environment);
}

void EmulatedHosts::On(int host, const std::function<void()>& work) const {
  const pid_t init = hosts_[static_cast<size_t>(host - 1)].init;
  CHECK_GT(init, 0);
  std::thread([&] {
    const int network = open(absl::StrCat("/proc/", init, "/ns/net").c_str(), O_RDONLY | O_CLOEXEC);
    CHECK(network >= 0 && setns(network, CLONE_NEWNET) == 0);
    close(network);
    work();
  }).join();
}

// nsenter waits for its child, which is the program.
pid_t EmulatedHosts::PidOf(const Subprocess& started) const {
  for (const ProcessInfo& process : Descendants(started.pid())) {
    if (!absl::StartsWith(process.command, "nsenter ")) return process.pid;
  }
  return 0;
}

// State 0: the port neither learns nor forwards, and neither end's carrier changes. 3 forwards.
void EmulatedHosts::SetLink(int host, bool up) {
  RunInNetwork(init_, absl::StrCat("bridge link set dev ", Link(host), " state ", up ? 3 : 0));
}

void EmulatedHosts::Cut(int host) { SetLink(host, false); }
// With it goes what the hosts found out of each other meanwhile, which a connection could still end by.
void EmulatedHosts::Heal(int host) {
  SetLink(host, true);
  for (const Host& other : hosts_) {
    if (other.init > 0) StartWords(InNetwork(other.init, "ip neigh flush dev eth0"))->Wait(kSetUpTimeoutS);
  }
}

absl::Status EmulatedHosts::LimitLinks(int mbit_s) {
  const bool delays =
      StartWords(InNetwork(init_, "tc qdisc add dev lab root netem delay 1ms && tc qdisc del dev lab root"))
          ->Wait(kSetUpTimeoutS)
          .exit_code == 0;
  // Packets of up to 64 KiB pass a veth whole: the bucket holds two.
  const std::string bucket = absl::StrCat("tbf rate ", mbit_s, "mbit burst 128kb latency 50ms");
  for (int host = 1; host <= count(); ++host) {
    const pid_t init = hosts_[static_cast<size_t>(host - 1)].init;
    for (const auto& [network, device] : {std::pair(init_, Link(host)), std::pair(init, std::string("eth0"))}) {
      const std::string add = absl::StrCat("tc qdisc add dev ", device);
      const std::string script =
          delays ? absl::StrCat(add, " root handle 1: netem delay 1ms; ", add, " parent 1: ", bucket)
                 : absl::StrCat(add, " root ", bucket);
      if (const std::string error = ErrorOf(InNetwork(network, script)); !error.empty()) {
        return absl::UnimplementedError(error);
      }
    }
  }
  return absl::OkStatus();
}

void EmulatedHosts::Kill(int host) {
  Host& h = hosts_[static_cast<size_t>(host - 1)];
  CHECK_GT(h.init, 0);
  kill(h.init, SIGKILL);
  h.holder->Wait(kSetUpTimeoutS);
  h.init = 0;
}

void EmulatedHosts::HangAgent(int host, bool hang) {
  const std::string file = Outside(absl::StrCat("/mnt/hang/", Name(host)));
  if (hang) {
    WriteFileOrDie(file, "");
  } else {
    fs::remove(file);
  }
}

std::vector<ProcessInfo> EmulatedHosts::Processes(int host, const std::string& program) const {
  const Host& h = hosts_[static_cast<size_t>(host - 1)];
  std::vector<ProcessInfo> found;
  if (h.init == 0) return found;
  const std::string own = PidNamespace(absl::StrCat(h.init));
  for (const ProcessInfo& process : Descendants(getpid())) {
    const std::string file = process.command.substr(0, process.command.find(' '));
    const bool wanted = program.empty() || file == program || absl::EndsWith(file, "/" + program);
    if (wanted && process.pid != h.init && PidNamespace(absl::StrCat(process.pid)) == own) found.push_back(process);
  }
  return found;
}

void EmulatedHosts::Signal(pid_t pid, int signal) {
  if (pid <= 0) {
    ADD_FAILURE() << "no process to send signal " << signal << " to";
  } else {
    kill(pid, signal);
  }
}

std::vector<std::string> EmulatedHosts::Files(int host) const {
  const Host& h = hosts_[static_cast<size_t>(host - 1)];
  std::vector<std::string> found;
  if (h.init == 0) return found;
  const std::string root = absl::StrCat("/proc/", h.init, "/root");
  for (const char* directory : {"/tmp", "/dev/shm"}) {
    std::error_code error;
    fs::recursive_directory_iterator entry(root + directory, error), end;
    for (; entry != end; entry.increment(error)) {
      const std::string path = entry->path().string().substr(root.size());
      const auto holds = [&path](const std::string& kept) { return IsBelow(kept, path); };
      if (std::none_of(kept_.begin(), kept_.end(), holds)) {
        found.push_back(path);
      } else if (std::find(kept_.begin(), kept_.end(), path) != kept_.end()) {
        entry.disable_recursion_pending();
      }
    }
  }
  return found;
}

}  // namespace stagecoach::testing
