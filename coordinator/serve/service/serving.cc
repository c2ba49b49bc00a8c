#include "coordinator/serve/service/serving.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/signals.h"
#include "coordinator/text/grammar/form/answer_grammars.h"

namespace stagecoach {
namespace {

constexpr int64_t kMostTelemetryBytes = 1 << 20;
// From the end of the drain timeout on, until requests that were cancelled have ended.
constexpr absl::Duration kCancelTime = absl::Seconds(2);

// As many calls for tokens and texts as there are places for, before any has ended.
constexpr double kAssumedTextSeconds = 1;

// application/json, or something that is written in it.
bool IsJson(absl::string_view content_type) {
  const std::string type =
      absl::AsciiStrToLower(absl::StripAsciiWhitespace(content_type.substr(0, content_type.find(';'))));
  return type == "application/json" || absl::EndsWith(type, "+json");
}

// Of a body with OpenAI's member error.message, for clients that expect a text in `error`, as Ollama's do. Under
// application/json ollama-js would show that object as "[object Object]"; under any other type it shows the whole body.
// ollama-python and Open WebUI show the object with its message, and take every type that ends with json; Ollama's own
// program and most others show the body, and OpenAI's and Anthropic's libraries read JSON whatever its type is.
constexpr char kForeignErrorType[] = "application/problem+json";

constexpr absl::Duration kFlushTime = absl::Seconds(5);  // for clients to take their last bytes

}  // namespace

Serving::Serving(ServingOptions options, ServedModel model)
    : options_(std::move(options)),
      model_(std::move(model)),
      metrics_(options_.facts),
      calls_(options_.calls, &model_, &metrics_),
      text_places_(options_.texts),
      text_retry_times_(options_.texts.requests, kAssumedTextSeconds) {}

Serving::~Serving() = default;

void Serving::Attach(HttpServer* server, SessionThread* session) {
  server_ = server;
  session_ = session;
  attached_us_ = MonotonicUs();
  calls_.Attach(server, session, [this] { DrainSession(); });
  if (model_.grammars == nullptr) return;
  model_.grammars->OnCompiled([this](int64_t us) { server_->Post([this, us] { metrics_.CompiledGrammar(us); }); });
}

int Serving::LoadingSeconds(const SessionStatus& status) const {
  const double loaded = static_cast<double>(status.progress.bytes_loaded());
  const double total = static_cast<double>(status.progress.bytes_to_load());
  if (loaded <= 0 || total <= 0) return 2;
  const double so_far_s = static_cast<double>(MonotonicUs() - attached_us_) * 1e-6;
  return static_cast<int>(std::clamp(so_far_s * (total - loaded) / loaded, 1.0, 60.0));
}

std::optional<ApiError> Serving::StateRefusal() const {
  const std::shared_ptr<const SessionStatus> status = session_->Status();
  ApiError error;
  if (draining() || status->state == State::kDraining) {
    error = MakeApiError(ApiErrorCode::kDraining, "the server ends and takes no more requests");
    error.retry_after_s = std::clamp(static_cast<int>(absl::ToInt64Seconds(options_.drain_timeout)), 1, 60);
  } else if (status->state == State::kLoading) {
    error =
        MakeApiError(ApiErrorCode::kLoading, absl::StrCat("the model loads: ", status->progress.bytes_loaded(), " of ",
                                                          status->progress.bytes_to_load(), " bytes; try again later"));
    error.retry_after_s = LoadingSeconds(*status);
  } else if (status->state == State::kEnded) {
    error = MakeApiError(ApiErrorCode::kStagesLost, "the cluster is lost, and the server ends");
    error.retry_after_s = 60;
  } else {
    return std::nullopt;
  }
  return error;
}

std::optional<ApiError> Serving::Refusal(const FoundRoute& found, const HttpRequest& request, HttpHeaders* headers) {
  if (found.facts == nullptr) {
    return MakeApiError(ApiErrorCode::kNotFound,
                        absl::StrCat("there is nothing at ", request.method, " ", CutText(request.path),
                                     "; the routes of this server begin with /v1/"));
  }
  const Route route = found.facts->route;
  if (!Allows(*found.facts, request.method)) {
    const std::string allowed = AllowedMethods(*found.facts);
    headers->emplace_back("Allow", allowed);
    return MakeApiError(ApiErrorCode::kMethodNotAllowed,
                        absl::StrCat(request.path, " takes ", allowed, ", this request is a ", request.method));
  }
  if (route == Route::kElsewhere) {
    return MakeApiError(ApiErrorCode::kNotFound,
                        absl::StrCat("there is nothing at ", request.method, " ", CutText(request.path),
                                     ", which is of ", found.facts->reason, "; use ", found.facts->use));
  }
  const bool needs_key = found.facts->needs_key || (route == Route::kMetrics && options_.metrics_need_key);
  if (needs_key && request.tenant.empty()) {
    headers->emplace_back("WWW-Authenticate", "Bearer");
    return MakeApiError(ApiErrorCode::kInvalidApiKey,
                        "no valid key: expected 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
  }
  if (route == Route::kNotSupported) {
    return MakeApiError(ApiErrorCode::kNotSupported,
                        absl::StrCat(CutText(request.path), " is not supported by this server: ", found.facts->reason));
  }
  if (const absl::string_view type = request.header("content-type"); TakesJson(route) && !IsJson(type)) {
    return MakeApiError(ApiErrorCode::kUnsupportedMediaType,
                        absl::StrCat("expected a body of JSON under the header 'Content-Type: application/json' (curl: "
                                     "-H and this header), found ",
                                     type.empty() ? "none" : ShownText(type)));
  }
  if (const absl::string_view coding = request.header("content-encoding");
      TakesJson(route) && !coding.empty() && !absl::EqualsIgnoreCase(coding, "identity")) {
    headers->emplace_back("Accept-Encoding", "identity");
    return MakeApiError(ApiErrorCode::kUnsupportedMediaType,
                        absl::StrCat("expected a body that is not compressed, found 'Content-Encoding: ",
                                     CutText(coding), "'; send the JSON as it is"));
  }
  if (TakesText(route)) return TextRefusal(text_places_.Check(request.tenant, 1, 0), request.tenant);
  if (route != Route::kGenerate) return std::nullopt;
  std::optional<ApiError> error = StateRefusal();
  return error.has_value() ? error : calls_.Refusal(request.tenant);
}

HeadVerdict Serving::OnHead(const HttpRequest& request) {
  const FoundRoute found = FindRoute(request.path);
  HeadVerdict verdict;
  HttpHeaders headers;
  if (const std::optional<ApiError> error = Refusal(found, request, &headers); error.has_value()) {
    CountRefusal(request, error->code);
    verdict.refusal = ErrorResponse(*error, request);
    if (found.facts != nullptr && found.facts->route == Route::kElsewhere) {
      verdict.refusal->content_type = kForeignErrorType;
    }
    for (auto& header : headers) verdict.refusal->headers.push_back(std::move(header));
    return verdict;
  }
  if (!TakesJson(found.facts->route)) verdict.max_body_bytes = kMostTelemetryBytes;
  if (TakesText(found.facts->route)) verdict.max_body_bytes = kMostTextBodyBytes;
  return verdict;
}

// Of calls that would have produced tokens.
void Serving::CountRefusal(const HttpRequest& request, const std::string& code) {
  const FoundRoute found = FindRoute(request.path);
  if (found.facts != nullptr && found.facts->api != nullptr) metrics_.Refused(code);
}

std::string Serving::OnRefusal(const HttpRequest& request, const HttpError& error) {
  CountRefusal(request, error.code);
  const ApiErrorKind kind = {error.status, ErrorTypeOf(error.status), error.code.c_str()};
  return ErrorResponse(MakeApiError(kind, error.message), request).body;
}

void Serving::OnRequest(std::shared_ptr<HttpExchange> exchange) {
  const FoundRoute found = FindRoute(exchange->request().path);
  // What OnHead let through has a route.
  const Route route = found.facts->route;
  if (!TakesJson(route)) return exchange->Respond(Answer(found, exchange->request()));
  if (TakesText(route)) return AnswerBody(route, std::move(exchange));
  if (const std::optional<ApiError> error = StateRefusal(); error.has_value()) {  // it may have changed
    metrics_.Refused(error->code);
    return exchange->Respond(ErrorResponse(*error, exchange->request()));
  }
  calls_.Take(*found.facts->api, std::move(exchange));
}

void Serving::OnAnswer(const HttpRequest& request, int status) {
  const FoundRoute found = FindRoute(request.path);
  metrics_.Answered(found.facts == nullptr ? "other" : found.facts->path, status);
  calls_.LogAnswer(request, status);
}

void Serving::OnTick() {
  const int64_t now_us = MonotonicUs();
  metrics_.TakeStatus(*session_->Status(), now_us);
  CountConnections();
  calls_.Tick();
}

void Serving::CountConnections() {
  const HttpCounters counters = server_->counters();
  metrics_.SetConnections(counters.reading + counters.answering, counters.idle, counters.closing);
  metrics_.SetStreams(counters.streams);
  for (; slow_clients_ < counters.slow_clients; ++slow_clients_) metrics_.CountSlowClient();
}

void Serving::Drain() {
  if (drain_asked_.exchange(true)) return;
  server_->Post([this] { StartDrain(); });
}

void Serving::StartDrain() {
  drain_ = Draining::kAnswers;
  LogInfo(absl::StrCat("ending: no more requests are taken, ", calls_.size(), " are answered within ",
                       absl::FormatDuration(options_.drain_timeout), "; a second signal ends at once"));
  server_->PostAfter(options_.drain_timeout, [this] { EndDrain(); });
  DrainSession();
}

// The drain timeout is over.
void Serving::EndDrain() {
  drain_ = Draining::kOver;
  calls_.FailAll(MakeApiError(ApiErrorCode::kDraining, "the server ends before this answer does"));
  DrainSession();
  server_->PostAfter(kCancelTime, [this] { session_->Stop(); });
}

// Not before what was accepted is with the session, as long as there is time for that.
void Serving::DrainSession() {
  if (!draining() || session_drains_ || (calls_.preparing() > 0 && drain_ != Draining::kOver)) return;
  session_drains_ = true;
  session_->Drain();
}

void Serving::AwaitAnswers(absl::Duration most) {
  const auto seen = std::make_shared<std::promise<void>>();
  std::future<void> future = seen->get_future();
  server_->Post([this, seen] {
    calls_.FeedAllHeld();
    seen->set_value();
  });
  future.wait_for(absl::ToChronoMilliseconds(most));
}

void Serving::OnEvents(std::vector<SessionEvent> events) {
  const auto shared = std::make_shared<std::vector<SessionEvent>>(std::move(events));
  server_->Post([this, shared] { calls_.HandleEvents(std::move(*shared)); });
}

void Serving::OnTurn() {
  const std::shared_ptr<const SessionStatus> status = session_->Status();
  if (status->state == logged_state_) return;
  if (status->state == State::kReady) {
    const int stages = status->ready.stages_size();
    LogInfo(absl::StrCat(logged_state_ == State::kLoading ? "ready" : "ready again", ": ", server_->address(),
                         " serves ", model_.names.front(), ", context ", status->context_tokens(), ", ", stages,
                         stages == 1 ? " stage" : " stages"));
  }
  logged_state_ = status->state;
}

void Serving::OnEnding(const absl::Status& ended) {
  server_->Post([this, ended] { calls_.SessionEnds(ended); });
}

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
  serving_.AwaitAnswers(kFlushTime);
  server_->Stop(kFlushTime);
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
