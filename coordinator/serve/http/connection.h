#ifndef STAGECOACH_COORDINATOR_SERVE_HTTP_CONNECTION_H_
#define STAGECOACH_COORDINATOR_SERVE_HTTP_CONNECTION_H_

// The connections of a server, and what they share. I/O thread; private to this folder.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/serve/http/boost.h"
#include "coordinator/serve/http/http_head.h"
#include "coordinator/serve/http/http_request.h"
#include "coordinator/serve/http/http_server.h"

namespace stagecoach {

// Access by Host, which exposes a browser that was lured here by another name, and by Origin.
class AccessRules {
 public:
  // Without `check_hosts`, and without a list, every host is good.
  AccessRules(bool check_hosts, std::vector<std::string> allowed_hosts, std::vector<std::string> origins)
      : check_hosts_(check_hosts || !allowed_hosts.empty()),
        allowed_hosts_(std::move(allowed_hosts)),
        origins_(std::move(origins)) {}

  // `authority`: a name or address, with or without a port; absent from a client of HTTP/1.0, which no browser is.
  bool AllowsHost(const std::optional<std::string>& authority) const;

  // What every answer to this request has: nothing but for a listed Origin.
  HttpHeaders CorsHeaders(const HttpRequest& request) const;
  // The answer to a browser that asks whether it may send a request, from a listed Origin; absent when it is none.
  std::optional<HttpResponse> Preflight(const HttpRequest& request) const;

 private:
  bool IsListed(absl::string_view origin) const;

  bool check_hosts_;
  std::vector<std::string> allowed_hosts_, origins_;
};

// What the connections of one server share.
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

// The unsent bytes of one client: answers in order, the last maybe an open stream. What is appended to a stream between
// two writes becomes one chunk.
class SocketOutput {
 public:
  void Append(absl::string_view bytes);  // as they are; not while a stream is open

  void BeginStream(bool chunked);  // not chunked: the stream ends with the connection
  void AppendToStream(absl::string_view bytes);
  void EndStream();

  enum class Result { kAll, kFull, kFailed };
  // Writes without waiting as much as the socket, which is not blocking, takes.
  Result WriteTo(boost::asio::ip::tcp::socket& socket);

  size_t pending() const { return sending_.size() - sent_ + ready_.size() + stream_.size(); }
  int64_t progress_us() const { return progress_us_; }  // when a byte was taken, or began to wait with none before it
  int64_t appended_us() const { return appended_us_; }  // when something was appended

 private:
  void NoteAppended();
  void CloseChunk();

  std::string sending_;  // its first sent_ bytes are gone
  size_t sent_ = 0;
  std::string ready_;   // follows
  std::string stream_;  // follows, without its frame
  bool chunked_ = false;
  int64_t progress_us_ = 0, appended_us_ = 0;
};

// One client's connection: reads a request, has it answered, reads the next. It always polls its socket, also during an
// answer, so that a client that goes is noticed; early bytes are kept for the next request, up to a limit.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ServerState* state);

  void Start();
  void RefuseForRoom();       // instead of Start
  void Advance();             // as far as it goes with what was read
  void Tick(int64_t now_us);  // deadlines, keep-alives
  void Stop();                // as soon as what is complete is written, at once where nothing is
  void Close();               // at once, and for good
  void Cut();                 // the same, with what the system still holds thrown away

  // Since when it does nothing; 0 when it has only the client's closing left to wait for; absent when it is in use.
  std::optional<int64_t> idle_since_us() const;
  int64_t accounted_bytes() const { return accounted_bytes_; }  // that wait for this client, kept back ones too
  bool slow() const { return slow_; }
  void Count(HttpCounters* counters) const;

  // For the exchange that is open. They only append; the bytes leave when this turn of the I/O thread is over.
  void Answer(const HttpRequest& request, const HttpResponse& response);
  void BeginStream(const HttpRequest& request, const HttpStreamHead& head);
  void AppendToStream(absl::string_view bytes);
  void EndStream();
  void AbortSoon();
  void set_kept_bytes(int64_t bytes);
  std::string RefusalBody(const HttpRequest& request, const HttpError& error) const;

 private:
  enum class Stage { kHead, kBody, kAnswer, kLinger };

  void WaitReadable();
  void Read();
  bool Step();
  bool TakeHead();
  bool TakeRequest(RequestHead head);
  bool BeginBody(const RequestHead& head);
  bool TakeBody();
  bool TakeBodyBytes();
  bool Refuse(const HttpError& error);
  bool RefuseBody(const HttpError& error);
  void SkipBody(const RequestHead& head);
  void Dispatch();
  void CountBody(int64_t bytes);
  void IdentifyTenant();

  std::string Head(const HttpRequest& request, int status, absl::string_view type, const HttpHeaders& headers,
                   int64_t length, bool chunked) const;
  void EndAnswer();
  void BeginRequest();
  void ScheduleFlush();
  void Flush();
  void Account();
  void PeerClosed();
  void TickRequest(int64_t now_us);
  void TickAnswer(int64_t now_us);
  bool SystemSaysClosed();

  ServerState* const state_;
  boost::asio::ip::tcp::socket socket_;
  Stage stage_ = Stage::kHead;
  bool closed_ = false, peer_closed_ = false;
  bool waiting_read_ = false, waiting_write_ = false, flush_scheduled_ = false;

  std::string in_;  // read and not yet taken
  HeadEnd head_end_;
  HttpRequest request_;  // the one that is being read
  int64_t idle_since_us_ = 0;
  int64_t head_began_us_ = 0;  // 0: none of it is there
  int64_t body_began_us_ = 0, most_body_bytes_ = 0, counted_body_bytes_ = 0;
  int64_t ticked_us_ = 0;
  ChunkedBody chunks_;
  bool chunked_ = false;

  bool http_1_1_ = true, keep_alive_ = true;  // of the request that is answered or read
  HttpExchange* exchange_ = nullptr;          // that is open
  bool streaming_ = false;
  std::string ping_;  // of the stream
  SocketOutput output_;
  int64_t kept_bytes_ = 0;       // by the handler, of the exchange that is open
  int64_t accounted_bytes_ = 0;  // of this connection in the state's sum
  bool slow_ = false;
  int64_t linger_until_us_ = 0;  // 0: not everything is written
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_HTTP_CONNECTION_H_
