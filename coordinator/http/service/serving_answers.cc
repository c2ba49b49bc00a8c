// The routes of Serving that produce no tokens.

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "coordinator/front/json.h"
#include "coordinator/front/metrics/cluster_json.h"
#include "coordinator/http/service/serving.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

constexpr int64_t kSecondUs = 1'000'000;

HttpResponse JsonResponse(const Json& json, int status = 200) {
  HttpResponse response;
  response.status = status;
  response.body = CompactJson(json);
  return response;
}

HttpResponse ResponseOf(BodyAnswer answer) {
  HttpResponse response;
  if (answer.error.has_value()) response = ErrorResponse(*answer.error);
  response.body = std::move(answer.body);
  return response;
}

// Of the losses that are not made good yet the latest of which it is known who was lost: a job that does not come up
// again has no stages to name.
const StageLoss* KnownLoss(const SessionStatus& status) {
  for (auto loss = status.losses.rbegin(); loss != status.losses.rend() && loss->recovered_us == 0; ++loss) {
    if (loss->stage.has_value()) return &*loss;
  }
  return nullptr;
}

BodyAnswer AnswerOf(Route route, const std::string& body, const ServedModel& model, const CallContext& context) {
  try {
    if (route == Route::kTokenize) return TokenizeBody(body, model, context);
    if (route == Route::kDetokenize) return DetokenizeBody(body, model);
    return ApplyTemplateBody(body, model, context);
  } catch (const std::exception& thrown) {
    const ApiError error = MakeApiError(ApiErrorCode::kInternal, absl::StrCat("cannot be answered: ", thrown.what()));
    return {ErrorBody(error), error};
  }
}

}  // namespace

HttpResponse Serving::Answer(const FoundRoute& found, const HttpRequest& request) {
  switch (found.facts->route) {
    case Route::kHealth: return Health();
    case Route::kModels:
    case Route::kModel: return Models(found, request);
    case Route::kMetrics: return Metrics();
    case Route::kVersion: return JsonResponse({{"version", options_.facts.version}});
    case Route::kHello: return JsonResponse({{"status", "ok"}});
    case Route::kTelemetry: return {.status = 204, .content_type = ""};
    case Route::kCluster: return Cluster();
    case Route::kRequest: return CancelCall(found.rest, request);
    case Route::kRoot: return Root();
    default: return ErrorResponse(MakeApiError(ApiErrorCode::kInternal, "this route has no answer"));
  }
}

HttpResponse Serving::Health() const {
  const std::shared_ptr<const SessionStatus> status = session_->Status();
  const State state = draining() && status->state != State::kEnded ? State::kDraining : status->state;
  if (state == State::kReady) return JsonResponse({{"status", "ok"}});
  Json body = {{"status", StateName(state)}};
  ApiError error = MakeApiError(ApiErrorCode::kStagesLost, "the cluster is lost, and the server ends");
  if (state == State::kLoading) {
    body["bytes_loaded"] = status->progress.bytes_loaded();
    body["bytes_to_load"] = status->progress.bytes_to_load();
    error = MakeApiError(ApiErrorCode::kLoading, "the model loads");
    error.retry_after_s = LoadingSeconds(*status);
  } else if (state == State::kDraining) {
    error = MakeApiError(ApiErrorCode::kDraining, "the server ends");
  } else if (state == State::kRecovering) {
    std::string who = "the cluster";
    const StageLoss* loss = KnownLoss(*status);
    const bool on_host = loss != nullptr && !loss->host.empty();
    body["stage"] = loss != nullptr ? Json(*loss->stage) : Json(nullptr);
    body["host"] = on_host ? Json(loss->host) : Json(nullptr);
    if (loss != nullptr) who = absl::StrCat("stage ", *loss->stage);
    if (on_host) absl::StrAppend(&who, " on ", loss->host);
    error = MakeApiError(ApiErrorCode::kRecovering, absl::StrCat(who, " was lost; requests wait for the next launch"));
  }
  body["error"] = Json::parse(ErrorBody(error))["error"];
  HttpResponse response = ErrorResponse(error);
  response.status = 503;
  response.body = CompactJson(body);
  return response;
}

HttpResponse Serving::Models(const FoundRoute& found, const HttpRequest& request) const {
  const int64_t context = session_->Status()->context_tokens();
  const bool anthropic = !request.header("anthropic-version").empty();
  if (found.facts->route == Route::kModel) return ResponseOf(ModelBody(model_, context, found.rest, anthropic));
  return {.body = ModelsBody(model_, context, anthropic)};
}

HttpResponse Serving::Cluster() const {
  ClusterFacts facts;
  facts.model = model_.names.front();
  facts.bubble_now = metrics_.BubbleOf(kSecondUs);
  facts.bubble_minute = metrics_.BubbleOf(60 * kSecondUs);
  facts.bubble_floor = metrics_.BubbleFloorOf(60 * kSecondUs);
  const std::shared_ptr<const SessionStatus> status = session_->Status();
  Json body = ClusterJson(*status, facts);
  if (draining() && status->state != State::kEnded) body["state"] = StateName(State::kDraining);
  return JsonResponse(body);
}

HttpResponse Serving::CancelCall(const std::string& id, const HttpRequest& request) {
  switch (calls_.Cancel(id, request.tenant)) {
    case OpenCalls::Cancelled::kYes: return JsonResponse({{"id", id}, {"cancelled", true}});
    case OpenCalls::Cancelled::kNotOwner:
      return ErrorResponse(MakeApiError(ApiErrorCode::kNotOwner, "this request was made with another key"));
    case OpenCalls::Cancelled::kNotFound: break;
  }
  return ErrorResponse(MakeApiError(ApiErrorCode::kNotFound,
                                    absl::StrCat("no request '", id, "' is being answered; it may have ended")));
}

HttpResponse Serving::Metrics() {
  metrics_.TakeStatus(*session_->Status(), MonotonicUs());
  CountConnections();
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.Text(ReadProcessUse())};
}

HttpResponse Serving::Root() const {
  return {.content_type = "text/plain; charset=utf-8",
          .body = absl::StrCat("Stagecoach ", options_.facts.version, " serves ", model_.names.front(),
                               ".\n\n"
                               "POST /v1/chat/completions, /v1/completions    for OpenAI's clients: their base URL is ",
                               server_->address(),
                               "/v1\n"
                               "POST /tokenize, /detokenize, /apply-template\n"
                               "GET  /v1/models, /health, /metrics, /version, /api/cluster\n")};
}

// Takes as long as the body is long: on another thread.
void Serving::AnswerBody(Route route, std::shared_ptr<HttpExchange> exchange) {
  CallContext context;
  context.now = absl::Now();
  context.context_tokens = session_->Status()->context_tokens();
  const auto body = std::make_shared<std::string>(exchange->TakeBody());
  const auto answer = std::make_shared<BodyAnswer>();
  const size_t bytes = body->size();
  calls_.Prepare(
      bytes, [this, route, body, answer, context] { *answer = AnswerOf(route, *body, model_, context); },
      [answer, exchange = std::move(exchange)] { exchange->Respond(ResponseOf(std::move(*answer))); });
}

}  // namespace stagecoach
