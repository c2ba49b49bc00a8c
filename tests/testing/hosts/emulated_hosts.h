#ifndef STAGECOACH_TESTS_TESTING_HOSTS_EMULATED_HOSTS_H_
#define STAGECOACH_TESTS_TESTING_HOSTS_EMULATED_HOSTS_H_

// Several hosts on this machine, made of namespaces. Each has a name, an address on a bridge of its own, processes,
// /tmp and /dev/shm that no other host sees, a monotonic clock of its own where the kernel can, and a remote shell in
// the place of ssh (tests/hosts/programs/test_host.cc). /mnt is one file system that all of them and the test share;
// everything else is this machine's, and so is this tree where it lies below /tmp.
//
// Nothing of it has a name on this machine, so tests do not meet each other, and all of it ends with the test, however
// that ends.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tests/testing/process_tree.h"
#include "tests/testing/subprocess.h"

namespace stagecoach::testing {

// Not thread-safe. What cannot be done aborts the test with what the system said.
class EmulatedHosts {
 public:
  // Why this machine does not permit it, for GTEST_SKIP; empty when it does.
  static std::string WhyNot();

  // Whether the monotonic clock of every host is ClockOffsetS(host) ahead of this machine's; otherwise they share it.
  static bool HaveClocks();
  static constexpr int ClockOffsetS(int host) { return 1000 * host; }

  // kBridge: all hosts in one network. kRouted, kRoutedIpv6: each in a network of its own, with a router between them,
  // and beside it an interface docker0 that has the same address on every host and leads nowhere.
  enum class Network { kBridge, kRouted, kRoutedIpv6 };

  // Of this tree's directories, those that hosts would not see else.
  static std::vector<std::string> TreeBelowTmp();

  // Hosts 1..count, all up. `kept`: directories of this machine that the hosts see although they lie below /tmp.
  explicit EmulatedHosts(int count, std::vector<std::string> kept = TreeBelowTmp(), Network network = Network::kBridge);
  ~EmulatedHosts();
  EmulatedHosts(const EmulatedHosts&) = delete;

  int count() const { return static_cast<int>(hosts_.size()); }
  static std::string Name(int host) { return "host" + std::to_string(host); }
  std::string Address(int host) const;  // of eth0

  // The command that mpirun uses in the place of ssh.
  std::string agent() const { return "/mnt/agent"; }
  // A path below /mnt as this test sees it.
  std::string Outside(const std::string& path) const;

  // A program on a host, in "/", with the test's environment without TMPDIR; `environment` as in Subprocess.
  std::unique_ptr<Subprocess> Start(int host, const std::string& program, const std::vector<std::string>& arguments,
                                    std::vector<std::pair<std::string, std::string>> environment = {});
  // On a thread whose network is that of a host, as is that of the threads which it starts.
  void On(int host, const std::function<void()>& work) const;
  // The process of a program that Start gave, which is not Subprocess::pid(); 0 when it has ended.
  pid_t PidOf(const Subprocess& started) const;

  // The link between host and bridge carries nothing from now on, and nobody is told.
  void Cut(int host);
  void Heal(int host);
  // Commands of ip(8), as a shell's, in the network of a host; until it is revived.
  void Ip(int host, const std::string& script);
  // From now on every link carries so much in either direction (tc's tbf). Where the kernel has netem, each also takes
  // a millisecond. kUnimplemented, with what tc said, where it cannot be done.
  absl::Status LimitLinks(int mbit_s);
  // All processes of the host end at once, which its peers hear of; then it answers no more.
  void Kill(int host);
  // The host boots: nothing of before is there.
  void Revive(int host);
  // From now on the agent never answers for this host.
  void HangAgent(int host, bool hang = true);

  // The living processes of a host but its process 1, with this machine's process ids; of those, what runs
  // the program of that file name.
  std::vector<ProcessInfo> Processes(int host, const std::string& program = "") const;
  // To a process of a host; 0, which would be this test's own group, is a failure of the test.
  static void Signal(pid_t pid, int signal);
  // What is in its /tmp and /dev/shm, each with its path there, without the kept directories.
  std::vector<std::string> Files(int host) const;

 private:
  struct Host {
    std::unique_ptr<Subprocess> holder;
    pid_t init = 0;  // process 1, by this machine's process id; 0: the host is dead
  };
  void SetLink(int host, bool up);

  const std::vector<std::string> kept_;
  const Network network_;
  std::unique_ptr<Subprocess> holder_;
  pid_t init_ = 0;
  std::vector<Host> hosts_;
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_HOSTS_EMULATED_HOSTS_H_
