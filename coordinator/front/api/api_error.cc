#include "coordinator/front/api/api_error.h"

#include <iterator>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr char kInvalidRequest[] = "invalid_request_error";

struct Kind {
  ApiErrorCode code;
  int status;
  const char* type;
  const char* name;
};

constexpr Kind kKinds[] = {
    {ApiErrorCode::kInvalidJson, 400, kInvalidRequest, "invalid_json"},
    {ApiErrorCode::kInvalidValue, 400, kInvalidRequest, "invalid_value"},
    {ApiErrorCode::kMissingParameter, 400, kInvalidRequest, "missing_parameter"},
    {ApiErrorCode::kUnsupportedParameter, 400, kInvalidRequest, "unsupported_parameter"},
    {ApiErrorCode::kUnsupportedContent, 400, kInvalidRequest, "unsupported_content"},
    {ApiErrorCode::kUnsupportedSchema, 400, kInvalidRequest, "unsupported_schema"},
    {ApiErrorCode::kTemplateError, 400, kInvalidRequest, "template_error"},
    {ApiErrorCode::kTemplateLimit, 400, kInvalidRequest, "template_limit"},
    {ApiErrorCode::kChatTemplateUnusable, 400, kInvalidRequest, "chat_template_unusable"},
    {ApiErrorCode::kContextLengthExceeded, 400, kInvalidRequest, "context_length_exceeded"},
    {ApiErrorCode::kInvalidApiKey, 401, "authentication_error", "invalid_api_key"},
    {ApiErrorCode::kHostNotAllowed, 403, "permission_error", "host_not_allowed"},
    {ApiErrorCode::kNotOwner, 403, "permission_error", "not_owner"},
    {ApiErrorCode::kModelNotFound, 404, kInvalidRequest, "model_not_found"},
    {ApiErrorCode::kNotFound, 404, kInvalidRequest, "not_found"},
    {ApiErrorCode::kMethodNotAllowed, 405, kInvalidRequest, "method_not_allowed"},
    {ApiErrorCode::kBodyTimeout, 408, "timeout_error", "body_timeout"},
    {ApiErrorCode::kCancelled, 409, kInvalidRequest, "cancelled"},
    {ApiErrorCode::kTooLarge, 413, kInvalidRequest, "too_large"},
    {ApiErrorCode::kUnsupportedMediaType, 415, kInvalidRequest, "unsupported_media_type"},
    {ApiErrorCode::kHeaderTooLarge, 431, kInvalidRequest, "header_too_large"},
    {ApiErrorCode::kQueueFull, 429, "rate_limit_error", "queue_full"},
    {ApiErrorCode::kTenantLimit, 429, "rate_limit_error", "tenant_limit"},
    {ApiErrorCode::kInternal, 500, "server_error", "internal"},
    {ApiErrorCode::kNotSupported, 501, "not_supported_error", "not_supported"},
    {ApiErrorCode::kLoading, 503, "unavailable_error", "loading"},
    {ApiErrorCode::kDraining, 503, "unavailable_error", "draining"},
    {ApiErrorCode::kStagesLost, 503, "unavailable_error", "stages_lost"},
    {ApiErrorCode::kRecovering, 503, "unavailable_error", "recovering"},
    {ApiErrorCode::kQueueTimeout, 504, "timeout_error", "queue_timeout"},
};
static_assert(std::size(kKinds) == static_cast<size_t>(ApiErrorCode::kQueueTimeout) + 1);

const Kind& KindOf(ApiErrorCode code) {
  for (const Kind& kind : kKinds) {
    if (kind.code == code) return kind;
  }
  return KindOf(ApiErrorCode::kInternal);
}

// Payloads of a status: the code as a number, and the field.
constexpr char kCodePayload[] = "stagecoach/api_error_code";
constexpr char kParamPayload[] = "stagecoach/api_error_param";

}  // namespace

ApiError MakeApiError(ApiErrorCode code, std::string message, std::optional<std::string> param) {
  const Kind& kind = KindOf(code);
  ApiError error;
  error.status = kind.status;
  error.type = kind.type;
  error.code = kind.name;
  error.message = std::move(message);
  error.param = std::move(param);
  return error;
}

std::string ErrorBody(const ApiError& error) {
  return CompactJson({{"error",
                       {{"message", error.message},
                        {"type", error.type},
                        {"param", error.param.has_value() ? Json(*error.param) : Json(nullptr)},
                        {"code", error.code}}}});
}

std::string ErrorEvent(const ApiError& error) { return absl::StrCat("data: ", ErrorBody(error), "\n\n"); }

absl::Status ApiStatus(ApiErrorCode code, absl::string_view message, absl::string_view param) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kCodePayload, absl::Cord(absl::StrCat(static_cast<int>(code))));
  if (!param.empty()) status.SetPayload(kParamPayload, absl::Cord(param));
  return status;
}

ApiError ApiErrorOf(const absl::Status& status) {
  ApiErrorCode code = ApiErrorCode::kInternal;
  if (const auto payload = status.GetPayload(kCodePayload); payload.has_value()) {
    for (const Kind& kind : kKinds) {
      if (*payload == absl::StrCat(static_cast<int>(kind.code))) code = kind.code;
    }
  }
  ApiError error = MakeApiError(code, std::string(status.message()));
  if (const auto param = status.GetPayload(kParamPayload); param.has_value()) error.param = std::string(*param);
  return error;
}

ApiError RefusedBySession(const absl::Status& status) {
  ApiErrorCode code = ApiErrorCode::kStagesLost;  // the session has ended by itself
  if (absl::IsOutOfRange(status)) code = ApiErrorCode::kContextLengthExceeded;
  if (absl::IsFailedPrecondition(status) || absl::IsCancelled(status)) code = ApiErrorCode::kDraining;
  if (absl::IsInvalidArgument(status)) code = ApiErrorCode::kInternal;
  return MakeApiError(code, std::string(status.message()));
}

}  // namespace stagecoach
