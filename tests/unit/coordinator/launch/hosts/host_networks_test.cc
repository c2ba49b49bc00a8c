#include "coordinator/launch/hosts/host_networks.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/addresses.h"
#include "coordinator/launch/hosts/network_trial.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

using ::testing::Key;

pb::HostAddress InterfaceAddress(const std::string& interface, const std::string& address, int prefix_bits) {
  pb::HostAddress entry;
  entry.set_interface(interface);
  entry.set_address(address);
  entry.set_prefix_bits(prefix_bits);
  entry.set_loopback(interface == "lo");
  return entry;
}

// One with a docker0 as every host has it, which is reached by its first address.
HostInterfaces HostWith(const std::string& address, int prefix_bits, const std::string& interface = "eth0") {
  return {.addresses = {InterfaceAddress(interface, address, prefix_bits), InterfaceAddress("lo", "127.0.0.1", 8),
                        InterfaceAddress("docker0", "172.17.0.1", 16)},
          .used = {address}};
}

TEST(HostNetworks, OneNetworkThatAllHostsHaveIsNamedAsTheySayIt) {
  EXPECT_EQ(ChooseNetworks({HostWith("10.77.0.1", 24), HostWith("10.77.0.2", 24)}),
            (Networks{.include = "10.77.0.0/24"}));
}

TEST(HostNetworks, DifferentNetworksAreCoveredByOneWhereNothingElseLiesInIt) {
  EXPECT_EQ(ChooseNetworks({HostWith("10.77.1.1", 24), HostWith("10.77.2.1", 24), HostWith("10.77.3.1", 24)}).include,
            "10.77.0.0/22");
  EXPECT_EQ(ChooseNetworks({HostWith("10.1.0.1", 16), HostWith("192.168.7.9", 24)}).include,
            "10.1.0.0/16,192.168.7.0/24");
  // 172.16.0.0/14 would hold docker0.
  EXPECT_EQ(ChooseNetworks({HostWith("172.16.3.1", 24), HostWith("172.18.5.1", 24)}).include,
            "172.16.3.0/24,172.18.5.0/24");
}

// Podman's 10.88.0.1 lies in a 10.0.0.0/8.
TEST(HostNetworks, ANetworkThatHoldsASharedAddressIsCutDownToTheHosts) {
  HostInterfaces a = HostWith("10.0.0.4", 8), b = HostWith("10.0.0.9", 8);
  for (HostInterfaces* host : {&a, &b}) host->addresses.push_back(InterfaceAddress("podman0", "10.88.0.1", 16));
  EXPECT_EQ(ChooseNetworks({a, b}).include, "10.0.0.0/28");
  HostInterfaces far = HostWith("10.200.0.9", 8);
  far.addresses.push_back(InterfaceAddress("podman0", "10.88.0.1", 16));
  EXPECT_EQ(ChooseNetworks({a, far}).include, "10.0.0.4/31,10.200.0.8/31");
}

// Open MPI 4.1 takes /32 for every address.
TEST(HostNetworks, NoNetworkIsSmallerThanOpenMpiCanTell) {
  EXPECT_EQ(NetworkText("10.77.2.3", 32), "10.77.2.2/31");
  EXPECT_EQ(NetworkText("10.77.2.3", 20), "10.77.0.0/20");
  EXPECT_EQ(NetworkText("fd00::1", 64), "");
}

TEST(HostNetworks, Ipv6IsToldByTheInterfacesBeside) {
  EXPECT_EQ(ChooseNetworks({HostWith("fd00:1::1", 64), HostWith("fd00:2::1", 64, "enp1s0")}),
            (Networks{.include = "", .exclude = "docker0,lo", .ipv6 = true}));
}

TEST(HostNetworks, WhatNoSettingSaysIsLeftToOpenMpi) {
  EXPECT_TRUE(ChooseNetworks({HostWith("fd00:1::1", 64), HostWith("10.0.0.2", 24)}).empty());
  HostInterfaces translated = HostWith("10.0.0.2", 24);
  translated.used = {"192.0.2.1"};  // an address that the host does not know of
  EXPECT_TRUE(ChooseNetworks({HostWith("10.0.0.1", 24), translated}).empty());
  EXPECT_TRUE(ChooseNetworks({}).empty());
}

TEST(HostNetworks, AddressesAreSharedBetweenMachinesNotBetweenNamesOfOne) {
  const HostInterfaces a = HostWith("10.0.0.1", 24), b = HostWith("10.0.0.2", 24);
  EXPECT_THAT(SharedAddresses({a, b, b}), ElementsAre("172.17.0.1"));
  EXPECT_THAT(SharedAddresses({a, a}), IsEmpty());
}

TEST(HostNetworks, AddressesAreTriedByNameThenByNetworkThenTheOthers) {
  const std::vector<pb::HostAddress> addresses = {
      InterfaceAddress("lo", "127.0.0.1", 8),   InterfaceAddress("docker0", "172.17.0.1", 16),
      InterfaceAddress("eth3", "fd00::2", 64),  InterfaceAddress("eth2", "192.168.0.2", 24),
      InterfaceAddress("eth1", "10.1.0.2", 24), InterfaceAddress("eth0", "10.0.0.2", 24)};
  const std::vector<pb::HostAddress> own = {InterfaceAddress("eth1", "10.1.0.1", 24)};
  EXPECT_THAT(AddressesToTry(addresses, {"192.0.2.7", "10.0.0.2"}, own, {"172.17.0.1"}),
              ElementsAre("10.0.0.2", "10.1.0.2", "192.168.0.2", "fd00::2"));
  EXPECT_THAT(AddressesToTry({addresses[0], addresses[1]}, {}, own, {"172.17.0.1"}), ElementsAre("172.17.0.1"));
  EXPECT_THAT(AddressesToTry({addresses[0]}, {}, own, {}), IsEmpty());
}

constexpr char kHere[] = "127.0.0.1";
constexpr int kMostRounds = 20000;  // of a millisecond

// Until `done`, or the test has failed.
void Until(const std::function<bool()>& done) {
  int rounds = 0;
  while (!done() && ++rounds < kMostRounds) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_LT(rounds, kMostRounds);
}

std::unique_ptr<TrialServer> Listening() { return TrialServer::Listen().value(); }

TEST(TcpTrial, PassesWithBytesOfBothEnds) {
  const std::unique_ptr<TrialServer> server = Listening();
  TcpTrial trial(kHere, server->port(), server->token(), TrialKind::kTrial);
  Until([&] {
    server->Advance();
    trial.Advance();
    return trial.ended();
  });
  EXPECT_TRUE(trial.passed()) << trial.error();
  EXPECT_EQ(trial.own_address(), kHere);
  EXPECT_EQ(server->TakeControl(), std::nullopt);
}

TEST(TcpTrial, KeepsAConnectionForControlAndItsMessages) {
  const std::unique_ptr<TrialServer> server = Listening();
  TcpTrial trial(kHere, server->port(), server->token(), TrialKind::kControl);
  std::optional<int> other;
  Until([&] {
    server->Advance();
    trial.Advance();
    if (!other.has_value()) other = server->TakeControl();
    return trial.ended() && other.has_value();
  });
  ASSERT_TRUE(trial.passed() && other.has_value()) << trial.error();
  auto ours = std::make_unique<MessageChannel>(trial.Release());
  MessageChannel theirs(*other);
  const std::string longest(MessageChannel::kMostMessageBytes, 'x');
  for (const std::string& message : {std::string(), std::string("abc"), longest}) EXPECT_TRUE(ours->Send(message));
  std::vector<std::string> got;
  Until([&] {
    EXPECT_TRUE(theirs.Receive());
    while (std::optional<std::string> message = theirs.Next()) got.push_back(*std::move(message));
    return got.size() >= 3;
  });
  EXPECT_THAT(got, ElementsAre("", "abc", longest));
  ours.reset();
  Until([&] { return !theirs.Receive(); });
}

TEST(TcpTrial, AMessageThatIsTooLongEndsTheChannel) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  MessageChannel channel(ends[0]);
  ASSERT_EQ(send(ends[1], "\xff\xff\xff\x7fx", 5, 0), 5);
  EXPECT_FALSE(channel.Receive());
  close(ends[1]);
}

TEST(TcpTrial, IsOfTheServerThatWasMeant) {
  const std::unique_ptr<TrialServer> server = Listening();
  TcpTrial trial(kHere, server->port(), std::string(16, 'x'), TrialKind::kTrial);
  Until([&] {
    server->Advance();
    trial.Advance();
    return trial.ended();
  });
  EXPECT_FALSE(trial.passed());
  EXPECT_EQ(trial.step(), TrialStep::kGreeting);
}

TEST(TcpTrial, SaysHowFarItCame) {
  int closed = 0;
  { closed = Listening()->port(); }
  TcpTrial refused(kHere, closed, std::string(16, 'x'), TrialKind::kTrial);
  // Accepted by the kernel, and never answered.
  const std::unique_ptr<TrialServer> silent = Listening();
  TcpTrial unanswered(kHere, silent->port(), silent->token(), TrialKind::kTrial, absl::Milliseconds(50));
  Until([&] {
    refused.Advance();
    unanswered.Advance();
    return refused.ended() && unanswered.ended();
  });
  EXPECT_EQ(refused.step(), TrialStep::kConnecting);
  EXPECT_EQ(refused.error(), "Connection refused");
  EXPECT_EQ(unanswered.step(), TrialStep::kGreeting);
  EXPECT_EQ(unanswered.error(), "no answer in 50ms");
}

// Hosts that all lie on this machine, at its own address, and say of each order what `Outcome` says.
struct NetworkTrialTest : ::testing::Test {
  struct Fake {
    std::unique_ptr<TrialServer> server;
    std::vector<std::unique_ptr<MessageChannel>> controls;
  };

  void SetUp() override {
    for (pb::HostAddress& address : OwnAddresses()) {
      if (!address.loopback()) addresses_.push_back(std::move(address));
    }
    if (addresses_.empty()) GTEST_SKIP() << "this machine has no address beside that of its loopback";
  }

  void AddHost(const std::string& name, bool spare = false) {
    hosts_.push_back({.slots = {.name = name, .slots = 1, .spare = spare}});
    fakes_[name].server = Listening();
    HostAnswer answer;
    answer.host = name;
    answer.report.emplace();
    answer.report->mutable_addresses()->Assign(addresses_.begin(), addresses_.end());
    answer.report->set_trial_port(fakes_[name].server->port());
    answer.report->set_trial_token(fakes_[name].server->token());
    answers_.push_back(std::move(answer));
  }

  // `outcome`: of an order from a host to the host of a token; no name: to this one.
  using Outcome = std::function<TrialStep(const std::string& from, const std::string& to)>;
  std::unique_ptr<NetworkTrial> Run(int stages, const Outcome& outcome) {
    auto trial = std::make_unique<NetworkTrial>(hosts_, stages, std::set<std::string>(), answers_);
    Until([&] {
      trial->Advance();
      for (auto& [name, fake] : fakes_) Serve(name, &fake, outcome);
      return trial->ended();
    });
    return trial;
  }

  void Serve(const std::string& name, Fake* fake, const Outcome& outcome) {
    fake->server->Advance();
    while (const std::optional<int> control = fake->server->TakeControl()) {
      fake->controls.push_back(std::make_unique<MessageChannel>(*control));
    }
    for (const auto& control : fake->controls) Answer(name, control.get(), outcome);
  }
  void Answer(const std::string& name, MessageChannel* control, const Outcome& outcome) {
    if (!control->Receive()) return;
    while (const std::optional<std::string> message = control->Next()) {
      pb::TrialOrder order;
      ASSERT_TRUE(order.ParseFromString(*message));
      std::string to;
      for (const auto& [other, of_other] : fakes_) {
        if (of_other.server->token() == order.token()) to = other;
      }
      orders_.push_back(absl::StrCat(name, ">", to));
      pb::TrialOutcome answer;
      answer.set_id(order.id());
      answer.set_step(static_cast<int>(outcome(name, to)));
      answer.set_error("no answer in 6s");
      EXPECT_TRUE(control->Send(answer.SerializeAsString()));
    }
  }
  static TrialStep Passes(const std::string&, const std::string&) { return TrialStep::kPassed; }

  std::vector<pb::HostAddress> addresses_;
  std::vector<LaunchHost> hosts_;
  std::vector<HostAnswer> answers_;
  std::map<std::string, Fake> fakes_;
  std::vector<std::string> orders_;
};

TEST_F(NetworkTrialTest, TriesThisHostWithAllAndNeighboursWithEachOther) {
  for (const char* name : {"192.0.2.1", "192.0.2.2", "192.0.2.3"}) AddHost(name);
  AddHost("192.0.2.4", /*spare=*/true);
  const std::unique_ptr<NetworkTrial> trial = Run(3, Passes);
  EXPECT_THAT(trial->unreachable(), IsEmpty());
  EXPECT_THAT(orders_, ::testing::UnorderedElementsAre("192.0.2.1>", "192.0.2.2>", "192.0.2.3>", "192.0.2.4>",
                                                       "192.0.2.1>192.0.2.2", "192.0.2.2>192.0.2.1",
                                                       "192.0.2.2>192.0.2.3", "192.0.2.3>192.0.2.2"));
  EXPECT_EQ(trial->Paths().size(), 4u);
}

TEST_F(NetworkTrialTest, AHostThatNeighboursCannotReachIsLeftOutAndTheNewNeighboursAreTried) {
  for (const char* name : {"192.0.2.1", "192.0.2.2", "192.0.2.3"}) AddHost(name);
  const std::unique_ptr<NetworkTrial> trial = Run(3, [](const std::string& from, const std::string& to) {
    return from == "192.0.2.1" && to == "192.0.2.2" ? TrialStep::kConnecting : TrialStep::kPassed;
  });
  EXPECT_THAT(trial->unreachable(), ElementsAre(Key("192.0.2.2")));
  EXPECT_THAT(trial->unreachable().at("192.0.2.2"), HasSubstr("192.0.2.1 cannot connect to 192.0.2.2"));
  EXPECT_THAT(orders_, ::testing::IsSupersetOf({"192.0.2.1>192.0.2.3", "192.0.2.3>192.0.2.1"}));
}

TEST_F(NetworkTrialTest, AHostThatCannotReachThisOneIsNamedWithWhatIsLost) {
  AddHost("192.0.2.1");
  AddHost("192.0.2.2");
  const std::unique_ptr<NetworkTrial> trial = Run(2, [](const std::string& from, const std::string& to) {
    return from == "192.0.2.2" && to.empty() ? TrialStep::kSending : TrialStep::kPassed;
  });
  EXPECT_THAT(trial->unreachable(), ElementsAre(Key("192.0.2.2")));
  EXPECT_THAT(trial->unreachable().at("192.0.2.2"), HasSubstr("small messages from 192.0.2.2 to "));
  EXPECT_THAT(trial->unreachable().at("192.0.2.2"), HasSubstr("`ping -M do -s "));
}

TEST_F(NetworkTrialTest, HostsThatDoNotStayAreTakenAsTheyAre) {
  AddHost("192.0.2.1");
  AddHost("192.0.2.2");
  answers_[0].ended = true;
  answers_[1].report->set_trial_port(0);
  const std::unique_ptr<NetworkTrial> trial = Run(2, Passes);
  EXPECT_THAT(trial->unreachable(), IsEmpty());
  EXPECT_TRUE(trial->networks().empty());
  EXPECT_THAT(orders_, IsEmpty());
}

TEST_F(NetworkTrialTest, AHostThatGoesAwayIsLeftOut) {
  AddHost("192.0.2.1");
  AddHost("192.0.2.2");
  NetworkTrial trial(hosts_, 2, {}, answers_);
  Until([&] {
    trial.Advance();
    Serve("192.0.2.1", &fakes_["192.0.2.1"], Passes);
    Fake& leaving = fakes_["192.0.2.2"];
    leaving.server->Advance();
    while (const std::optional<int> control = leaving.server->TakeControl()) close(*control);
    return trial.ended();
  });
  EXPECT_THAT(trial.unreachable(), ElementsAre(Key("192.0.2.2")));
  EXPECT_THAT(trial.unreachable().at("192.0.2.2"), HasSubstr("went away"));
}

}  // namespace
}  // namespace stagecoach
