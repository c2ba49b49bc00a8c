// The routes of Serving that produce no tokens.

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/shown_text.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/dialects/messages.h"
#include "coordinator/serve/api/dialects/responses.h"
#include "coordinator/serve/metrics/cluster_json.h"
#include "coordinator/serve/service/serving.h"
#include "coordinator/serve/service/start_page.h"

namespace stagecoach {
namespace {

constexpr int64_t kSecondUs = 1'000'000;

HttpResponse JsonResponse(const Json& json) { return {.body = CompactJson(json)}; }

HttpResponse ResponseOf(BodyAnswer answer, const HttpRequest& request) {
  if (answer.error.has_value()) return ErrorResponse(*answer.error, request);
  return {.body = std::move(answer.body)};
}

// The latest loss not yet made good whose stage is known: a job that does not come up again has no stages to name.
const StageLoss* KnownLoss(const SessionStatus& status) {
  for (auto loss = status.losses.rbegin(); loss != status.losses.rend() && loss->recovered_us == 0; ++loss) {
    if (loss->stage.has_value()) return &*loss;
  }
  return nullptr;
}

// What people are told of a state; nothing of one in which all is well.
std::string StateSentence(SessionStatus::State state, const SessionStatus& status) {
  switch (state) {
    case SessionStatus::State::kReady: return "";
    case SessionStatus::State::kLoading:
      return absl::StrCat("the model loads: ", status.progress.bytes_loaded(), " of ", status.progress.bytes_to_load(),
                          " bytes");
    case SessionStatus::State::kDraining: return "the server ends";
    case SessionStatus::State::kEnded: return "the cluster is lost, and the server ends";
    case SessionStatus::State::kRecovering: break;
  }
  const StageLoss* loss = KnownLoss(status);
  const std::string who = loss != nullptr ? absl::StrCat("stage ", *loss->stage) : "the cluster";
  return absl::StrCat(who, loss != nullptr && !loss->host.empty() ? absl::StrCat(" on ", loss->host) : "",
                      " was lost; requests wait for the next launch");
}

BodyAnswer AnswerOf(Route route, const std::string& body, const ServedModel& model, const CallContext& context) {
  try {
    if (route == Route::kTokenize) return TokenizeBody(body, model, context);
    if (route == Route::kDetokenize) return DetokenizeBody(body, model);
    if (route == Route::kInputTokens) return CountInputTokensBody(body, model, context);
    if (route == Route::kCountTokens) return CountTokensBody(body, model, context);
    return ApplyTemplateBody(body, model, context);
  } catch (const std::exception& thrown) {
    return {"", MakeApiError(ApiErrorCode::kInternal, absl::StrCat("cannot be answered: ", thrown.what()))};
  }
}

}  // namespace

HttpResponse Serving::Answer(const FoundRoute& found, const HttpRequest& request) {
  switch (found.facts->route) {
    case Route::kHealth: return Health(request);
    case Route::kModels:
    case Route::kModel: return Models(found, request);
    case Route::kTokenizerInfo: return {.body = TokenizerInfoBody(model_)};
    case Route::kMetrics: return Metrics();
    case Route::kVersion: return JsonResponse({{"version", options_.facts.version}});
    case Route::kHello: return JsonResponse({{"status", "ok"}});
    case Route::kTelemetry: return {.status = 204, .content_type = ""};
    case Route::kCluster: return Cluster();
    case Route::kRequest: return CancelCall(found.rest, request);
    case Route::kRoot: return Root(request);
    default: return ErrorResponse(MakeApiError(ApiErrorCode::kInternal, "this route has no answer"), request);
  }
}

Serving::State Serving::ShownState(const SessionStatus& status) const {
  return draining() && status.state != State::kEnded ? State::kDraining : status.state;
}

HttpResponse Serving::Health(const HttpRequest& request) const {
  const std::shared_ptr<const SessionStatus> status = session_->Status();
  const State state = ShownState(*status);
  if (state == State::kReady) return JsonResponse({{"status", "ok"}});
  Json body = {{"status", StateName(state)}};
  ApiErrorKind kind = ApiErrorCode::kStagesLost;
  std::optional<int> retry_after_s;
  if (state == State::kLoading) {
    body["bytes_loaded"] = status->progress.bytes_loaded();
    body["bytes_to_load"] = status->progress.bytes_to_load();
    kind = ApiErrorCode::kLoading;
    retry_after_s = LoadingSeconds(*status);
  } else if (state == State::kDraining) {
    kind = ApiErrorCode::kDraining;
  } else if (state == State::kRecovering) {
    const StageLoss* loss = KnownLoss(*status);
    body["stage"] = loss != nullptr ? Json(*loss->stage) : Json(nullptr);
    body["host"] = loss != nullptr && !loss->host.empty() ? Json(loss->host) : Json(nullptr);
    kind = ApiErrorCode::kRecovering;
  }
  ApiError error = MakeApiError(kind, StateSentence(state, *status));
  error.retry_after_s = retry_after_s;
  body["error"] = ReadJson(ErrorBody(error))["error"];
  HttpResponse response = ErrorResponse(error, request);
  response.status = 503;
  response.body = CompactJson(body);
  return response;
}

HttpResponse Serving::Models(const FoundRoute& found, const HttpRequest& request) const {
  const int64_t context = session_->Status()->context_tokens();
  const bool anthropic = !request.header("anthropic-version").empty();
  if (found.facts->route == Route::kModel)
    return ResponseOf(ModelBody(model_, context, found.rest, anthropic), request);
  return {.body = ModelsBody(model_, context, anthropic)};
}

HttpResponse Serving::Cluster() const {
  ClusterFacts facts;
  facts.model = model_.names.front();
  facts.bubble_now = metrics_.bubble().Over(kSecondUs);
  facts.bubble_minute = metrics_.bubble().Over(60 * kSecondUs);
  facts.bubble_floor = metrics_.bubble().FloorOver(60 * kSecondUs);
  const std::shared_ptr<const SessionStatus> status = session_->Status();
  Json body = ClusterJson(*status, facts);
  body["state"] = StateName(ShownState(*status));
  return JsonResponse(body);
}

HttpResponse Serving::CancelCall(const std::string& id, const HttpRequest& request) {
  switch (calls_.Cancel(id, request.tenant)) {
    case OpenCalls::Cancelled::kYes: return JsonResponse({{"id", id}, {"cancelled", true}});
    case OpenCalls::Cancelled::kNotOwner:
      return ErrorResponse(MakeApiError(ApiErrorCode::kNotOwner, "this request was made with another key"), request);
    case OpenCalls::Cancelled::kNotFound: break;
  }
  const std::string what = absl::StrCat("no request '", CutText(id), "' is being answered; it may have ended");
  return ErrorResponse(MakeApiError(ApiErrorCode::kNotFound, what), request);
}

HttpResponse Serving::Metrics() {
  metrics_.TakeStatus(*session_->Status(), MonotonicUs());
  CountConnections();
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.Text(ReadProcessUse())};
}

HttpResponse Serving::Root(const HttpRequest& request) const {
  const std::shared_ptr<const SessionStatus> status = session_->Status();
  const State state = ShownState(*status);
  StartPageFacts facts;
  facts.version = options_.facts.version;
  facts.models = model_.names;
  facts.state = StateName(state);
  facts.detail = StateSentence(state, *status);
  facts.settled = state == State::kReady || state == State::kEnded;
  facts.context_tokens = status->context_tokens();
  facts.stages = status->ready.stages_size();
  facts.calls = static_cast<int64_t>(calls_.size());
  facts.waiting = calls_.places().requests();
  facts.places = options_.calls.queue.requests;
  facts.base_url = BaseUrlOf(request, server_->address());
  return StartPage(facts);
}

std::optional<ApiError> Serving::TextRefusal(QueuePlaces::Verdict verdict, const std::string& tenant) {
  if (verdict == QueuePlaces::Verdict::kTaken) return std::nullopt;
  const bool its_share = verdict == QueuePlaces::Verdict::kTenantLimit;
  ApiError error = MakeApiError(
      its_share ? ApiErrorCode::kTenantLimit : ApiErrorCode::kQueueFull,
      absl::StrCat(text_places_.requests(), " requests for tokens and texts with ", text_places_.tokens(),
                   " bytes are answered, of at most ", options_.texts.requests, " and ", options_.texts.tokens,
                   its_share ? ", of which a key may have half while others ask" : "", "; try again later"));
  const double any_pace = std::numeric_limits<double>::infinity();
  error.retry_after_s = text_retry_times_.SecondsToRoom(MonotonicUs(), any_pace, its_share ? tenant : "");
  return error;
}

// Takes as long as the body is long: on another thread.
void Serving::AnswerBody(Route route, std::shared_ptr<HttpExchange> exchange) {
  const std::string tenant = exchange->request().tenant;
  const int64_t body_bytes = static_cast<int64_t>(exchange->request().body.size());
  if (const std::optional<ApiError> error = TextRefusal(text_places_.Take(tenant, 1, body_bytes), tenant);
      error.has_value()) {
    return exchange->Respond(ErrorResponse(*error, exchange->request()));
  }
  text_retry_times_.Started(MonotonicUs());
  CallContext context;
  context.now = absl::Now();
  context.context_tokens = session_->Status()->context_tokens();
  const auto body = std::make_shared<std::string>(exchange->TakeBody());
  const auto answer = std::make_shared<BodyAnswer>();
  const auto work = [this, route, body, answer, context] { *answer = AnswerOf(route, *body, model_, context); };
  calls_.Prepare(body->size(), work, [this, answer, tenant, body_bytes, exchange = std::move(exchange)] {
    text_places_.Leave(tenant, 1, body_bytes);
    text_retry_times_.Ended(MonotonicUs(), /*served=*/true);
    exchange->Respond(ResponseOf(std::move(*answer), exchange->request()));
  });
}

}  // namespace stagecoach
