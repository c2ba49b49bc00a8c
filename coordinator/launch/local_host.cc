#include "coordinator/launch/local_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagecoach {
namespace {

struct Interface {
  uint32_t address;  // host byte order
  uint32_t mask;
};

uint32_t Ipv4(const sockaddr* address) {
  sockaddr_in in;
  std::memcpy(&in, address, sizeof(in));
  return ntohl(in.sin_addr.s_addr);
}

std::vector<Interface> Interfaces() {
  std::vector<Interface> interfaces;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0) continue;
    interfaces.push_back({Ipv4(entry->ifa_addr), Ipv4(entry->ifa_netmask)});
  }
  freeifaddrs(list);
  return interfaces;
}

bool IsLoopback(uint32_t address) { return (address >> 24) == 127; }

std::string NetworkText(const Interface& interface) {
  const uint32_t network = interface.address & interface.mask;
  return absl::StrCat(network >> 24, ".", (network >> 16) & 255, ".", (network >> 8) & 255, ".", network & 255, "/",
                      std::popcount(interface.mask));
}

}  // namespace

std::optional<uint32_t> AddressOf(const std::string& name) {
  addrinfo hints;
  std::memset(&hints, 0, sizeof(hints));
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0 || list == nullptr) return std::nullopt;
  const uint32_t address = Ipv4(list->ai_addr);
  freeaddrinfo(list);
  return address;
}

bool IsThisHost(const std::string& name) {
  if (name == "localhost") return true;
  char own[256] = {};
  if (gethostname(own, sizeof(own) - 1) == 0) {
    const std::string full = own;
    if (name == full || name == full.substr(0, full.find('.'))) return true;
  }
  const std::optional<uint32_t> address = AddressOf(name);
  if (!address.has_value()) return false;
  if (IsLoopback(*address)) return true;
  const std::vector<Interface> interfaces = Interfaces();
  return std::any_of(interfaces.begin(), interfaces.end(), [&](const Interface& i) { return i.address == *address; });
}

std::string NetworksTowards(const std::vector<std::string>& hosts) {
  const std::vector<Interface> interfaces = Interfaces();
  std::vector<std::string> networks;
  for (const std::string& host : hosts) {
    const std::optional<uint32_t> address = AddressOf(host);
    if (!address.has_value()) return "";
    const auto towards = std::find_if(interfaces.begin(), interfaces.end(), [&](const Interface& i) {
      return !IsLoopback(i.address) && i.mask != 0 && (i.address & i.mask) == (*address & i.mask);
    });
    if (towards == interfaces.end()) return "";
    const std::string text = NetworkText(*towards);
    if (std::find(networks.begin(), networks.end(), text) == networks.end()) networks.push_back(text);
  }
  return absl::StrJoin(networks, ",");
}

}  // namespace stagecoach
