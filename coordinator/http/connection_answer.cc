#include <netinet/tcp.h>
#include <sys/socket.h>

#include "common/base/clock.h"
#include "coordinator/http/answer_head.h"
#include "coordinator/http/connection.h"

namespace stagecoach {
namespace {

using boost::asio::ip::tcp;

bool HasBody(int status) { return status >= 200 && status != 204 && status != 304; }

int64_t Us(absl::Duration duration) { return absl::ToInt64Microseconds(duration); }

}  // namespace

std::string Connection::Head(const HttpRequest& request, int status, absl::string_view type, const HttpHeaders& headers,
                             int64_t length, bool chunked) const {
  const AnswerHead head{status, type, length, chunked, http_1_1_, keep_alive_ && state_->accepting, request.id};
  return WriteAnswerHead(head, headers, state_->rules.CorsHeaders(request), absl::Now());
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
  output_.Append(Head(request, head.status, head.content_type, headers, -1, http_1_1_));
  streaming_ = true;
  ++state_->streams;
  keep_alive_bytes_ = head.keep_alive;
  output_.BeginStream(http_1_1_ && !request.head);
  if (!request.head) output_.AppendToStream(head.first_bytes);
  state_->handler->OnAnswer(request, head.status);
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
  if (!streaming_ || keep_alive_bytes_.empty() || output_.pending() > 0) return;
  if (now_us - output_.appended_us() >= Us(state_->options.sse_ping_interval)) AppendToStream(keep_alive_bytes_);
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
  if (ConnectionExchange* exchange = std::exchange(exchange_, nullptr); exchange != nullptr) {
    ConnectionExchange::Callbacks callbacks = exchange->Detach();
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
