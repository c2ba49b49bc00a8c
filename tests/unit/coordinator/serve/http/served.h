#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_HTTP_SERVED_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_HTTP_SERVED_H_

// A server on a port of its own with a handler that a test drives, and clients that say what no client should.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "coordinator/serve/http/http_client.h"
#include "coordinator/serve/http/http_server.h"
#include "gtest/gtest.h"
#include "tests/testing/comes_true.h"

namespace stagecoach {

using testing::ComesTrue;

inline constexpr char kGetHello[] = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
inline constexpr char kGetStream[] = "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n";
inline constexpr char kGetWait[] = "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n";

// GET /hello says hello, GET /big/N gives N bytes, POST /echo gives the body back, /wait and /stream are kept for the
// test (a stream begins with "first\n\n"), POST /small takes a body of 100 bytes, /secret wants a key, /lost is never
// answered, /throws throws; else 404.
class FakeHandler : public HttpHandler {
 public:
  HeadVerdict OnHead(const HttpRequest& request) override;
  void OnRequest(std::shared_ptr<HttpExchange> exchange) override;
  std::string OnRefusal(const HttpRequest&, const HttpError& error) override {
    return error.code + ": " + error.message;
  }
  void OnAnswer(const HttpRequest& request, int status) override;
  void OnTick() override { ++ticks; }

  std::vector<std::shared_ptr<HttpExchange>> kept;  // I/O thread
  std::atomic<int> kept_count = 0, closed = 0, drained = 0, answers = 0, ticks = 0;
  std::atomic<int> last_status = 0;
  std::atomic<size_t> most_body_bytes = 0;
};

// How many connections, of `wanted`, this process may have to itself; raises what it may raise.
int ConnectionsWithin(int wanted);

// Options with times of a test: deadlines are looked at every few milliseconds.
HttpServerOptions QuickOptions();
HttpServerOptions WithLimits(const std::function<void(HttpLimits&)>& set);  // the same, with limits that `set` sets

class Served {
 public:
  explicit Served(HttpServerOptions options = QuickOptions());
  explicit Served(const std::function<void(HttpLimits&)>& set) : Served(WithLimits(set)) {}
  ~Served() { server->Stop(absl::ZeroDuration()); }

  // Runs it on the I/O thread, and waits for it.
  void Do(const std::function<void()>& work);
  HttpCounters Counters();
  void WithKept(const std::function<void(HttpExchange&)>& work);  // for each that is kept
  HttpClient Client() const;
  absl::StatusOr<HttpReply> Get(const std::string& path, HttpHeaders headers = {}) const;

  FakeHandler handler;
  std::unique_ptr<HttpServer> server;
};

struct ServedTest : ::testing::Test {
  Served served;
};

// A socket, and nothing that looks at what goes through it.
class RawClient {
 public:
  // `receive_buffer` bytes of the system's, 0: as many as it wants to.
  explicit RawClient(int port, int receive_buffer = 0);
  ~RawClient() { Close(); }
  RawClient(const RawClient&) = delete;

  bool Send(absl::string_view bytes);  // false: the server has closed it
  // What comes until `end` is in it, until the server closes, or until ten seconds are over.
  std::string ReadUntil(absl::string_view end);
  std::string ReadAll() { return ReadUntil(""); }  // until the server closes
  bool closed() const { return closed_; }          // by the server, as seen by a read
  void Reset();                                    // closes with RST
  void Close();

 private:
  int descriptor_;
  std::string left_;  // read, behind `end`
  bool closed_ = false;
};

// One whose request the handler keeps.
class KeptClient : public RawClient {
 public:
  KeptClient(Served* served, absl::string_view request, int receive_buffer = 0)
      : RawClient(served->server->port(), receive_buffer) {
    const int kept = served->handler.kept_count;
    Send(request);
    CHECK(ComesTrue([&] { return served->handler.kept_count == kept + 1; }));
  }
};

std::string StatusLine(const std::string& answer);  // without its end

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_HTTP_SERVED_H_
