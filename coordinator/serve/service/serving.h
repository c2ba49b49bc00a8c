#ifndef STAGECOACH_COORDINATOR_SERVE_SERVICE_SERVING_H_
#define STAGECOACH_COORDINATOR_SERVE_SERVICE_SERVING_H_

// The handler of a service's routes, its states, and the calls that produce tokens, between the HTTP server and the
// session's thread. Runs on the server's I/O thread unless noted.
//
//   loading      the first job comes up: calls that produce tokens get 503, everything else is answered
//   ready
//   recovering   a job was lost: calls are queued as usual, open ones go on when the next job runs
//   draining     after Drain: new calls get 503, open ones have the drain timeout to end
//   lost         the session has failed: open calls end with an error

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/serve/api/model_bodies.h"
#include "coordinator/serve/api/served_model.h"
#include "coordinator/serve/http/http_server.h"
#include "coordinator/serve/metrics/service_metrics.h"
#include "coordinator/serve/service/open_calls.h"
#include "coordinator/serve/service/queue_places.h"
#include "coordinator/serve/service/service_routes.h"
#include "coordinator/session/session.h"
#include "coordinator/session/session_thread.h"

namespace stagecoach {

struct ServingOptions {
  CallOptions calls;
  QueuePlaces::Limits texts = {.requests = 32, .tokens = int64_t{32} << 20};  // the latter of bytes; beyond: 429
  absl::Duration drain_timeout = absl::Seconds(30);
  bool metrics_need_key = false;
  ServiceFacts facts;  // of the metrics
};

class Serving : public HttpHandler, public SessionListener {
 public:
  Serving(ServingOptions options, ServedModel model);
  ~Serving() override;

  // Once, before the server starts and the session runs; both outlive their use of this object.
  void Attach(HttpServer* server, SessionThread* session);

  // Refuses new calls; the session ends when the open ones are answered or the drain timeout is over. Any thread.
  void Drain();
  bool drain_asked() const { return drain_asked_; }  // any thread

  // When the session has ended: waits until the I/O thread has seen all of it, up to `most`. Any thread but that one.
  void AwaitAnswers(absl::Duration most);
  void StopPreparing() { calls_.StopPreparing(); }  // when the server has stopped

  HeadVerdict OnHead(const HttpRequest& request) override;
  void OnRequest(std::shared_ptr<HttpExchange> exchange) override;
  void OnAnswer(const HttpRequest& request, int status) override;
  std::string OnRefusal(const HttpRequest& request, const HttpError& error) override;
  void OnTick() override;

  // The session's thread.
  void OnEvents(std::vector<SessionEvent> events) override;
  void OnTurn() override;
  void OnEnding(const absl::Status& ended) override;

 private:
  using State = SessionStatus::State;

  // Why a request of this head is not taken; `headers`: what the refusal has to have.
  std::optional<ApiError> Refusal(const FoundRoute& found, const HttpRequest& request, HttpHeaders* headers);
  void CountRefusal(const HttpRequest& request, const std::string& code);
  std::optional<ApiError> StateRefusal() const;
  int LoadingSeconds(const SessionStatus& status) const;
  bool draining() const { return drain_ != Draining::kNot; }
  void StartDrain();
  void EndDrain();
  void DrainSession();
  void CountConnections();

  HttpResponse Answer(const FoundRoute& found, const HttpRequest& request);
  State ShownState(const SessionStatus& status) const;  // draining from the first word of it on
  HttpResponse Health(const HttpRequest& request) const;
  HttpResponse Cluster() const;
  HttpResponse Models(const FoundRoute& found, const HttpRequest& request) const;
  HttpResponse CancelCall(const std::string& id, const HttpRequest& request);
  HttpResponse Metrics();
  HttpResponse Root(const HttpRequest& request) const;
  std::optional<ApiError> TextRefusal(QueuePlaces::Verdict verdict, const std::string& tenant);
  void AnswerBody(Route route, std::shared_ptr<HttpExchange> exchange);

  const ServingOptions options_;
  const ServedModel model_;
  ServiceMetrics metrics_;
  OpenCalls calls_;
  // Of the calls for tokens and texts, from their body to their answer, and of the bytes of these bodies.
  QueuePlaces text_places_;
  RetryTimes text_retry_times_;
  HttpServer* server_ = nullptr;
  SessionThread* session_ = nullptr;
  int64_t attached_us_ = 0;

  int64_t slow_clients_ = 0;  // that were counted
  enum class Draining { kNot, kAnswers, kOver } drain_ = Draining::kNot;
  bool session_drains_ = false;

  std::atomic<bool> drain_asked_{false};

  // Of the session's thread.
  State logged_state_ = State::kLoading;
};

// A whole service: the HTTP server, Serving, the session behind it, and the signals that end it. Not thread-safe.
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

#endif  // STAGECOACH_COORDINATOR_SERVE_SERVICE_SERVING_H_
