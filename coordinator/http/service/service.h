#ifndef STAGECOACH_COORDINATOR_HTTP_SERVICE_SERVICE_H_
#define STAGECOACH_COORDINATOR_HTTP_SERVICE_SERVICE_H_

// A whole service: the HTTP server, what it answers, the session behind it, and the signals that end it.

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/front/session.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/service/serving.h"

namespace stagecoach {

// Not thread-safe.
class Service {
 public:
  // Binds and listens. From here on signals are caught (SignalWatch): the first SIGTERM, SIGINT or SIGUSR1 drains, the
  // second ends the program at once with 130. Errors are HttpServer::Listen's.
  static absl::StatusOr<std::unique_ptr<Service>> Listen(HttpServerOptions http, ServingOptions serving,
                                                         ServedModel model);
  ~Service();

  const HttpServer& server() const { return *server_; }

  // Starts to answer at once, and runs the session on the calling thread until it is drained or lost. OK: a signal
  // ended it, and what was accepted is answered or was told so; else what the session said. Once.
  absl::Status Run(std::unique_ptr<Session> session);

 private:
  Service(ServingOptions serving, ServedModel model);
  void WatchSignals();

  Serving serving_;
  std::unique_ptr<HttpServer> server_;  // before what it calls
  std::atomic<bool> over_{false};
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_SERVICE_SERVICE_H_
