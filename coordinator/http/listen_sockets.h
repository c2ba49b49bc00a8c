#ifndef STAGECOACH_COORDINATOR_HTTP_LISTEN_SOCKETS_H_
#define STAGECOACH_COORDINATOR_HTTP_LISTEN_SOCKETS_H_

// Where a server listens. Private to this folder.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/http/boost.h"

namespace stagecoach {

// All addresses of a name (localhost has two), or the one of an address, with or without brackets. kInvalidArgument.
absl::StatusOr<std::vector<boost::asio::ip::tcp::endpoint>> ResolveHost(absl::string_view host, int port);

// Listens on each of them, with one port for all; those that this machine lacks are left out as long as one remains.
// kAlreadyExists, kPermissionDenied, kInvalidArgument: the address, and what next.
absl::StatusOr<std::vector<boost::asio::ip::tcp::acceptor>> ListenOn(
    boost::asio::io_context* io, std::vector<boost::asio::ip::tcp::endpoint> endpoints);

// As it stands in a URL: "127.0.0.1", "[::1]".
std::string UrlHost(const boost::asio::ip::address& address);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_LISTEN_SOCKETS_H_
