#ifndef STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_SERVER_H_
#define STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_SERVER_H_

// An HTTP/1.1 server on one thread: accepts connections, reads and checks requests within limits, hands them to a
// handler and writes its answers, streams included. A client can harm only its own connection: every wait has a
// deadline, every buffer a limit, and a closed connection is noticed even while nothing is written to it. No TLS,
// compression or WebSocket. Nothing throws. The handler and its exchanges run on the I/O thread and must not block it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/serve/http/api_keys.h"
#include "coordinator/serve/http/http_request.h"

namespace stagecoach {

class Connection;

// One request and its answer: either Respond, or BeginStream, any number of Write, and End. After the client has gone,
// calls do nothing. All that is written in one turn of the I/O thread (one OnRequest, one batch of posted functions,
// one tick) is sent together. Destroyed unanswered, it answers 500. It may outlive the connection and the server.
class HttpExchange {
 public:
  HttpExchange(Connection* connection, HttpRequest request) : connection_(connection), request_(std::move(request)) {}
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;

  const HttpRequest& request() const { return request_; }
  std::string TakeBody();  // the request's body, without a copy; it is empty from then on

  void Respond(const HttpResponse& response);
  // Sends the head and the first bytes at once.
  void BeginStream(const HttpStreamHead& head);
  void Write(absl::string_view bytes);
  void End();  // the connection is kept for the next request
  // Cuts the connection, which a client sees as a failure. Bytes written before may be lost.
  void Abort();

  // Whether writing is possible: false after Respond, End and Abort, and once the client has gone or was cut.
  bool open() const { return connection_ != nullptr; }

  // From the high mark of unsent bytes (256 KiB) until the low one (64 KiB): write few large events. A client with more
  // than the limit (1 MiB) that still grows is cut.
  bool slow() const;
  // Tells how many bytes the handler keeps back for a slow client; they count towards the limits of unsent bytes.
  void set_kept_bytes(int64_t bytes);

  struct Callbacks {
    // Called once if client or server end before the answer is complete; not from within a call above.
    std::function<void()> on_closed;
    // Called whenever the client is no longer slow.
    std::function<void()> on_drained;
  };
  void set_on_closed(std::function<void()> on_closed) { callbacks_.on_closed = std::move(on_closed); }
  void set_on_drained(std::function<void()> on_drained) { callbacks_.on_drained = std::move(on_drained); }

  // For the connection when it lets go: the callbacks, which may be all that holds this object.
  Callbacks Detach();
  std::function<void()> on_drained() const { return callbacks_.on_drained; }

 private:
  Connection* connection_;  // null: not open
  HttpRequest request_;
  bool streaming_ = false;
  Callbacks callbacks_;
};

// The handler's verdict on a request's head.
struct HeadVerdict {
  std::optional<HttpResponse> refusal;  // answered at once, the body is not read
  int64_t max_body_bytes = -1;          // -1: the server's own limit; it can only be lower
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Before the body is read (and before 100-continue): refuses by route, method, key, type and load. The Host was
  // checked; CORS preflights are answered already.
  virtual HeadVerdict OnHead(const HttpRequest& request) = 0;
  // A complete request, to be answered now, or later through the kept exchange.
  virtual void OnRequest(std::shared_ptr<HttpExchange> exchange) = 0;
  // For counters and the access log: every request as its answer begins, refused ones included. One that could not be
  // parsed has an empty method and path.
  virtual void OnAnswer(const HttpRequest& /*request*/, int /*status*/) {}
  // Before OnAnswer, for a request that the server answers with an error itself, or that was left without an answer (a
  // 500): the body of that, JSON. The request is as far as it was read, with an empty path when its head was not.
  virtual std::string OnRefusal(const HttpRequest& request, const HttpError& error) = 0;
  virtual void OnTick() {}  // each second
};

struct HttpLimits {
  // Beyond, the longest idle connection is closed; with none idle, the new one gets 503. Fewer if this process may not
  // open as many files.
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
  // Bound to loopback, a request's Host must be localhost, 127.0.0.1, [::1] (any port) or exactly one of these, with
  // its port if it has one. Bound elsewhere, that holds if the list is not empty.
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> cors_origins;  // "https://chat.example", exactly; "*" is none
  std::shared_ptr<const ApiKeys> keys;    // null or empty: everybody is "anonymous"
  absl::Duration sse_ping_interval = absl::Seconds(15);
  absl::Duration tick = absl::Seconds(1);  // deadlines are looked at as often; OnTick
  HttpLimits limits;
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
  // Binds and listens; connections wait until Start. kInvalidArgument: no such address, or not of this machine;
  // kAlreadyExists: the port is in use; kPermissionDenied. `handler` outlives the server. Raises this process's limit
  // of open files for limits.connections, or logs that it cannot.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(HttpServerOptions options, HttpHandler* handler);

  virtual ~HttpServer() = default;  // as Stop(absl::ZeroDuration())

  virtual int port() const = 0;
  virtual std::string address() const = 0;  // "http://127.0.0.1:8080", for people
  virtual bool loopback() const = 0;        // only this machine reaches it

  // Starts the I/O thread. kResourceExhausted: there is no thread to be had.
  virtual absl::Status Start() = 0;

  // Runs `work` on the I/O thread, in order, all that is pending in one turn. From any thread; dropped after Stop.
  virtual void Post(std::function<void()> work) = 0;

  // The same after a delay, unless the server stops before. I/O thread.
  virtual void PostAfter(absl::Duration delay, std::function<void()> work) = 0;

  // Off: further bodies are not read, and their deadlines stand still, until it is on again. I/O thread.
  virtual void ReadBodies(bool on) = 0;

  // Stops accepting, sends complete answers for up to `flush`, closes everything (on_closed for incomplete answers) and
  // ends the thread. Not from the I/O thread. Idempotent.
  virtual void Stop(absl::Duration flush = absl::Seconds(2)) = 0;

  virtual HttpCounters counters() const = 0;  // I/O thread
};

// How many of `wanted` connections this process has descriptors for, at least 1. Raises the soft limit of open files if
// needed: the usual 1024 would run out before a server of 1024 connections sees that it is full.
int DescriptorRoom(int wanted);
// Descriptors that a server leaves for refused clients and the rest of its process.
inline constexpr int kOtherDescriptors = 300;

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_SERVER_H_
