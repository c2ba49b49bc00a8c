#include "coordinator/serve/http/connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/shown_text.h"

namespace stagecoach {
namespace {

using boost::asio::ip::tcp;

constexpr int kMostUnsentBytes = 128 << 10;

// "[::1]:80" -> "[::1]", "localhost:80" -> "localhost".
absl::string_view WithoutPort(absl::string_view authority) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  if (colon == authority.npos || (bracket != authority.npos && colon < bracket)) return authority;
  return authority.substr(0, colon);
}

// Names of fields, as a browser lists them: they are said back to it.
bool IsFieldList(absl::string_view text) {
  return !text.empty() && text.size() <= 1024 && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("-_, ", c);
  });
}

constexpr size_t kReadBytes = 64 << 10;
constexpr int kMostRetrySeconds = 10;

uint64_t RandomBits() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace

Connection::Connection(tcp::socket socket, ServerState* state)
    : state_(state),
      socket_(std::move(socket)),
      head_end_(state->options.limits.header_bytes, state->options.limits.request_line_bytes,
                state->options.limits.header_fields) {
  boost::system::error_code error;  // what fails here fails again when it matters
  socket_.non_blocking(true, error);
  socket_.set_option(tcp::no_delay(true), error);
  // What a client does not take waits here, where it is seen and limited, rather than in megabytes of the system's.
  const int unsent = kMostUnsentBytes;
  setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
  ticked_us_ = MonotonicUs();
  BeginRequest();
}

void Connection::Start() { WaitReadable(); }

void Connection::BeginRequest() {
  stage_ = Stage::kHead;
  const HttpLimits& limits = state_->options.limits;
  head_end_ = HeadEnd(limits.header_bytes, limits.request_line_bytes, limits.header_fields);
  head_began_us_ = 0;
  idle_since_us_ = MonotonicUs();
  request_ = HttpRequest();
}

void Connection::WaitReadable() {
  if (waiting_read_ || closed_ || peer_closed_) return;
  if (stage_ == Stage::kBody && !state_->bodies_on) return;
  // More than a head waits already: it came early, or its client takes no answers.
  if (static_cast<int64_t>(in_.size()) > state_->options.limits.header_bytes) return;
  waiting_read_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const boost::system::error_code&) {
    self->waiting_read_ = false;
    self->Read();
  });
}

void Connection::Read() {
  if (closed_) return;
  // No more than a head while that is what is read: what comes behind it may have to wait here.
  const size_t most = stage_ == Stage::kBody || stage_ == Stage::kLinger
                          ? state_->scratch.size()
                          : std::min<size_t>(state_->scratch.size(), state_->options.limits.header_bytes + 1);
  boost::system::error_code error;
  const size_t bytes = socket_.read_some(boost::asio::buffer(state_->scratch.data(), most), error);
  if (error == boost::asio::error::would_block || error == boost::asio::error::try_again) return WaitReadable();
  if (error && error != boost::asio::error::eof) {
    if (stage_ == Stage::kAnswer) ++state_->counters.gone_clients;
    return Close();
  }
  peer_closed_ = static_cast<bool>(error);
  in_.append(state_->scratch.data(), bytes);
  Advance();
}

void Connection::Advance() {
  while (!closed_ && Step()) {
  }
  if (closed_) return;
  if (peer_closed_) return PeerClosed();
  // There will be no further request.
  if (stage_ == Stage::kHead && head_began_us_ == 0 && !state_->accepting && output_.pending() == 0) return Close();
  WaitReadable();
}

// Everything that the client sent was taken as far as it goes.
void Connection::PeerClosed() {
  if (stage_ == Stage::kAnswer) {
    ++state_->counters.gone_clients;
    Close();
  } else if (output_.pending() == 0 || stage_ == Stage::kBody || head_began_us_ != 0) {
    Close();
  }  // else what is complete is still written
}

// One step with what is there; whether there may be another one.
bool Connection::Step() {
  switch (stage_) {
    case Stage::kHead:
      // Who does not take his answers asks no more.
      return static_cast<int64_t>(output_.pending()) < state_->options.limits.drained_bytes && TakeHead();
    case Stage::kBody: return state_->bodies_on && TakeBody();
    case Stage::kAnswer: return false;
    case Stage::kLinger: in_.clear(); return false;
  }
  return false;
}

bool Connection::TakeHead() {
  if (head_began_us_ == 0) {
    size_t blank = 0;  // empty lines before a request mean nothing
    while (absl::StartsWith(absl::string_view(in_).substr(blank), "\r\n")) blank += 2;
    in_.erase(0, blank);
    if (in_.empty() || in_ == "\r" || !state_->accepting) return false;
    head_began_us_ = MonotonicUs();
    request_.id = state_->DrawId();
    request_.arrived_us = head_began_us_;
    http_1_1_ = keep_alive_ = true;
  }
  auto error = head_end_.Look(in_);
  if (!error && head_end_.size() == 0) return false;
  RequestHead head;
  if (!error) error = ParseRequestHead(absl::string_view(in_).substr(0, head_end_.size()), &head);
  if (error) {
    ++state_->counters.malformed;
    keep_alive_ = false;
    return Refuse(*error);
  }
  in_.erase(0, head_end_.size());
  return TakeRequest(std::move(head));
}

void Connection::IdentifyTenant() {
  const ApiKeys* keys = state_->options.keys.get();
  if (keys == nullptr || keys->empty()) {
    request_.tenant = "anonymous";
    return;
  }
  absl::string_view bearer = request_.header("authorization");
  if (bearer.size() >= 7 && absl::EqualsIgnoreCase(bearer.substr(0, 7), "bearer ")) {
    request_.key = keys->Find(absl::StripLeadingAsciiWhitespace(bearer.substr(7)));
  }
  const ApiKey* other = keys->Find(request_.header("x-api-key"));
  if (request_.key == nullptr) request_.key = other;
  if (request_.key != nullptr) request_.tenant = request_.key->name;
}

bool Connection::TakeRequest(RequestHead head) {
  http_1_1_ = head.http_1_1;
  keep_alive_ = head.keep_alive && state_->accepting;
  request_.head = head.method == "HEAD";
  request_.method = request_.head ? "GET" : std::move(head.method);
  request_.path = std::move(head.path);
  request_.headers = std::move(head.headers);
  request_.content_length = head.content_length;
  if (const auto id = request_.header("x-request-id"); IsPlainName(id, 128)) request_.id = std::string(id);
  if (!state_->rules.AllowsHost(head.authority)) {
    SkipBody(head);
    return Refuse({403, "host_not_allowed",
                   absl::StrCat("this server is not to be reached as '", CutText(*head.authority),
                                "'; it has to be one of the allowed hosts, or localhost")});
  }
  if (head.expects_other) {
    SkipBody(head);
    return Refuse({417, "expectation_failed",
                   "the header Expect asks for what this server does not do; expected 100-continue or no such header"});
  }
  IdentifyTenant();
  if (auto answer = state_->rules.Preflight(request_)) {
    SkipBody(head);
    Answer(request_, *answer);
    return true;
  }
  HeadVerdict verdict = state_->handler->OnHead(request_);
  if (verdict.refusal) {
    SkipBody(head);
    Answer(request_, *verdict.refusal);
    return true;
  }
  most_body_bytes_ = state_->options.limits.body_bytes;
  if (verdict.max_body_bytes >= 0) most_body_bytes_ = std::min(most_body_bytes_, verdict.max_body_bytes);
  return BeginBody(head);
}

// A refused request's body: dropped if it is here, else the connection ends, for it is not worth reading.
void Connection::SkipBody(const RequestHead& head) {
  if (head.chunked || head.content_length > static_cast<int64_t>(in_.size())) {
    keep_alive_ = false;
  } else if (head.content_length > 0) {
    in_.erase(0, head.content_length);
  }
}

bool Connection::BeginBody(const RequestHead& head) {
  if (head.content_length > most_body_bytes_) {
    return RefuseBody(
        {413, "too_large",
         absl::StrCat("the body has ", head.content_length, " bytes, at most ", most_body_bytes_, " are taken here")});
  }
  stage_ = Stage::kBody;
  chunked_ = head.chunked;
  chunks_ = ChunkedBody();
  body_began_us_ = MonotonicUs();
  if (head.expects_continue && in_.empty() && (head.chunked || head.content_length > 0)) {
    output_.Append("HTTP/1.1 100 Continue\r\n\r\n");
    ScheduleFlush();
  }
  if (chunked_ || head.content_length > 0) return true;
  Dispatch();
  return true;
}

bool Connection::TakeBody() {
  if (!TakeBodyBytes()) return true;
  CountBody(static_cast<int64_t>(request_.body.size()));
  const bool complete =
      chunked_ ? chunks_.done() : static_cast<int64_t>(request_.body.size()) == request_.content_length;
  if (complete) {
    CountBody(0);
    Dispatch();
    return true;
  }
  if (state_->bodies_bytes > state_->options.limits.all_bodies_bytes) {
    return RefuseBody({503, "too_many_bodies", "too many long requests arrive at once; try again later"});
  }
  return false;
}

// Whether nothing is wrong with them; else the request was refused.
bool Connection::TakeBodyBytes() {
  if (!chunked_) {
    const size_t taken = std::min<size_t>(in_.size(), request_.content_length - request_.body.size());
    request_.body.append(in_, 0, taken);
    in_.erase(0, taken);
    return true;
  }
  const auto taken = chunks_.Read(in_, most_body_bytes_, &request_.body);
  if (taken.ok()) {
    in_.erase(0, *taken);
    return true;
  }
  if (absl::IsResourceExhausted(taken.status())) {
    RefuseBody({413, "too_large", std::string(taken.status().message())});
  } else {
    ++state_->counters.malformed;
    RefuseBody({400, "malformed_request", absl::StrCat("the request is malformed: ", taken.status().message())});
  }
  return false;
}

// So much of the bodies that are being read is of this connection.
void Connection::CountBody(int64_t bytes) {
  state_->bodies_bytes += bytes - counted_body_bytes_;
  counted_body_bytes_ = bytes;
}

bool Connection::RefuseBody(const HttpError& error) {
  CountBody(0);
  keep_alive_ = false;
  return Refuse(error);
}

bool Connection::Refuse(const HttpError& error) {
  HttpResponse response{error.status};
  response.body = RefusalBody(request_, error);
  if (error.status == 503) response.headers.emplace_back("Retry-After", absl::StrCat(state_->DrawRetrySeconds()));
  if (!RetryCanSucceed(error.status)) response.headers.emplace_back("x-should-retry", "false");
  Answer(request_, response);
  return true;
}

std::string Connection::RefusalBody(const HttpRequest& request, const HttpError& error) const {
  return state_->handler->OnRefusal(request, error);
}

void Connection::RefuseForRoom() {
  ++state_->counters.refused_connections;
  keep_alive_ = false;
  request_.id = state_->DrawId();
  Refuse({503, "too_many_connections", "the server has no room for another connection; try again later"});
}

void Connection::Dispatch() {
  stage_ = Stage::kAnswer;
  auto exchange = std::make_shared<HttpExchange>(this, std::move(request_));
  exchange_ = exchange.get();
  state_->handler->OnRequest(std::move(exchange));
}

bool AccessRules::AllowsHost(const std::optional<std::string>& authority) const {
  if (!check_hosts_ || !authority.has_value()) return true;
  const absl::string_view name = WithoutPort(*authority);
  for (const absl::string_view local : {"localhost", "127.0.0.1", "[::1]"}) {
    if (absl::EqualsIgnoreCase(name, local)) return true;
  }
  return std::any_of(allowed_hosts_.begin(), allowed_hosts_.end(), [&](const std::string& host) {
    return absl::EqualsIgnoreCase(host, name) || absl::EqualsIgnoreCase(host, *authority);
  });
}

bool AccessRules::IsListed(absl::string_view origin) const {
  return !origin.empty() && std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

HttpHeaders AccessRules::CorsHeaders(const HttpRequest& request) const {
  if (origins_.empty()) return {};
  const absl::string_view origin = request.header("origin");
  if (!IsListed(origin)) return {{"Vary", "Origin"}};
  return {
      {"Vary", "Origin"},
      {"Access-Control-Allow-Origin", std::string(origin)},
      {"Access-Control-Expose-Headers", "x-request-id, request-id, retry-after, x-should-retry, x-stagecoach-ignored"}};
}

std::optional<HttpResponse> AccessRules::Preflight(const HttpRequest& request) const {
  if (request.method != "OPTIONS" || request.header("access-control-request-method").empty() ||
      !IsListed(request.header("origin"))) {
    return std::nullopt;
  }
  HttpResponse response{
      204, {{"Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE"}, {"Access-Control-Max-Age", "600"}}, "", ""};
  const absl::string_view fields = request.header("access-control-request-headers");
  if (IsFieldList(fields)) response.headers.emplace_back("Access-Control-Allow-Headers", fields);
  // A page of a public address asks whether it may reach a server of this network: one that is listed may.
  if (absl::EqualsIgnoreCase(request.header("access-control-request-private-network"), "true")) {
    response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  return response;
}

ServerState::ServerState(HttpServerOptions server_options, HttpHandler* server_handler, bool loopback)
    : options(std::move(server_options)),
      handler(server_handler),
      rules(loopback, options.allowed_hosts, options.cors_origins),
      id_salt(RandomBits()),
      scratch(kReadBytes) {}

void ServerState::CutLargestWaiters() {
  std::vector<std::shared_ptr<Connection>> waiters(connections.begin(), connections.end());
  std::sort(waiters.begin(), waiters.end(),
            [](const auto& a, const auto& b) { return a->accounted_bytes() > b->accounted_bytes(); });
  for (const auto& waiter : waiters) {
    if (pending_bytes <= options.limits.all_drained_bytes) break;
    ++counters.slow_clients;
    waiter->Cut();
  }
}

int ServerState::DrawRetrySeconds() { return 1 + static_cast<int>(retries++ % kMostRetrySeconds); }

std::string ServerState::DrawId() { return absl::StrCat("req-", absl::Hex(id_salt, absl::kZeroPad16), "-", ++ids); }

}  // namespace stagecoach
