#include "coordinator/http/connection_exchange.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "coordinator/http/connection.h"
#include "coordinator/http/http_error.h"

namespace stagecoach {

ConnectionExchange::~ConnectionExchange() {
  if (!open()) return;
  LogError(
      absl::StrCat("request ", request_.id, " (", request_.method, " ", request_.path, ") was left without an answer"));
  if (streaming_) {
    Abort();
  } else {
    HttpResponse response{500};
    response.body = WriteHttpError(request_, {500, "internal", "the server failed to answer this request"});
    Respond(std::move(response));
  }
}

ConnectionExchange::Callbacks ConnectionExchange::Detach() {
  connection_ = nullptr;
  return std::exchange(callbacks_, {});
}

std::string ConnectionExchange::TakeBody() { return std::exchange(request_.body, std::string()); }

void ConnectionExchange::Respond(HttpResponse response) {
  if (!open()) return;
  CHECK(!streaming_);
  Connection* connection = connection_;
  const Callbacks dropped = Detach();
  connection->Answer(request_, response);
}

void ConnectionExchange::BeginStream(HttpStreamHead head) {
  if (!open()) return;
  CHECK(!streaming_);
  streaming_ = true;
  connection_->BeginStream(request_, head);
  if (request_.head) End();  // of a stream there is nothing but its head to tell
}

void ConnectionExchange::Write(absl::string_view bytes) {
  if (!open() || bytes.empty()) return;
  CHECK(streaming_);
  connection_->AppendToStream(bytes);
}

void ConnectionExchange::End() {
  if (!open()) return;
  CHECK(streaming_);
  Connection* connection = connection_;
  const Callbacks dropped = Detach();
  connection->EndStream();
}

void ConnectionExchange::Abort() {
  if (!open()) return;
  Connection* connection = connection_;
  const Callbacks dropped = Detach();
  connection->AbortSoon();
}

void ConnectionExchange::set_keep_alive(std::string bytes) {
  if (open()) connection_->set_keep_alive(std::move(bytes));
}

size_t ConnectionExchange::pending_bytes() const { return open() ? connection_->pending_bytes() : 0; }
bool ConnectionExchange::slow() const { return open() && connection_->slow(); }

void ConnectionExchange::set_kept_bytes(int64_t bytes) {
  if (open()) connection_->set_kept_bytes(bytes);
}

}  // namespace stagecoach
