#ifndef STAGECOACH_TESTS_HOSTS_SUPPORT_GENERATION_H_
#define STAGECOACH_TESTS_HOSTS_SUPPORT_GENERATION_H_

// A generation over emulated hosts that is long enough to be disturbed, and what it must answer whatever happens.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/support/programs.h"
#include "tests/testing/hosts/emulated_hosts.h"

namespace stagecoach::testing {

// One set of hosts for all tests of a program. Each test begins with all of them up, or is skipped where this machine
// does not permit hosts; none may leave anything on them.
class HostsTest : public ::testing::Test {
 protected:
  static constexpr int kHosts = 4;  // the front runs on host 1
  static constexpr int kTokens = 100;
  static constexpr char kThreeHosts[] = "host1 slots=1\nhost2 slots=1\nhost3 slots=1\n";
  static constexpr char kWithASpare[] = "host1 slots=1\nhost2 slots=1\nhost3 slots=1\nhost4 slots=1 spare\n";
  // Options: a launch waits 8 s for hosts that do not answer. On two busy cores one that is there took more than 3.
  static Words ShortHostTimeout() { return {"--host-timeout", "8"}; }

  static void TearDownTestSuite();
  void SetUp() override;
  void TearDown() override;
  virtual EmulatedHosts::Network network() const { return EmulatedHosts::Network::kBridge; }

  EmulatedHosts& hosts() { return *hosts_; }

  // `coordinator generate` on host 1 over the hosts of this file ("host2 slots=1\n..."), with one JSON object as its
  // output. Each stage holds every micro-batch for 10 ms. The agent is given by Open MPI's variable, which
  // `environment` may change.
  std::unique_ptr<Subprocess> Start(const std::string& hostfile, const Words& more = {},
                                    std::vector<std::pair<std::string, std::string>> environment = {});
  // The same, once so many micro-batches are done.
  std::unique_ptr<Subprocess> StartUntil(int steps, const std::string& hostfile, const Words& more = {});
  // Any verb on host 1, which finds the agent as Start's does.
  std::unique_ptr<Subprocess> StartVerb(const Words& arguments,
                                        std::vector<std::pair<std::string, std::string>> environment = {});
  // Waits until so many micro-batches of the started generation are done.
  void AwaitSteps(Subprocess* front, int steps);
  // The ranks that are stages on a host now.
  std::vector<ProcessInfo> Stages(int host);
  // The process id of the only stage on a host, once there is one; 0 and a failure after 20 s.
  pid_t AwaitStage(int host);

  // Ends well with the tokens and log-probabilities of an undisturbed run on one host, to the last digit. Returns the
  // whole answer. `hosts`: of the last job's stages, where there is one.
  Json ExpectTheAnswer(Subprocess* front, const Words& hosts = {});

 private:
  static const Json& Undisturbed();
  // No process, no shared memory, no temporary file on any host that is up; waits a moment for the last ones to go.
  static void ExpectNothingLeft();

  static EmulatedHosts* hosts_;
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_HOSTS_SUPPORT_GENERATION_H_
