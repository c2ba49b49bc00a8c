#ifndef STAGECOACH_COMMON_NET_SOCKET_ADDRESS_H_
#define STAGECOACH_COMMON_NET_SOCKET_ADDRESS_H_

// Addresses as the system's calls take them.

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>

namespace stagecoach {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// Absent for a text that is no address.
std::optional<SocketAddress> ParseAddress(const std::string& address, int port);

// The address alone; one of IPv4 that came through a socket of IPv6 is shown as IPv4's. Empty for other families.
std::string AddressText(const sockaddr* address);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_NET_SOCKET_ADDRESS_H_
