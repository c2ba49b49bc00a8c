#include "coordinator/http/listen_sockets.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

using boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;

absl::StatusOr<tcp::acceptor> ListenOnOne(boost::asio::io_context* io, const tcp::endpoint& endpoint, bool v6_only) {
  tcp::acceptor acceptor(*io);
  ErrorCode error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && v6_only && endpoint.address().is_v6()) acceptor.set_option(boost::asio::ip::v6_only(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  if (!error) return acceptor;
  const std::string where = absl::StrCat("cannot listen on ", UrlHost(endpoint.address()), ":", endpoint.port(), ": ");
  if (error == boost::asio::error::address_in_use) {
    return absl::AlreadyExistsError(
        absl::StrCat(where, "the port is in use by another program; choose another port, or 0 for any that is free"));
  }
  if (error == boost::asio::error::access_denied) {
    return absl::PermissionDeniedError(absl::StrCat(where, "not permitted; choose a port of at least 1024"));
  }
  return absl::InvalidArgumentError(absl::StrCat(where, error.message(), "; choose an address of this machine"));
}

}  // namespace

std::string UrlHost(const boost::asio::ip::address& address) {
  ErrorCode error;
  const std::string text = address.to_string(error);
  return address.is_v6() ? absl::StrCat("[", text, "]") : text;
}

absl::StatusOr<std::vector<tcp::endpoint>> ResolveHost(absl::string_view host, int port) {
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("the port has to be from 0 to 65535, found ", port));
  }
  absl::string_view name = host;
  if (absl::ConsumePrefix(&name, "[")) absl::ConsumeSuffix(&name, "]");
  boost::asio::io_context io;
  tcp::resolver resolver(io);
  ErrorCode error;
  std::vector<tcp::endpoint> endpoints;
  if (!name.empty()) {
    for (const auto& entry :
         resolver.resolve(std::string(name), absl::StrCat(port), tcp::resolver::numeric_service, error)) {
      if (std::find(endpoints.begin(), endpoints.end(), entry.endpoint()) == endpoints.end()) {
        endpoints.push_back(entry.endpoint());
      }
    }
  }
  if (endpoints.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on host '", host,
                                                   "': ", error ? error.message() : "it has no address",
                                                   "; expected an address or a name of this machine"));
  }
  return endpoints;
}

absl::StatusOr<std::vector<tcp::acceptor>> ListenOn(boost::asio::io_context* io, std::vector<tcp::endpoint> endpoints) {
  std::vector<tcp::acceptor> acceptors;
  absl::Status lacking;
  for (tcp::endpoint& endpoint : endpoints) {
    ErrorCode error;
    if (!acceptors.empty()) endpoint.port(acceptors.front().local_endpoint(error).port());
    auto acceptor = ListenOnOne(io, endpoint, endpoints.size() > 1);
    if (acceptor.ok()) {
      acceptors.push_back(*std::move(acceptor));
    } else if (absl::IsInvalidArgument(acceptor.status())) {
      lacking = acceptor.status();
    } else {
      return acceptor.status();
    }
  }
  if (acceptors.empty()) return lacking;
  return acceptors;
}

}  // namespace stagecoach
