#include "coordinator/serve/http/http_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "coordinator/serve/http/http_head.h"

namespace stagecoach {
namespace {

constexpr int64_t kMostHeadBytes = 64 << 10;
constexpr int kMostHeadFields = 1000;
constexpr size_t kReadBytes = 64 << 10;

int MillisecondsUntil(absl::Time deadline) {
  const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now()) + 1;
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

absl::Status BadUrl(absl::string_view url, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("URL '", url, "': ", what, "; expected http://host[:port][/path]"));
}

std::string Authority(const HttpUrl& url) {
  const bool brackets = absl::StrContains(url.host, ":");
  return absl::StrCat(brackets ? "[" : "", url.host, brackets ? "]" : "", ":", url.port);
}

}  // namespace

// What has arrived of one answer.
class HttpClient::Answer {
 public:
  Answer(const HttpCall& call, int64_t most_bytes, HttpReply* reply)
      : call_(call), most_bytes_(most_bytes), head_(call.method == "HEAD"), reply_(*reply) {}

  // Takes what arrived. kDataLoss, kResourceExhausted.
  absl::Status Take(absl::string_view bytes, int64_t at_us);
  // The server closed the connection: whether that was the answer's end.
  bool EndsHere() const { return began_body_ && !parsed_.chunked && parsed_.content_length < 0; }
  bool began() const { return began_; }
  bool done() const { return done_; }
  bool keeps_connection() const { return done_ && parsed_.keep_alive && reply_.complete && !EndsHere(); }

 private:
  absl::Status TakeHead(int64_t at_us);
  absl::Status TakeBody(absl::string_view bytes, int64_t at_us);
  bool streams() const { return call_.on_body && reply_.succeeded(); }

  const HttpCall& call_;
  const int64_t most_bytes_;
  const bool head_;
  HttpReply& reply_;
  HeadEnd end_{kMostHeadBytes, kMostHeadBytes, kMostHeadFields};
  std::string begun_;  // of the head, then what follows it
  ResponseHead parsed_;
  ChunkedBody chunks_;
  int64_t body_bytes_ = 0;
  bool began_ = false, began_body_ = false, done_ = false;
};

absl::Status HttpClient::Answer::Take(absl::string_view bytes, int64_t at_us) {
  began_ = true;
  if (began_body_) return TakeBody(bytes, at_us);
  absl::StrAppend(&begun_, bytes);
  while (!began_body_) {
    if (const auto error = end_.Look(begun_)) return absl::DataLossError("the answer is no HTTP/1.1");
    if (end_.size() == 0) return absl::OkStatus();
    RETURN_IF_ERROR(TakeHead(at_us));
  }
  if (!done_) return TakeBody(std::exchange(begun_, std::string()), at_us);
  if (!begun_.empty()) parsed_.keep_alive = false;  // as of what follows a body
  return absl::OkStatus();
}

absl::Status HttpClient::Answer::TakeHead(int64_t at_us) {
  ASSIGN_OR_RETURN(parsed_, ParseResponseHead(absl::string_view(begun_).substr(0, end_.size())));
  begun_.erase(0, end_.size());
  end_ = HeadEnd(kMostHeadBytes, kMostHeadBytes, kMostHeadFields);
  if (parsed_.status / 100 == 1) return absl::OkStatus();  // 100 Continue: the answer is yet to come
  reply_.status = parsed_.status;
  reply_.headers = std::move(parsed_.headers);
  reply_.head_us = at_us;
  began_body_ = true;
  done_ = head_ || parsed_.status == 204 || parsed_.status == 304 || parsed_.content_length == 0;
  if (done_) parsed_.content_length = 0;
  return absl::OkStatus();
}

absl::Status HttpClient::Answer::TakeBody(absl::string_view bytes, int64_t at_us) {
  std::string unframed;
  if (parsed_.chunked) {
    const auto taken = chunks_.Read(bytes, INT64_MAX, &unframed);
    if (!taken.ok()) return absl::DataLossError(taken.status().message());
    if (*taken < bytes.size()) parsed_.keep_alive = false;  // what follows is nobody's answer
    bytes = unframed;
    done_ = chunks_.done();
  } else if (parsed_.content_length >= 0) {
    if (static_cast<int64_t>(bytes.size()) > parsed_.content_length - body_bytes_) parsed_.keep_alive = false;
    bytes = bytes.substr(0, parsed_.content_length - body_bytes_);
    done_ = body_bytes_ + static_cast<int64_t>(bytes.size()) == parsed_.content_length;
  }
  body_bytes_ += static_cast<int64_t>(bytes.size());
  if (bytes.empty()) return absl::OkStatus();
  if (streams()) {
    if (call_.on_body(bytes, at_us)) return absl::OkStatus();
    reply_.complete = done_ = false;
    return absl::OkStatus();
  }
  if (body_bytes_ > most_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("the answer has more than ", most_bytes_, " bytes"));
  }
  absl::StrAppend(&reply_.body, bytes);
  return absl::OkStatus();
}

HttpClient::HttpClient(HttpUrl url, HttpClientOptions options) : url_(std::move(url)), options_(std::move(options)) {}

void HttpClient::Close() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

absl::Status HttpClient::Failed(absl::StatusCode code, absl::string_view what) const {
  return {code, absl::StrCat(UrlText({url_.host, url_.port, ""}), ": ", what)};
}

// Until one of the events can be had from the connection.
absl::Status HttpClient::Wait(short events, absl::Time deadline) {
  while (true) {
    std::array<pollfd, 2> waited = {{{descriptor_, events, 0}, {options_.cancel_descriptor, POLLIN, 0}}};
    const int ready = poll(waited.data(), waited.size(), MillisecondsUntil(deadline));
    if (ready < 0 && errno != EINTR) return Failed(absl::StatusCode::kInternal, strerror(errno));
    if (ready > 0 && waited[1].revents != 0) return Failed(absl::StatusCode::kCancelled, "the call was cancelled");
    if (ready > 0) return absl::OkStatus();
    if (absl::Now() >= deadline) return Failed(absl::StatusCode::kDeadlineExceeded, "no answer in time");
  }
}

absl::Status HttpClient::ConnectTo(const addrinfo& address, absl::Time deadline) {
  Close();
  descriptor_ = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor_ < 0) return Failed(absl::StatusCode::kUnavailable, strerror(errno));
  const int on = 1;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  int error = connect(descriptor_, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    const absl::Status waited = Wait(POLLOUT, deadline);
    if (absl::IsDeadlineExceeded(waited)) return Failed(absl::StatusCode::kUnavailable, "no connection in time");
    RETURN_IF_ERROR(waited);
    socklen_t size = sizeof(error);
    getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) return absl::OkStatus();
  return Failed(absl::StatusCode::kUnavailable,
                absl::StrCat("cannot connect: ", strerror(error), "; is the server running there?"));
}

absl::Status HttpClient::Connect() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(url_.host.c_str(), absl::StrCat(url_.port).c_str(), &hints, &found);
  if (code != 0) return Failed(absl::StatusCode::kUnavailable, absl::StrCat("no such host: ", gai_strerror(code)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  const absl::Time deadline = absl::Now() + options_.connect_timeout;
  absl::Status status;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    status = ConnectTo(*address, deadline);
    if (status.ok() || !absl::IsUnavailable(status)) break;
  }
  if (!status.ok()) Close();
  return status;
}

absl::Status HttpClient::Send(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(sent);
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(Wait(POLLOUT, absl::Now() + options_.silence_timeout));
    } else if (errno != EINTR) {
      return Failed(absl::StatusCode::kUnavailable, absl::StrCat("the connection was lost: ", strerror(errno)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> HttpClient::Receive(char* bytes, size_t size) {
  while (true) {
    RETURN_IF_ERROR(Wait(POLLIN, absl::Now() + options_.silence_timeout));
    const ssize_t received = recv(descriptor_, bytes, size, 0);
    if (received >= 0) return static_cast<size_t>(received);
    if (errno != EINTR && errno != EAGAIN) {
      return Failed(absl::StatusCode::kUnavailable, absl::StrCat("the connection was lost: ", strerror(errno)));
    }
  }
}

std::string HttpClient::Request(const HttpCall& call) const {
  std::string text =
      absl::StrCat(call.method, " ", url_.path, call.path, " HTTP/1.1\r\nHost: ", Authority(url_), "\r\n");
  for (const HttpHeaders* headers : {&options_.headers, &call.headers}) {
    for (const auto& [name, value] : *headers) absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  if (!call.body.empty() || call.method == "POST") {
    if (FindHeader(call.headers, "content-type").empty() && FindHeader(options_.headers, "content-type").empty()) {
      absl::StrAppend(&text, "Content-Type: application/json\r\n");
    }
    absl::StrAppend(&text, "Content-Length: ", call.body.size(), "\r\n");
  }
  return absl::StrCat(text, "\r\n", call.body);
}

absl::StatusOr<HttpReply> HttpClient::CallOnce(const HttpCall& call, bool* began) {
  if (descriptor_ < 0) RETURN_IF_ERROR(Connect());
  HttpReply reply;
  Answer answer(call, options_.most_answer_bytes, &reply);
  reply.sent_us = MonotonicUs();
  // A server may answer, and close, before it has read everything: then what it says counts.
  const absl::Status sent = Send(Request(call));
  if (!sent.ok() && !absl::IsUnavailable(sent)) return sent;
  std::string buffer(kReadBytes, '\0');
  while (!answer.done() && reply.complete) {
    const auto received = Receive(&buffer[0], buffer.size());
    if (absl::IsUnavailable(received.status()) && answer.began()) {
      return Failed(absl::StatusCode::kDataLoss, "the connection was lost amid the answer");
    }
    if (!received.ok()) return sent.ok() ? received.status() : sent;
    if (*received == 0 && answer.EndsHere()) break;
    if (*received == 0 && !answer.began()) {
      return Failed(absl::StatusCode::kUnavailable, "the server closed the connection without an answer");
    }
    if (*received == 0) return Failed(absl::StatusCode::kDataLoss, "the answer ended early");
    *began = true;
    reply.end_us = MonotonicUs();
    const absl::Status taken = answer.Take({buffer.data(), *received}, reply.end_us);
    if (!taken.ok()) return Failed(taken.code(), taken.message());
  }
  if (!answer.keeps_connection() || !sent.ok()) Close();
  return reply;
}

absl::StatusOr<HttpReply> HttpClient::Call(const HttpCall& call) {
  try {
    // What has come on a connection that was kept, its end or what nobody asked for, is no answer to this.
    char byte = 0;
    if (descriptor_ >= 0 && recv(descriptor_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) Close();
    const bool kept = descriptor_ >= 0;
    bool began = false;
    auto reply = CallOnce(call, &began);
    if (!reply.ok()) Close();
    // A server closes a connection that idles, maybe just now: nothing was lost by that.
    if (kept && !began && absl::IsUnavailable(reply.status())) {
      reply = CallOnce(call, &began);
      if (!reply.ok()) Close();
    }
    return reply;
  } catch (const std::exception& error) {
    Close();
    return absl::ResourceExhaustedError(error.what());
  }
}

absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view url) {
  if (absl::StartsWithIgnoreCase(url, "https:")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "URL '", url, "': TLS is not spoken here; use a proxy that does, and the http:// address of that"));
  }
  absl::string_view rest = url;
  if (!absl::StartsWithIgnoreCase(rest, "http://")) return BadUrl(url, "it does not begin with http://");
  rest.remove_prefix(7);
  for (const char c : rest) {
    if (c <= ' ' || c == '\x7f' || c == '#' || c == '@')
      return BadUrl(url, "it has a character that does not belong there");
  }
  const size_t slash = rest.find_first_of("/?");
  absl::string_view path = slash == rest.npos ? "" : rest.substr(slash);
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  if (absl::StartsWith(path, "?")) return BadUrl(url, "its path does not begin with '/'");
  absl::string_view host = rest.substr(0, slash);
  absl::string_view port = "80";
  const size_t colon = host.rfind(':');
  if (colon != host.npos && (host.find(']') == host.npos || host.find(']') < colon)) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (absl::ConsumePrefix(&host, "[") && !absl::ConsumeSuffix(&host, "]")) return BadUrl(url, "a bracket is missing");
  HttpUrl parsed{std::string(host), 0, std::string(path)};
  if (host.empty()) return BadUrl(url, "the host is missing");
  if (!absl::SimpleAtoi(port, &parsed.port) || parsed.port < 1 || parsed.port > 65535) {
    return BadUrl(url, "the port is no number from 1 to 65535");
  }
  return parsed;
}

absl::StatusOr<HttpUrl> ParseApiUrl(absl::string_view url) {
  absl::StatusOr<HttpUrl> parsed = ParseHttpUrl(url);
  if (!parsed.ok()) return parsed;
  absl::string_view path = parsed->path;
  if (!absl::ConsumeSuffix(&path, "/v1")) return parsed;
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  return HttpUrl{parsed->host, parsed->port, std::string(path)};
}

std::string UrlText(const HttpUrl& url) { return absl::StrCat("http://", Authority(url), url.path); }

absl::Status SseReader::Append(absl::string_view bytes, const std::function<void(const SseEvent&)>& on_event) {
  while (status_.ok() && !bytes.empty()) {
    // A line ends with CR LF, LF or CR; the LF of the first may come in the next piece.
    if (after_return_ && bytes[0] == '\n') bytes.remove_prefix(1);
    after_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    const absl::string_view piece = bytes.substr(0, end);
    if (line_.size() + event_.data.size() + piece.size() > most_event_bytes_) {
      status_ = absl::ResourceExhaustedError(absl::StrCat("an event has more than ", most_event_bytes_, " bytes"));
      break;
    }
    absl::StrAppend(&line_, piece);
    if (end == bytes.npos) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    const std::string line = std::exchange(line_, std::string());
    Line(line, on_event);
  }
  return status_;
}

void SseReader::Line(absl::string_view line, const std::function<void(const SseEvent&)>& on_event) {
  if (line.empty()) {
    const SseEvent event = std::exchange(event_, SseEvent());
    if (std::exchange(has_data_, false)) on_event(event);
    return;
  }
  const size_t colon = line.find(':');
  const absl::string_view field = line.substr(0, colon);
  absl::string_view value = colon == line.npos ? "" : line.substr(colon + 1);
  absl::ConsumePrefix(&value, " ");
  if (field == "event") {
    event_.event = std::string(value);
  } else if (field == "data") {
    if (has_data_) event_.data.push_back('\n');
    absl::StrAppend(&event_.data, value);
    has_data_ = true;
  }
}

}  // namespace stagecoach
