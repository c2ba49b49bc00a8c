#include "coordinator/launch/hosts/host_networks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace stagecoach
