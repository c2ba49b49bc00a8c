#include "coordinator/launch/local_host.h"

#include <unistd.h>

#include <algorithm>
#include <functional>

#include "absl/strings/str_join.h"
#include "common/net/addresses.h"
#include "coordinator/launch/host_networks.h"

namespace stagecoach {

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
