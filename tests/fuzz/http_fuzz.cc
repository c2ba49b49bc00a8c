// Bytes of a client's connection, cut wherever: what the server reads as requests, and what it answers. The server's
// own connection, on one end of a pair of sockets; the fuzzer is the I/O thread.

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "coordinator/serve/http/connection.h"
#include "coordinator/serve/http/http_head.h"
#include "tests/fuzz/fuzz_input.h"

namespace stagecoach {
namespace {

// Small limits, which inputs of a few kilobytes reach.
HttpServerOptions Options() {
  HttpServerOptions options;
  options.cors_origins = {"https://chat.example"};
  options.limits.header_bytes = 1024;
  options.limits.request_line_bytes = 256;
  options.limits.header_fields = 12;
  options.limits.body_bytes = 600;
  options.limits.all_bodies_bytes = 500;
  return options;
}

constexpr int64_t kMostSmallBody = 10;
constexpr size_t kMostPieces = 50;  // the rest in one

struct Answered {
  int status;
  bool head;  // the answer has no body
};

// Answers at once, later, as a stream or not at all, by the path.
class Answerer : public HttpHandler {
 public:
  HeadVerdict OnHead(const HttpRequest& request) override {
    CheckHead(request);
    if (request.path == "/refused") return {.refusal = HttpResponse{401, {{"Retry-After", "1"}}}};
    if (request.path == "/small") return {.max_body_bytes = kMostSmallBody};
    return {};
  }

  std::string OnRefusal(const HttpRequest&, const HttpError& error) override {
    FuzzCheck(!error.code.empty() && !error.message.empty(), "an error says what is wrong");
    return error.message;
  }

  void OnRequest(std::shared_ptr<HttpExchange> exchange) override {
    const HttpRequest& request = exchange->request();
    CheckHead(request);
    FuzzCheck(static_cast<int64_t>(request.body.size()) <= (request.path == "/small" ? kMostSmallBody : 600),
              "a body has its limit");
    FuzzCheck(request.content_length < 0 || request.content_length == static_cast<int64_t>(request.body.size()),
              "a body is as long as was said");
    requests.push_back(absl::StrCat(request.method, " ", request.path, " ", request.body));
    if (request.path == "/wait") {
      waiting.push_back(std::move(exchange));
    } else if (request.path == "/stream") {
      exchange->BeginStream({.first_bytes = "data: first\n\n"});
      waiting.push_back(std::move(exchange));
    } else if (request.path == "/abort") {
      aborted = true;
      exchange->Abort();
    } else {
      const std::string body = exchange->TakeBody();
      exchange->Respond({200, {{"X-Path", request.path}}, "text/plain", body});
    }
  }

  void OnAnswer(const HttpRequest& request, int status) override { answered.push_back({status, request.head}); }

  // Goes on with those that wait.
  void AnswerWaiting() {
    for (const std::shared_ptr<HttpExchange>& exchange : std::exchange(waiting, {})) {
      if (exchange->request().path == "/wait") {
        exchange->Respond({200, {}, "text/plain", "waited"});
      } else {
        exchange->Write("data: second\n\n");
        exchange->End();
      }
    }
  }

  std::vector<std::string> requests;
  std::vector<Answered> answered;
  std::vector<std::shared_ptr<HttpExchange>> waiting;
  bool aborted = false;

 private:
  static void CheckHead(const HttpRequest& request) {
    FuzzCheck(absl::StartsWith(request.path, "/"), "a path begins with '/'");
    FuzzCheck(!absl::StrContains(absl::StrCat(request.path, "/"), "/../"), "a path leads nowhere else");
    FuzzCheck(request.headers.size() <= 12, "fields have their limit");
    FuzzCheck(!request.method.empty() && !request.id.empty(), "a request has a method and an id");
    const bool chunked = !request.header("transfer-encoding").empty();
    FuzzCheck(!chunked || request.content_length < 0, "a body ends in one way");
  }
};

// One answer off the front of the bytes; whether all of it was there.
bool TakeAnswer(const Answered& answered, absl::string_view* bytes) {
  while (absl::ConsumePrefix(bytes, "HTTP/1.1 100 Continue\r\n\r\n")) {
  }
  const size_t end = bytes->find("\r\n\r\n");
  if (end == bytes->npos) return false;
  const absl::StatusOr<ResponseHead> head = ParseResponseHead(bytes->substr(0, end + 4));
  FuzzCheck(head.ok(), absl::StrCat("an answer is HTTP: ", head.status().ToString()));
  FuzzCheck(head->status == answered.status, absl::StrCat("answers in their order: ", head->status));
  bytes->remove_prefix(end + 4);
  std::string body;
  if (answered.head || head->status == 204) return true;
  if (head->chunked) {
    ChunkedBody chunks;
    const absl::StatusOr<size_t> taken = chunks.Read(*bytes, 1 << 20, &body);
    FuzzCheck(taken.ok(), "a stream is chunked as it says");
    bytes->remove_prefix(*taken);
    return chunks.done();
  }
  FuzzCheck(head->content_length >= 0 || !head->keep_alive, "an answer has an end");
  const size_t length = head->content_length >= 0 ? static_cast<size_t>(head->content_length) : bytes->size();
  if (length > bytes->size()) return false;
  body = std::string(bytes->substr(0, length));
  bytes->remove_prefix(length);
  FuzzCheck(head->status < 400 || head->status == 401 || !body.empty(), "an error says what is wrong");
  return true;
}

// `may_be_cut`: the connection may have ended before all of them were written.
void CheckAnswers(const std::vector<Answered>& answered, absl::string_view bytes, bool may_be_cut) {
  static const std::set<int> kStatuses = {200, 204, 400, 401, 403, 408, 413, 417, 431, 503};
  bool whole = true;
  for (const Answered& answer : answered) {
    FuzzCheck(kStatuses.count(answer.status) == 1, absl::StrCat("a status that is meant: ", answer.status));
    whole = whole && TakeAnswer(answer, &bytes);
  }
  absl::ConsumePrefix(&bytes, "HTTP/1.1 100 Continue\r\n\r\n");
  FuzzCheck(whole || may_be_cut, "what is answered is written");
  FuzzCheck(!whole || bytes.empty(), "nothing else is written");
}

struct Outcome {
  std::vector<std::string> requests;
  std::vector<Answered> answered;
  std::string answers;
  bool closed = false;
};

// One connection.
class Client {
 public:
  Client() : state_(Options(), &handler_, /*loopback=*/true) {
    int pair[2];
    FuzzCheck(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0, "there are sockets");
    descriptor_ = pair[1];
    boost::asio::ip::tcp::socket socket(state_.io);
    boost::system::error_code error;
    socket.assign(boost::asio::ip::tcp::v4(), pair[0], error);
    FuzzCheck(!error, "a socket is taken");
    connection_ = std::make_shared<Connection>(std::move(socket), &state_);
    state_.connections.insert(connection_);
    connection_->Start();
  }
  ~Client() {
    close(descriptor_);
    Turn();
    handler_.AnswerWaiting();
    Turn();
    connection_->Close();
    Turn();
    connection_.reset();
    FuzzCheck(state_.connections.empty(), "a connection that was closed is forgotten");
    FuzzCheck(state_.bodies_bytes == 0 && state_.pending_bytes == 0 && state_.streams == 0, "nothing is left of it");
  }

  void Send(absl::string_view bytes) {
    while (!bytes.empty() && !outcome_.closed) {
      const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      Turn();
      if (sent <= 0) return;
    }
  }
  // The server goes on as far as it can with what it has; those that wait are answered.
  void Finish(bool half_close) {
    if (half_close) shutdown(descriptor_, SHUT_WR);
    for (size_t before = SIZE_MAX; before != outcome_.answers.size();) {
      before = outcome_.answers.size();
      Turn();
      handler_.AnswerWaiting();
      Turn();
    }
  }
  void AnswerWaiting() { handler_.AnswerWaiting(); }
  void Tick(absl::Duration later) {
    connection_->Tick(MonotonicUs() + absl::ToInt64Microseconds(later));
    Turn();
  }
  bool aborted() const { return handler_.aborted; }
  Outcome outcome() {
    outcome_.requests = handler_.requests;
    outcome_.answered = handler_.answered;
    return outcome_;
  }

 private:
  void Turn() {
    do {
      state_.io.restart();
    } while (state_.io.poll() > 0);
    char bytes[4096];
    ssize_t received = 0;
    while ((received = recv(descriptor_, bytes, sizeof(bytes), 0)) > 0) {
      outcome_.answers.append(bytes, static_cast<size_t>(received));
    }
    if (received == 0) outcome_.closed = true;
    do {
      state_.io.restart();
    } while (state_.io.poll() > 0);
  }

  Answerer handler_;
  ServerState state_;
  std::shared_ptr<Connection> connection_;
  int descriptor_ = -1;
  Outcome outcome_;
};

}  // namespace

void Fuzz(FuzzInput input) {
  const uint8_t flags = input.Byte();
  std::vector<size_t> cuts(1 + flags % 4);
  for (size_t& cut : cuts) cut = 1 + input.Byte();
  const bool half_close = (flags & 4) != 0;
  const absl::string_view bytes = input.rest();

  Client whole;
  whole.Send(bytes);
  whole.Finish(half_close);
  const Outcome at_once = whole.outcome();
  CheckAnswers(at_once.answered, at_once.answers, half_close || whole.aborted());

  Client cut;
  absl::string_view rest = bytes;
  for (size_t i = 0; !rest.empty(); ++i) {
    const absl::string_view piece = rest.substr(0, i < kMostPieces ? cuts[i % cuts.size()] : rest.size());
    rest.remove_prefix(piece.size());
    cut.Send(piece);
    if ((flags & 8) != 0) cut.AnswerWaiting();
    if ((flags & 16) != 0) cut.Tick(absl::ZeroDuration());
  }
  cut.Finish(half_close);
  if ((flags & 32) != 0) cut.Tick(absl::Seconds(15));
  if ((flags & 64) != 0) cut.Tick(absl::Minutes(10));
  const Outcome in_pieces = cut.outcome();
  CheckAnswers(in_pieces.answered, in_pieces.answers, half_close || cut.aborted());

  // What is a request to one reader is one to the other. One of them may have ended the connection earlier: the body of
  // a refused request is not waited for.
  const size_t both = std::min(at_once.requests.size(), in_pieces.requests.size());
  for (size_t i = 0; i < both; ++i) {
    FuzzCheck(at_once.requests[i] == in_pieces.requests[i],
              absl::StrCat("requests are the same however they are cut: ", at_once.requests[i], " / ",
                           in_pieces.requests[i]));
  }
  FuzzCheck(at_once.closed || in_pieces.closed || at_once.requests.size() == in_pieces.requests.size(),
            "as many requests however they are cut");
}

}  // namespace stagecoach
