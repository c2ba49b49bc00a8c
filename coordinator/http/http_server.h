#ifndef STAGECOACH_COORDINATOR_HTTP_HTTP_SERVER_H_
#define STAGECOACH_COORDINATOR_HTTP_HTTP_SERVER_H_

// An HTTP/1.1 server on one thread: accepts, reads and checks requests within limits, hands them to a handler and
// writes its answers, streams among them. A client can do no more harm than to lose its own connection: every wait has
// a deadline, every buffer a limit, and a closed connection is noticed while nothing is written to it. No TLS, no
// compression, no WebSocket. Nothing throws.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/http/api_keys.h"
#include "coordinator/http/http_error.h"
#include "coordinator/http/http_handler.h"

namespace stagecoach {

struct HttpLimits {
  // Beyond: the connection that idled longest is closed, with none idle the new one gets 503. Fewer where this process
  // may not open as many files.
  int connections = 1024;
  int64_t header_bytes = 16 << 10, request_line_bytes = 8 << 10;  // 431
  int header_fields = 100;                                        // 431
  int64_t body_bytes = 8 << 20;                                   // 413
  int64_t all_bodies_bytes = 256 << 20;                           // of requests that are being read, together: 503

  absl::Duration header_time = absl::Seconds(10);  // from the first byte to the end of the header: closed
  absl::Duration body_time = absl::Seconds(30);    // and a second more for each body_rate bytes that came: 408
  int64_t body_rate = 1 << 10;                     // bytes/s
  absl::Duration idle_time = absl::Seconds(60);    // without a request: closed
  absl::Duration linger_time = absl::Seconds(2);   // what a refused client still sends is read and dropped for as long

  // Bytes written and not yet taken, of one stream and of all clients.
  int64_t slow_bytes = 256 << 10, drained_bytes = 64 << 10, client_bytes = 1 << 20;
  absl::Duration slow_time = absl::Seconds(60);                        // without one byte taken: cut, counted as slow
  int64_t all_clients_bytes = 64 << 20, all_drained_bytes = 48 << 20;  // the largest waiters are cut
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // a name, IPv4 or IPv6 (with or without brackets)
  int port = 8080;                 // 0: any
  // Bound to loopback, a request's Host must be localhost, 127.0.0.1, [::1] (any port) or one of these, exactly; with a
  // port it has to be that one. Bound elsewhere the same holds as soon as there is one.
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> cors_origins;  // "https://chat.example", exactly; "*" is none
  std::shared_ptr<const ApiKeys> keys;    // null or empty: everybody is "anonymous"
  absl::Duration sse_ping_interval = absl::Seconds(15);
  absl::Duration tick = absl::Seconds(1);  // deadlines are looked at as often; OnTick
  HttpLimits limits;
  HttpErrorWriter write_error = WriteHttpError;  // of the server's own refusals
};

// For metrics.
struct HttpCounters {
  int64_t accepted = 0;
  // Of the connections that are open. Reading: a request; answering: waits for the handler or is written.
  int64_t idle = 0, reading = 0, answering = 0, closing = 0;
  int64_t streams = 0;        // open ones
  int64_t pending_bytes = 0;  // written and not yet taken, or kept back for the slow, all clients
  int64_t body_bytes = 0;     // of requests that are being read
  int64_t gone_clients = 0;   // closed by the client before the answer was complete
  // Closed by the server, by why.
  int64_t slow_clients = 0;  // took nothing for too long, or too little; the largest waiters included
  int64_t idle_closed = 0;   // idled too long, or made room for another
  int64_t header_timeouts = 0, body_timeouts = 0;
  int64_t malformed = 0;            // no HTTP, or such that nobody may rely on it
  int64_t refused_connections = 0;  // no room
};

class HttpServer {
 public:
  // Binds and listens; connections wait until Start. kInvalidArgument: no such address, or not one of this machine;
  // kAlreadyExists: the port is in use; kPermissionDenied. `handler` outlives the server. Raises this process's limit
  // of open files as far as limits.connections need it, or says that it cannot.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(HttpServerOptions options, HttpHandler* handler);

  virtual ~HttpServer() = default;  // as Stop(absl::ZeroDuration())

  virtual int port() const = 0;
  virtual std::string address() const = 0;  // "http://127.0.0.1:8080", for people
  virtual bool loopback() const = 0;        // only this machine reaches it

  // Starts the I/O thread. kResourceExhausted: there is no thread to be had.
  virtual absl::Status Start() = 0;

  // Runs `work` on the I/O thread, in the order of the calls; what was posted meanwhile runs as one turn. From any
  // thread; after Stop nothing runs any more and `work` is dropped.
  virtual void Post(std::function<void()> work) = 0;

  // The same once so long has passed, unless the server stops before. I/O thread.
  virtual void PostAfter(absl::Duration delay, std::function<void()> work) = 0;

  // Off: bodies of further requests stay in their sockets until it is on again, their time stands still. I/O thread.
  virtual void ReadBodies(bool on) = 0;

  // No new connections, and no second request on those that are there. Any thread.
  virtual void StopAccepting() = 0;

  // Stops accepting, waits up to `flush` until answers that are complete have left, closes everything (on_closed of
  // what is not complete) and ends the thread. Not from the I/O thread. Again: nothing.
  virtual void Stop(absl::Duration flush = absl::Seconds(2)) = 0;

  virtual HttpCounters counters() const = 0;  // I/O thread
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_HTTP_SERVER_H_
