#include "coordinator/launch/hosts/host_networks.h"

#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/net/addresses.h"

namespace stagecoach {
namespace {

constexpr int kMostBits = 31;  // of a network that Open MPI is told
constexpr int kLeastBits = 8;  // of one that covers several networks
constexpr size_t kMostTried = 4;

// In host byte order; absent for what is not of IPv4.
std::optional<uint32_t> Ipv4Number(const std::string& address) {
  const std::optional<SocketAddress> parsed = ParseAddress(address, 0);
  if (!parsed.has_value() || parsed->storage.ss_family != AF_INET) return std::nullopt;
  sockaddr_in in;
  std::memcpy(&in, &parsed->storage, sizeof(in));
  return ntohl(in.sin_addr.s_addr);
}

uint32_t MaskOf(int bits) { return bits <= 0 ? 0 : ~uint32_t{0} << (32 - std::min(bits, 32)); }

// All hosts' addresses that are used, as their hosts describe them; absent where one does not know its own.
std::optional<std::vector<pb::HostAddress>> UsedAddresses(const std::vector<HostInterfaces>& hosts) {
  std::vector<pb::HostAddress> all;
  for (const HostInterfaces& host : hosts) {
    size_t found = 0;
    for (const pb::HostAddress& address : host.addresses) {
      if (!host.used.contains(address.address())) continue;
      ++found;
      all.push_back(address);
    }
    if (found != host.used.size()) return std::nullopt;
  }
  return all;
}

// Whether a network holds an address that is not used, of those that `counts` says.
template <typename Predicate>
bool HoldsUnused(const std::vector<HostInterfaces>& hosts, const std::string& address, int bits, Predicate counts) {
  return std::any_of(hosts.begin(), hosts.end(), [&](const HostInterfaces& host) {
    return std::any_of(host.addresses.begin(), host.addresses.end(), [&](const pb::HostAddress& other) {
      return !host.used.contains(other.address()) && counts(other) && IsInNetwork(other.address(), address, bits);
    });
  });
}

// The one network that holds all addresses and nothing that is not used: no host is told of a network that it has not.
std::string CoveringNetwork(const std::vector<HostInterfaces>& hosts, const std::vector<pb::HostAddress>& used) {
  const uint32_t first = *Ipv4Number(used.front().address());
  int bits = kMostBits;
  for (const pb::HostAddress& address : used) {
    bits = std::min(bits, std::countl_zero(first ^ *Ipv4Number(address.address())));
  }
  if (bits < kLeastBits) return "";
  const bool alone = !HoldsUnused(hosts, used.front().address(), bits, [](const pb::HostAddress&) { return true; });
  return alone ? NetworkText(used.front().address(), bits) : "";
}

std::string Ipv4Networks(const std::vector<HostInterfaces>& hosts, const std::vector<pb::HostAddress>& used) {
  const std::set<std::string> shared = SharedAddresses(hosts);
  const auto leads_nowhere = [&](const pb::HostAddress& address) {
    return address.loopback() || shared.contains(address.address());
  };
  std::vector<std::string> networks;
  for (const pb::HostAddress& address : used) {
    const bool whole = !HoldsUnused(hosts, address.address(), address.prefix_bits(), leads_nowhere);
    std::string network = NetworkText(address.address(), whole ? address.prefix_bits() : kMostBits);
    if (std::find(networks.begin(), networks.end(), network) == networks.end()) networks.push_back(std::move(network));
  }
  if (networks.size() == 1) return networks.front();
  const std::string covering = CoveringNetwork(hosts, used);
  return !covering.empty() ? covering : absl::StrJoin(networks, ",");
}

// Open MPI takes networks of IPv4 alone.
std::string InterfacesBeside(const std::vector<HostInterfaces>& hosts, const std::vector<pb::HostAddress>& used) {
  std::set<std::string> beside;
  for (const HostInterfaces& host : hosts) {
    for (const pb::HostAddress& address : host.addresses) beside.insert(address.interface());
  }
  for (const pb::HostAddress& address : used) beside.erase(address.interface());
  return absl::StrJoin(beside, ",");
}

}  // namespace

std::string NetworkText(const std::string& address, int prefix_bits) {
  const std::optional<uint32_t> number = Ipv4Number(address);
  if (!number.has_value()) return "";
  const int bits = std::min(prefix_bits, kMostBits);
  const uint32_t network = *number & MaskOf(bits);
  return absl::StrCat(network >> 24, ".", (network >> 16) & 255, ".", (network >> 8) & 255, ".", network & 255, "/",
                      bits);
}

bool IsInNetwork(const std::string& address, const std::string& network_address, int prefix_bits) {
  const std::optional<uint32_t> number = Ipv4Number(address), network = Ipv4Number(network_address);
  return number.has_value() && network.has_value() && ((*number ^ *network) & MaskOf(prefix_bits)) == 0;
}

std::set<std::string> SharedAddresses(const std::vector<HostInterfaces>& hosts) {
  std::set<std::set<std::string>> machines;
  for (const HostInterfaces& host : hosts) {
    std::set<std::string> machine;
    for (const pb::HostAddress& address : host.addresses) machine.insert(address.address());
    machines.insert(std::move(machine));
  }
  std::map<std::string, int> counts;
  std::set<std::string> shared;
  for (const std::set<std::string>& machine : machines) {
    for (const std::string& address : machine) {
      if (++counts[address] > 1 && !IsLoopbackAddress(address)) shared.insert(address);
    }
  }
  return shared;
}

std::vector<std::string> AddressesToTry(const std::vector<pb::HostAddress>& addresses,
                                        const std::vector<std::string>& of_its_name,
                                        const std::vector<pb::HostAddress>& own, const std::set<std::string>& shared) {
  const auto rank = [&](const pb::HostAddress& address) {
    const auto named = std::find(of_its_name.begin(), of_its_name.end(), address.address());
    const bool near = std::any_of(own.begin(), own.end(), [&](const pb::HostAddress& mine) {
      return !mine.loopback() && IsInNetwork(address.address(), mine.address(), mine.prefix_bits());
    });
    const int place = named != of_its_name.end() ? 0 : near ? 1 : 2;
    return std::pair(place, IsIpv6(address.address()));
  };
  std::vector<pb::HostAddress> candidates;
  for (const bool also_shared : {false, true}) {
    for (const pb::HostAddress& address : addresses) {
      const bool may = !address.loopback() && !IsLoopbackAddress(address.address()) &&
                       (also_shared || !shared.contains(address.address()));
      if (may) candidates.push_back(address);
    }
    if (!candidates.empty()) break;
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const pb::HostAddress& a, const pb::HostAddress& b) { return rank(a) < rank(b); });
  std::vector<std::string> tried;
  for (size_t i = 0; i < candidates.size() && i < kMostTried; ++i) tried.push_back(candidates[i].address());
  return tried;
}

Networks ChooseNetworks(const std::vector<HostInterfaces>& hosts) {
  const std::optional<std::vector<pb::HostAddress>> used = UsedAddresses(hosts);
  if (!used.has_value() || used->empty()) return {};
  const auto ipv6 = std::count_if(used->begin(), used->end(),
                                  [](const pb::HostAddress& address) { return IsIpv6(address.address()); });
  if (ipv6 == 0) return {.include = Ipv4Networks(hosts, *used)};
  if (ipv6 != static_cast<ptrdiff_t>(used->size())) return {};
  return {.exclude = InterfacesBeside(hosts, *used), .ipv6 = true};
}

bool IsThisHost(const std::string& name) {
  if (name == "localhost") return true;
  char own[256] = {};
  if (gethostname(own, sizeof(own) - 1) == 0) {
    const std::string full = own;
    if (name == full || name == full.substr(0, full.find('.'))) return true;
  }
  const std::vector<pb::HostAddress> own_addresses = OwnAddresses();
  const std::vector<std::string> addresses = AddressesOfName(name);
  return std::any_of(addresses.begin(), addresses.end(), [&](const std::string& address) {
    return IsLoopbackAddress(address) || std::any_of(own_addresses.begin(), own_addresses.end(),
                                                     [&](const auto& own) { return own.address() == address; });
  });
}

std::string NetworksTowards(const std::vector<std::string>& hosts) {
  const std::vector<pb::HostAddress> own_addresses = OwnAddresses();
  std::vector<std::string> networks;
  const auto add = [&](const std::string& network) {
    if (std::find(networks.begin(), networks.end(), network) == networks.end()) networks.push_back(network);
  };
  for (const std::string& host : hosts) {
    const std::vector<std::string> addresses = AddressesOfName(host, /*also_ipv6=*/false);
    const auto address = std::find_if(addresses.begin(), addresses.end(), std::not_fn(IsLoopbackAddress));
    if (address == addresses.end()) return "";
    const std::string from = AddressTowards(*address);
    const auto own = std::find_if(own_addresses.begin(), own_addresses.end(), [&](const pb::HostAddress& a) {
      return a.address() == from && !a.loopback() && a.prefix_bits() > 0;
    });
    if (own == own_addresses.end()) return "";
    add(NetworkText(own->address(), own->prefix_bits()));
    if (!IsInNetwork(*address, own->address(), own->prefix_bits())) add(NetworkText(*address, 32));
  }
  return absl::StrJoin(networks, ",");
}

}  // namespace stagecoach
