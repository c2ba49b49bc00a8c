#include "coordinator/http/service/service.h"

#include <poll.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/session_thread.h"
#include "coordinator/front/signals.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kLastWords = absl::Seconds(5);  // for clients to take their last bytes

}  // namespace

Service::Service(ServingOptions serving, ServedModel model) : serving_(std::move(serving), std::move(model)) {}

Service::~Service() = default;

absl::StatusOr<std::unique_ptr<Service>> Service::Listen(HttpServerOptions http, ServingOptions serving,
                                                         ServedModel model) {
  std::unique_ptr<Service> service(new Service(std::move(serving), std::move(model)));
  ASSIGN_OR_RETURN(service->server_, HttpServer::Listen(std::move(http), &service->serving_));
  SignalWatch::Get().EndAtSecondStop();
  return service;
}

absl::Status Service::Run(std::unique_ptr<Session> session) {
  SessionThread thread(std::move(session), &serving_);
  serving_.Attach(server_.get(), &thread);
  RETURN_IF_ERROR(server_->Start());
  std::thread signals([this] { WatchSignals(); });
  const absl::Status ended = thread.Run();
  serving_.AwaitAnswers(kLastWords);
  server_->Stop(kLastWords);
  serving_.StopPreparing();
  over_ = true;
  SignalWatch::Get().Wake();
  signals.join();
  return serving_.drain_asked() && absl::IsCancelled(ended) ? absl::OkStatus() : ended;
}

// The session's thread waits for its engine and the I/O thread for its clients.
void Service::WatchSignals() {
  SignalWatch& signals = SignalWatch::Get();
  while (!over_) {
    const int asked = signals.stops() + signals.drains();
    if (asked > 1) _exit(static_cast<int>(ExitCode::kInterrupted));  // the job ends when its front is gone
    if (asked > 0) serving_.Drain();
    pollfd wait = {signals.descriptor(), POLLIN, 0};
    poll(&wait, 1, -1);
    signals.Clear();
  }
}

}  // namespace stagecoach
