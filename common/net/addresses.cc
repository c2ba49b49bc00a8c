#include "common/net/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "absl/strings/match.h"

namespace stagecoach {
namespace {

constexpr int kAnyPort = 9;  // of a socket that sends nothing

int PrefixBits(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  const uint8_t* bytes = nullptr;
  size_t size = 0;
  if (mask->sa_family == AF_INET6) {
    bytes = reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr;
    size = sizeof(in6_addr);
  } else {
    bytes = reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr);
    size = sizeof(in_addr);
  }
  int bits = 0;
  for (size_t i = 0; i < size; ++i) bits += std::popcount(bytes[i]);
  return bits;
}

int MtuOf(const char* interface) {
  const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return 0;
  ifreq request = {};
  std::strncpy(request.ifr_name, interface, sizeof(request.ifr_name) - 1);
  const bool known = ioctl(descriptor, SIOCGIFMTU, &request) == 0;
  close(descriptor);
  return known ? request.ifr_mtu : 0;
}

bool IsLinkLocal(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

std::optional<SocketAddress> ParseAddress(const std::string& address, int port) {
  SocketAddress parsed;
  auto* in = reinterpret_cast<sockaddr_in*>(&parsed.storage);
  auto* in6 = reinterpret_cast<sockaddr_in6*>(&parsed.storage);
  if (inet_pton(AF_INET, address.c_str(), &in->sin_addr) == 1) {
    in->sin_family = AF_INET;
    in->sin_port = htons(static_cast<uint16_t>(port));
    parsed.size = sizeof(*in);
    return parsed;
  }
  if (inet_pton(AF_INET6, address.c_str(), &in6->sin6_addr) == 1) {
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(static_cast<uint16_t>(port));
    parsed.size = sizeof(*in6);
    return parsed;
  }
  return std::nullopt;
}

std::string AddressText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& in6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&in6)) {
      inet_ntop(AF_INET, &in6.s6_addr[12], text, sizeof(text));
    } else {
      inet_ntop(AF_INET6, &in6, text, sizeof(text));
    }
  }
  return text;
}

std::vector<pb::HostAddress> OwnAddresses() {
  std::vector<pb::HostAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 || IsLinkLocal(entry->ifa_addr)) continue;
    const std::string text = AddressText(entry->ifa_addr);
    if (text.empty()) continue;
    pb::HostAddress address;
    address.set_interface(entry->ifa_name);
    address.set_address(text);
    address.set_prefix_bits(PrefixBits(entry->ifa_netmask));
    address.set_mtu(MtuOf(entry->ifa_name));
    address.set_loopback((entry->ifa_flags & IFF_LOOPBACK) != 0);
    addresses.push_back(std::move(address));
  }
  freeifaddrs(list);
  return addresses;
}

std::vector<std::string> AddressesOfName(const std::string& name, bool also_ipv6) {
  std::vector<std::string> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    if (family == AF_INET6 && !also_ipv6) continue;
    addrinfo hints = {};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    if (!addresses.empty() || getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) continue;
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
      std::string text = AddressText(entry->ai_addr);
      const bool is_new = std::find(addresses.begin(), addresses.end(), text) == addresses.end();
      if (!text.empty() && is_new) addresses.push_back(std::move(text));
    }
    freeaddrinfo(list);
  }
  return addresses;
}

std::string AddressTowards(const std::string& address) {
  const std::optional<SocketAddress> target = ParseAddress(address, kAnyPort);
  if (!target.has_value()) return "";
  const int descriptor = socket(target->get()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return "";
  SocketAddress own;
  own.size = sizeof(own.storage);
  const bool routed =
      connect(descriptor, target->get(), target->size) == 0 && getsockname(descriptor, own.get(), &own.size) == 0;
  close(descriptor);
  return routed ? AddressText(own.get()) : "";
}

bool IsIpv6(const std::string& address) { return absl::StrContains(address, ':'); }

bool IsLoopbackAddress(const std::string& address) { return absl::StartsWith(address, "127.") || address == "::1"; }

}  // namespace stagecoach
