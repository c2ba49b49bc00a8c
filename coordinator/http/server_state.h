#ifndef STAGECOACH_COORDINATOR_HTTP_SERVER_STATE_H_
#define STAGECOACH_COORDINATOR_HTTP_SERVER_STATE_H_

// What the connections of one server share. I/O thread; private to this folder.

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "coordinator/http/access_rules.h"
#include "coordinator/http/boost.h"
#include "coordinator/http/http_server.h"

namespace stagecoach {

class Connection;

struct ServerState {
  ServerState(HttpServerOptions server_options, HttpHandler* server_handler, bool loopback);

  // Of these that are open the largest waiters are cut, until all together wait for less than the low mark.
  void CutLargestWaiters();
  std::string DrawId();
  // For who finds no room: not all at once again.
  int DrawRetrySeconds();

  const HttpServerOptions options;
  HttpHandler* const handler;
  const AccessRules rules;
  const uint64_t id_salt;

  boost::asio::io_context io{1};
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::vector<char> scratch;  // one read of any socket
  HttpCounters counters;      // without what is counted from the connections
  int64_t bodies_bytes = 0;   // of requests that are not complete
  int64_t pending_bytes = 0;  // of all clients, with what is kept back for them
  int64_t streams = 0;
  int64_t ids = 0;
  uint32_t retries = 0;   // told so far, modulo 2^32
  bool bodies_on = true;  // see HttpServer::ReadBodies
  bool accepting = true;  // off: no second request on a connection
  bool stopping = false;  // a connection that has nothing left to write is closed
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_SERVER_STATE_H_
