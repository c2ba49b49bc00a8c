#ifndef STAGECOACH_COMMON_NET_ADDRESSES_H_
#define STAGECOACH_COMMON_NET_ADDRESSES_H_

// Addresses of this host and of names. Addresses are texts ("10.1.2.3", "fd00::1"). Thread-safe.

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "proto/network.pb.h"

namespace stagecoach {

// IPv4 and IPv6 addresses of every interface that is up, except IPv6's link-local ones, which mean nothing on another
// host.
std::vector<pb::HostAddress> OwnAddresses();

// The addresses of a name: IPv4, or IPv6 if it has no IPv4; none if it cannot be resolved. An address stands for
// itself. A lost query to a name server costs seconds, so none is made without need.
std::vector<std::string> AddressesOfName(const std::string& name, bool also_ipv6 = true);

// Our address that packets to this address leave from; empty without a route. Sends nothing.
std::string AddressTowards(const std::string& address);

bool IsIpv6(const std::string& address);
// 127.0.0.0/8 and ::1.
bool IsLoopbackAddress(const std::string& address);

// An address as the system's calls take it.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// Absent for a text that is no address.
std::optional<SocketAddress> ParseAddress(const std::string& address, int port);

// Without the port; an IPv4 address mapped to IPv6 is shown as IPv4. Empty for other families.
std::string AddressText(const sockaddr* address);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_NET_ADDRESSES_H_
