// Networks between hosts in which a job would wait without a word: hosts of different networks that also share an
// address which leads nowhere, firewalls that let nothing in but logins, paths that carry less than hosts send.

#include <signal.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "tests/hosts/support/generation.h"

namespace stagecoach::testing {
namespace {

// A host whose rules are kept drops what comes by TCP, but not for logins; `from`: "from 10.77.0.2", or everybody.
std::string Drop(const std::string& from = "") {
  return absl::StrCat(
      "ip rule add pref 1 ipproto tcp dport 22 lookup local; ip rule add pref 2 ipproto tcp sport 22 lookup local; "
      "ip rule add pref 3 ",
      from, " iif eth0 ipproto tcp blackhole; ip rule add pref 9 lookup local; ip rule del pref 0");
}

class NetworkTest : public HostsTest {
 protected:
  // What a test did to the network goes with the hosts.
  void TearDown() override {
    HostsTest::TearDown();
    TearDownTestSuite();
  }
  // Of a launch that ends with exit code 4, well before it would be given up for its silence.
  ProgramResult FailToLaunch(const std::string& hostfile) {
    const auto begin = std::chrono::steady_clock::now();
    ProgramResult result = Start(hostfile, ShortHostTimeout())->Wait(50);
    EXPECT_EQ(result.exit_code, 4) << result;
    EXPECT_EQ(result.out, "");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
    return result;
  }
};

class RoutedNetworkTest : public NetworkTest {
  EmulatedHosts::Network network() const override { return EmulatedHosts::Network::kRouted; }
};
class Ipv6NetworkTest : public NetworkTest {
  EmulatedHosts::Network network() const override { return EmulatedHosts::Network::kRoutedIpv6; }
};

// Whether Open MPI finds a way by itself depends on the order of its interfaces: what it is told is looked at, too.
TEST_F(RoutedNetworkTest, HostsOfDifferentNetworksThatShareAnAddressRunAJobOverTheOthers) {
  auto front = Start(kThreeHosts);
  AwaitStage(2);
  const auto launchers = hosts().Processes(1, "mpirun");
  ASSERT_EQ(launchers.size(), 1u);
  EXPECT_THAT(launchers[0].command, AllOf(HasSubstr("--mca oob_tcp_if_include 10.77.0.0/22"),
                                          HasSubstr("--mca btl_tcp_if_include 10.77.0.0/22")));
  ExpectTheAnswer(front.get());
}

TEST_F(RoutedNetworkTest, DoctorNamesTheInterfacesAndWhatOpenMpiIsTold) {
  WriteFileOrDie(hosts().Outside("/mnt/two"), "host2\nhost3\n");
  const ProgramResult result = StartVerb({"doctor", "--hostfile", "/mnt/two", "-t", "1"})->Wait(60);
  EXPECT_THAT(result, Prints(HasSubstr("by eth0 (10.77.2.1, MTU 1500), from eth0 (10.77.1.1, MTU 1500)")));
  EXPECT_THAT(result.out, HasSubstr("btl_tcp_if_include 10.77.0.0/22"));
}

TEST_F(Ipv6NetworkTest, HostsThatReachEachOtherByIpv6AloneRunAJob) { ExpectTheAnswer(Start(kThreeHosts).get()); }

TEST_F(NetworkTest, AFirewallThatLetsInLoginsAloneIsNamedWithinSeconds) {
  hosts().Ip(2, Drop());
  const ProgramResult result = FailToLaunch(kThreeHosts);
  EXPECT_THAT(result.err, AllOf(HasSubstr("host2: its login answered, TCP did not: host1 cannot connect to host2 "
                                          "(10.77.0.2), no answer in 6s"),
                                HasSubstr("firewall")));
}

TEST_F(NetworkTest, APathThatCarriesLessThanHostsSendIsNamedWithinSeconds) {
  for (int host = 1; host <= kHosts; ++host) hosts().Ip(host, "ip link set eth0 mtu 9000 gso_max_segs 1");
  const ProgramResult result = FailToLaunch(kThreeHosts);
  EXPECT_THAT(result.err, AllOf(HasSubstr("small messages from host1 to host2 (10.77.0.2) arrive, large ones do not"),
                                HasSubstr("`ping -M do -s 8972 10.77.0.2`")));
}

TEST_F(NetworkTest, ASpareHostReplacesOneThatItsNeighbourCannotReach) {
  hosts().Ip(3, Drop("from 10.77.0.2"));
  auto front = Start(kWithASpare);
  ExpectTheAnswer(front.get(), {"host1", "host2", "host4"});
  EXPECT_THAT(front->err(),
              HasSubstr("host3 is left out: its login answered, TCP did not: host2 cannot connect to host3"));
}

TEST_F(NetworkTest, AtARelaunchTheHostsThatAreReachedTakeTheLayers) {
  auto front = StartUntil(10, kThreeHosts);
  hosts().Ip(3, Drop());
  hosts().Signal(AwaitStage(2), SIGKILL);
  ExpectTheAnswer(front.get(), {"host1", "host2"});
  EXPECT_THAT(front->err(), HasSubstr("host3 is left out: its login answered, TCP did not"));
  hosts().Kill(3);  // what it does not hear about ends with it
}

}  // namespace
}  // namespace stagecoach::testing
