// What a connection writes, and when it ends.

#include <netinet/tcp.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/serve/http/connection.h"
#include "coordinator/serve/http/http_request.h"

namespace stagecoach {
namespace {

using boost::asio::ip::tcp;

constexpr size_t kMostKeptBytes = 16 << 10;  // of the memory of an empty buffer: most clients idle most of the time

void AddField(absl::string_view name, absl::string_view value, std::string* text) {
  absl::StrAppend(text, name, ": ");
  for (const char c : value) text->push_back(absl::ascii_iscntrl(c) ? ' ' : c);
  absl::StrAppend(text, "\r\n");
}

bool HasBody(int status) { return status >= 200 && status != 204 && status != 304; }

int64_t Us(absl::Duration duration) { return absl::ToInt64Microseconds(duration); }

}  // namespace

void SocketOutput::NoteAppended() {
  appended_us_ = MonotonicUs();
  if (pending() == 0) progress_us_ = appended_us_;
}

void SocketOutput::Append(absl::string_view bytes) {
  NoteAppended();
  ready_.append(bytes.data(), bytes.size());
}

void SocketOutput::BeginStream(bool chunked) { chunked_ = chunked; }

void SocketOutput::AppendToStream(absl::string_view bytes) {
  NoteAppended();
  stream_.append(bytes.data(), bytes.size());
}

void SocketOutput::CloseChunk() {
  if (stream_.empty()) return;  // an empty chunk would end the stream
  if (chunked_) {
    absl::StrAppend(&ready_, absl::Hex(stream_.size()), "\r\n", stream_, "\r\n");
  } else {
    ready_ += stream_;
  }
  stream_.clear();
  if (stream_.capacity() > kMostKeptBytes) stream_.shrink_to_fit();
}

void SocketOutput::EndStream() {
  CloseChunk();
  if (chunked_) Append("0\r\n\r\n");
}

SocketOutput::Result SocketOutput::WriteTo(boost::asio::ip::tcp::socket& socket) {
  while (true) {
    if (sent_ == sending_.size()) {
      CloseChunk();
      sending_.clear();
      sent_ = 0;
      sending_.swap(ready_);
      if (sending_.empty()) break;
    }
    boost::system::error_code error;
    const size_t taken =
        socket.write_some(boost::asio::buffer(sending_.data() + sent_, sending_.size() - sent_), error);
    if (error == boost::asio::error::would_block || error == boost::asio::error::try_again) return Result::kFull;
    if (error) return Result::kFailed;
    sent_ += taken;
    progress_us_ = MonotonicUs();
  }
  if (sending_.capacity() > kMostKeptBytes) sending_.shrink_to_fit();
  if (ready_.capacity() > kMostKeptBytes) ready_.shrink_to_fit();
  return Result::kAll;
}

HttpExchange::~HttpExchange() {
  if (!open()) return;
  LogError(
      absl::StrCat("request ", request_.id, " (", request_.method, " ", request_.path, ") was left without an answer"));
  if (streaming_) {
    Abort();
  } else {
    HttpResponse response{500};
    const HttpError error = {500, "internal", "the server failed to answer this request"};
    response.body = connection_->RefusalBody(request_, error);
    Respond(response);
  }
}

HttpExchange::Callbacks HttpExchange::Detach() {
  connection_ = nullptr;
  return std::exchange(callbacks_, {});
}

std::string HttpExchange::TakeBody() { return std::exchange(request_.body, std::string()); }

void HttpExchange::Respond(const HttpResponse& response) {
  if (!open()) return;
  CHECK(!streaming_);
  Connection* connection = connection_;
  const Callbacks dropped = Detach();
  connection->Answer(request_, response);
}

void HttpExchange::BeginStream(const HttpStreamHead& head) {
  if (!open()) return;
  CHECK(!streaming_);
  streaming_ = true;
  connection_->BeginStream(request_, head);
  if (request_.head) End();  // of a stream there is nothing but its head to tell
}

void HttpExchange::Write(absl::string_view bytes) {
  if (!open() || bytes.empty()) return;
  CHECK(streaming_);
  connection_->AppendToStream(bytes);
}

void HttpExchange::End() {
  if (!open()) return;
  CHECK(streaming_);
  Connection* connection = connection_;
  const Callbacks dropped = Detach();
  connection->EndStream();
}

void HttpExchange::Abort() {
  if (!open()) return;
  Connection* connection = connection_;
  const Callbacks dropped = Detach();
  connection->AbortSoon();
}

bool HttpExchange::slow() const { return open() && connection_->slow(); }

void HttpExchange::set_kept_bytes(int64_t bytes) {
  if (open()) connection_->set_kept_bytes(bytes);
}

// Control characters in values, which would begin fields of their own, become blanks.
std::string Connection::Head(const HttpRequest& request, int status, absl::string_view type, const HttpHeaders& headers,
                             int64_t length, bool chunked) const {
  // An answer to HTTP/1.0 says 1.1 too: that is what the server speaks.
  std::string text = absl::StrCat("HTTP/1.1 ", status, " ", StatusPhrase(status), "\r\n");
  AddField("Date", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()), &text);
  if (!type.empty()) AddField("Content-Type", type, &text);
  if (length >= 0) AddField("Content-Length", absl::StrCat(length), &text);
  if (chunked) AddField("Transfer-Encoding", "chunked", &text);
  if (!keep_alive_ || !state_->accepting) {
    AddField("Connection", "close", &text);
  } else if (!http_1_1_) {
    AddField("Connection", "keep-alive", &text);
  }
  if (!request.id.empty()) {
    AddField("x-request-id", request.id, &text);
    AddField("request-id", request.id, &text);
  }
  AddField("X-Content-Type-Options", "nosniff", &text);
  for (const auto& [name, value] : headers) AddField(name, value, &text);
  for (const auto& [name, value] : state_->rules.CorsHeaders(request)) AddField(name, value, &text);
  return text + "\r\n";
}

void Connection::Answer(const HttpRequest& request, const HttpResponse& response) {
  const bool body = HasBody(response.status);
  output_.Append(Head(request, response.status, response.content_type, response.headers,
                      body ? static_cast<int64_t>(response.body.size()) : -1, false));
  if (body && !request.head) output_.Append(response.body);
  state_->handler->OnAnswer(request, response.status);
  EndAnswer();
}

void Connection::BeginStream(const HttpRequest& request, const HttpStreamHead& head) {
  if (!http_1_1_) keep_alive_ = false;  // HTTP/1.0 knows no chunks: the end of the connection is that of the stream
  HttpHeaders headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  headers.insert(headers.end(), head.headers.begin(), head.headers.end());
  output_.Append(Head(request, 200, "text/event-stream", headers, -1, http_1_1_));
  streaming_ = true;
  ping_ = head.ping;
  ++state_->streams;
  output_.BeginStream(http_1_1_ && !request.head);
  if (!request.head) output_.AppendToStream(head.first_bytes);
  state_->handler->OnAnswer(request, 200);
  ScheduleFlush();
}

void Connection::AppendToStream(absl::string_view bytes) {
  output_.AppendToStream(bytes);
  ScheduleFlush();
}

void Connection::EndStream() {
  output_.EndStream();
  EndAnswer();
}

void Connection::EndAnswer() {
  if (streaming_) --state_->streams;
  streaming_ = false;
  kept_bytes_ = 0;
  exchange_ = nullptr;
  if (keep_alive_ && state_->accepting) {
    BeginRequest();
  } else {
    stage_ = Stage::kLinger;
  }
  ScheduleFlush();
}

void Connection::set_kept_bytes(int64_t bytes) {
  kept_bytes_ = bytes;
  ScheduleFlush();
}

void Connection::AbortSoon() {
  exchange_ = nullptr;
  boost::asio::post(state_->io, [self = shared_from_this()] { self->Cut(); });
}

void Connection::ScheduleFlush() {
  if (std::exchange(flush_scheduled_, true)) return;
  boost::asio::post(state_->io, [self = shared_from_this()] {
    self->flush_scheduled_ = false;
    self->Flush();
  });
}

void Connection::Flush() {
  if (closed_) return;
  if (!waiting_write_) {
    const auto result = output_.WriteTo(socket_);
    if (result == SocketOutput::Result::kFailed) {
      if (stage_ == Stage::kAnswer) ++state_->counters.gone_clients;
      return Close();
    }
    if (result == SocketOutput::Result::kFull) {
      waiting_write_ = true;
      socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](const boost::system::error_code&) {
        self->waiting_write_ = false;
        self->Flush();
      });
    }
  }
  Account();
  if (closed_) return;
  if (output_.pending() == 0) {
    idle_since_us_ = MonotonicUs();
    if (stage_ == Stage::kLinger && state_->stopping) return Close();
    if (stage_ == Stage::kLinger && linger_until_us_ == 0) {
      // Not closed yet: what the client still sends would have the system throw away what it has not read.
      boost::system::error_code error;
      socket_.shutdown(tcp::socket::shutdown_send, error);
      linger_until_us_ = idle_since_us_ + Us(state_->options.limits.linger_time);
    }
  }
  Advance();
}

// The water marks, after what could be written was.
void Connection::Account() {
  const HttpLimits& limits = state_->options.limits;
  const auto pending = static_cast<int64_t>(output_.pending());
  const int64_t waiting = pending + kept_bytes_;
  const int64_t before = std::exchange(accounted_bytes_, waiting);
  state_->pending_bytes += waiting - before;
  // One long event to a client that takes it is none of its faults.
  if (streaming_ && before > limits.client_bytes && waiting > before) {
    ++state_->counters.slow_clients;
    return Cut();
  }
  if (pending >= limits.slow_bytes) {
    slow_ = true;
  } else if (slow_ && pending <= limits.drained_bytes) {
    slow_ = false;
    const std::function<void()> on_drained = exchange_ != nullptr ? exchange_->on_drained() : nullptr;
    if (on_drained) on_drained();
  }
  if (state_->pending_bytes > limits.all_clients_bytes) state_->CutLargestWaiters();
}

void Connection::Tick(int64_t now_us) {
  if (closed_) return;
  const HttpLimits& limits = state_->options.limits;
  if (output_.pending() > 0 && now_us - output_.progress_us() >= Us(limits.slow_time)) {
    ++state_->counters.slow_clients;
    return Cut();
  }
  switch (stage_) {
    case Stage::kHead:
    case Stage::kBody: TickRequest(now_us); break;
    case Stage::kAnswer: TickAnswer(now_us); break;
    case Stage::kLinger:
      if (linger_until_us_ != 0 && now_us >= linger_until_us_) return Close();
      break;
  }
  ticked_us_ = now_us;
  if (!closed_ && !waiting_read_ && !peer_closed_ && SystemSaysClosed()) {
    if (stage_ == Stage::kAnswer) ++state_->counters.gone_clients;
    Close();
  }
}

void Connection::TickRequest(int64_t now_us) {
  const HttpLimits& limits = state_->options.limits;
  if (stage_ == Stage::kBody) {
    if (!state_->bodies_on) body_began_us_ += now_us - ticked_us_;
    const int64_t earned_us = limits.body_rate > 0 ? counted_body_bytes_ * 1'000'000 / limits.body_rate : 0;
    if (now_us - body_began_us_ < Us(limits.body_time) + earned_us) return;
    ++state_->counters.body_timeouts;
    RefuseBody({408, "body_timeout", "the body did not arrive in time"});
  } else if (head_began_us_ != 0) {
    if (now_us - head_began_us_ < Us(limits.header_time)) return;
    ++state_->counters.header_timeouts;
    Close();
  } else if (output_.pending() == 0 && now_us - idle_since_us_ >= Us(limits.idle_time)) {
    ++state_->counters.idle_closed;
    Close();
  }
}

void Connection::TickAnswer(int64_t now_us) {
  if (!streaming_ || output_.pending() > 0) return;
  if (now_us - output_.appended_us() >= Us(state_->options.sse_ping_interval)) AppendToStream(ping_);
}

// For a socket that is not waited for, since what came early has to wait: whether the client closed it meanwhile.
bool Connection::SystemSaysClosed() {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_FIN_WAIT1 && info.tcpi_state != TCP_FIN_WAIT2;
}

void Connection::Stop() {
  if (stage_ == Stage::kAnswer || stage_ == Stage::kBody || output_.pending() == 0) return Close();
  keep_alive_ = false;
  stage_ = Stage::kLinger;
  Flush();
}

void Connection::Cut() {
  if (closed_) return;
  boost::system::error_code error;
  socket_.set_option(boost::asio::socket_base::linger(true, 0), error);
  Close();
}

void Connection::Close() {
  if (std::exchange(closed_, true)) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  boost::system::error_code error;
  socket_.close(error);
  CountBody(0);
  state_->pending_bytes -= std::exchange(accounted_bytes_, 0);
  if (streaming_) --state_->streams;
  streaming_ = false;
  state_->connections.erase(self);
  if (HttpExchange* exchange = std::exchange(exchange_, nullptr); exchange != nullptr) {
    HttpExchange::Callbacks callbacks = exchange->Detach();
    if (callbacks.on_closed) boost::asio::post(state_->io, std::move(callbacks.on_closed));
  }
}

std::optional<int64_t> Connection::idle_since_us() const {
  if (output_.pending() > 0) return std::nullopt;
  if (stage_ == Stage::kLinger) return 0;
  if (stage_ == Stage::kHead && head_began_us_ == 0) return idle_since_us_;
  return std::nullopt;
}

void Connection::Count(HttpCounters* counters) const {
  if (stage_ == Stage::kLinger) {
    ++counters->closing;
  } else if (stage_ == Stage::kAnswer || output_.pending() > 0) {
    ++counters->answering;
  } else if (stage_ == Stage::kBody || head_began_us_ != 0) {
    ++counters->reading;
  } else {
    ++counters->idle;
  }
}

}  // namespace stagecoach
