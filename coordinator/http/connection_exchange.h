#ifndef STAGECOACH_COORDINATOR_HTTP_CONNECTION_EXCHANGE_H_
#define STAGECOACH_COORDINATOR_HTTP_CONNECTION_EXCHANGE_H_

// HttpExchange on a connection. It may outlive the connection, and the server; private to this folder.

#include <functional>
#include <string>
#include <utility>

#include "coordinator/http/http_handler.h"

namespace stagecoach {

class Connection;

class ConnectionExchange : public HttpExchange {
 public:
  ConnectionExchange(Connection* connection, HttpRequest request)
      : connection_(connection), request_(std::move(request)) {}
  ~ConnectionExchange() override;

  const HttpRequest& request() const override { return request_; }
  std::string TakeBody() override;
  void Respond(HttpResponse response) override;
  void BeginStream(HttpStreamHead head) override;
  void Write(absl::string_view bytes) override;
  void End() override;
  void Abort() override;
  void set_keep_alive(std::string bytes) override;
  bool open() const override { return connection_ != nullptr; }
  size_t pending_bytes() const override;
  bool slow() const override;
  void set_kept_bytes(int64_t bytes) override;
  void set_on_closed(std::function<void()> on_closed) override { callbacks_.on_closed = std::move(on_closed); }
  void set_on_drained(std::function<void()> on_drained) override { callbacks_.on_drained = std::move(on_drained); }

  struct Callbacks {
    std::function<void()> on_closed, on_drained;
  };
  // The connection has no more to do with it. Its callbacks, which may be all that holds this object.
  Callbacks Detach();
  std::function<void()> on_drained() const { return callbacks_.on_drained; }

 private:
  Connection* connection_;  // null: not open
  HttpRequest request_;
  bool streaming_ = false;
  Callbacks callbacks_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_CONNECTION_EXCHANGE_H_
