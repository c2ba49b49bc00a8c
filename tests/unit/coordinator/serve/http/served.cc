#include "tests/unit/coordinator/serve/http/served.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <stdexcept>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/check.h"

namespace stagecoach {

HeadVerdict FakeHandler::OnHead(const HttpRequest& request) {
  if (request.path == "/small") return {std::nullopt, 100};
  if (request.path == "/secret" && request.tenant.empty()) {
    HttpResponse refusal{401};
    refusal.body = "no key";
    return {refusal};
  }
  for (const char* known : {"/hello", "/echo", "/wait", "/stream", "/secret", "/lost", "/throws"}) {
    if (request.path == known) return {};
  }
  if (absl::StartsWith(request.path, "/big/")) return {};
  HttpResponse refusal{404};
  refusal.body = "not here";
  return {refusal};
}

void FakeHandler::OnRequest(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  most_body_bytes = std::max<size_t>(most_body_bytes, request.body.size());
  absl::string_view path = request.path;
  if (path == "/lost") return;
  if (path == "/throws") throw std::runtime_error("thrown by a handler");
  if (path == "/wait" || path == "/stream") {
    exchange->set_on_closed([this] { ++closed; });
    exchange->set_on_drained([this] { ++drained; });
    HttpStreamHead head;
    head.first_bytes = "first\n\n";
    if (path == "/stream") exchange->BeginStream(head);
    kept.push_back(std::move(exchange));
    ++kept_count;
    return;
  }
  HttpResponse response;
  response.content_type = "text/plain";
  int64_t size = 0;
  if (absl::ConsumePrefix(&path, "/big/") && absl::SimpleAtoi(path, &size)) {
    response.body = std::string(size, 'b');
  } else if (path == "/secret") {
    response.body = request.tenant;
  } else {
    response.body = path == "/hello" ? "hello" : exchange->TakeBody();
  }
  exchange->Respond(response);
}

void FakeHandler::OnAnswer(const HttpRequest&, int status) {
  ++answers;
  last_status = status;
}

int ConnectionsWithin(int wanted) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 2 * wanted + 100);  // both ends are here
  setrlimit(RLIMIT_NOFILE, &limit);
  return std::min(wanted, (static_cast<int>(limit.rlim_cur) - 100) / 2);
}

HttpServerOptions QuickOptions() { return {.port = 0, .tick = absl::Milliseconds(10)}; }

HttpServerOptions WithLimits(const std::function<void(HttpLimits&)>& set) {
  HttpServerOptions options = QuickOptions();
  set(options.limits);
  return options;
}

Served::Served(HttpServerOptions options) {
  auto listening = HttpServer::Listen(std::move(options), &handler);
  CHECK(listening.ok());
  server = *std::move(listening);
  CHECK(server->Start().ok());
}

void Served::Do(const std::function<void()>& work) {
  std::promise<void> done;
  server->Post([&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

HttpCounters Served::Counters() {
  HttpCounters counters;
  Do([&] { counters = server->counters(); });
  return counters;
}

void Served::WithKept(const std::function<void(HttpExchange&)>& work) {
  Do([&] {
    for (const auto& exchange : handler.kept) work(*exchange);
  });
}

HttpClient Served::Client() const { return HttpClient({"127.0.0.1", server->port(), ""}, {}); }

absl::StatusOr<HttpReply> Served::Get(const std::string& path, HttpHeaders headers) const {
  return Client().Call({.path = path, .headers = std::move(headers)});
}

RawClient::RawClient(int port, int receive_buffer) : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer > 0) setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
}

void RawClient::Close() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

void RawClient::Reset() {
  const linger now{1, 0};
  setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  Close();
}

bool RawClient::Send(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(sent);
  }
  return true;
}

std::string RawClient::ReadUntil(absl::string_view end) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  std::string text = std::exchange(left_, std::string());
  std::string buffer(64 << 10, '\0');
  size_t looked = 0, found;
  while ((found = end.empty() ? text.npos : text.find(std::string(end), looked)) == text.npos) {
    looked = text.size() < end.size() ? 0 : text.size() - end.size();
    pollfd waited{descriptor_, POLLIN, 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0 || poll(&waited, 1, static_cast<int>(left_ms)) <= 0) return text;
    const ssize_t received = recv(descriptor_, &buffer[0], buffer.size(), 0);
    closed_ = received <= 0;
    if (closed_) return text;
    text.append(buffer, 0, received);
  }
  left_ = text.substr(found + end.size());
  text.erase(found + end.size());
  return text;
}

std::string StatusLine(const std::string& answer) { return answer.substr(0, answer.find("\r\n")); }

}  // namespace stagecoach
