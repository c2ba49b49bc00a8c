#ifndef STAGECOACH_COORDINATOR_SERVE_API_API_ERROR_H_
#define STAGECOACH_COORDINATOR_SERVE_API_API_ERROR_H_

// What a client is told when a request is refused or cannot go on: the one table of statuses, types and codes.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// A kind of error, as it stands in answers.
struct ApiErrorKind {
  int status;  // of HTTP
  const char* type;
  const char* code;
};

struct ApiErrorCode {
  static constexpr const char* kInvalid = "invalid_request_error";
  static constexpr ApiErrorKind kInvalidJson = {400, kInvalid, "invalid_json"};
  static constexpr ApiErrorKind kInvalidValue = {400, kInvalid, "invalid_value"};
  static constexpr ApiErrorKind kMissingParameter = {400, kInvalid, "missing_parameter"};
  static constexpr ApiErrorKind kUnsupportedParameter = {400, kInvalid, "unsupported_parameter"};
  static constexpr ApiErrorKind kUnsupportedContent = {400, kInvalid, "unsupported_content"};
  static constexpr ApiErrorKind kUnsupportedSchema = {400, kInvalid, "unsupported_schema"};
  static constexpr ApiErrorKind kTemplateError = {400, kInvalid, "template_error"};
  static constexpr ApiErrorKind kTemplateLimit = {400, kInvalid, "template_limit"};
  static constexpr ApiErrorKind kChatTemplateUnusable = {400, kInvalid, "chat_template_unusable"};
  static constexpr ApiErrorKind kContextLengthExceeded = {400, kInvalid, "context_length_exceeded"};
  static constexpr ApiErrorKind kInvalidApiKey = {401, "authentication_error", "invalid_api_key"};
  static constexpr ApiErrorKind kNotOwner = {403, "permission_error", "not_owner"};
  static constexpr ApiErrorKind kModelNotFound = {404, kInvalid, "model_not_found"};
  static constexpr ApiErrorKind kNotFound = {404, kInvalid, "not_found"};
  static constexpr ApiErrorKind kMethodNotAllowed = {405, kInvalid, "method_not_allowed"};
  // By its own key, before its first token; one that has begun ends with what is there.
  static constexpr ApiErrorKind kCancelled = {409, kInvalid, "cancelled"};
  static constexpr ApiErrorKind kTooLarge = {413, kInvalid, "too_large"};
  static constexpr ApiErrorKind kUnsupportedMediaType = {415, kInvalid, "unsupported_media_type"};
  static constexpr ApiErrorKind kQueueFull = {429, "rate_limit_error", "queue_full"};
  static constexpr ApiErrorKind kTenantLimit = {429, "rate_limit_error", "tenant_limit"};
  static constexpr ApiErrorKind kInternal = {500, "server_error", "internal"};
  static constexpr ApiErrorKind kNotSupported = {501, "not_supported_error", "not_supported"};
  static constexpr ApiErrorKind kLoading = {503, "unavailable_error", "loading"};
  static constexpr ApiErrorKind kDraining = {503, "unavailable_error", "draining"};
  static constexpr ApiErrorKind kStagesLost = {503, "unavailable_error", "stages_lost"};
  static constexpr ApiErrorKind kRecovering = {503, "unavailable_error", "recovering"};  // /health alone
  static constexpr ApiErrorKind kQueueTimeout = {504, "timeout_error", "queue_timeout"};
};

struct ApiError {
  int status = 500;  // of HTTP
  std::string type;  // "invalid_request_error"
  std::string code;  // "context_length_exceeded"
  std::string message;
  std::optional<std::string> param;  // the field
  std::optional<int> retry_after_s;  // the header Retry-After
};

// The type of an error of HTTP itself.
const char* ErrorTypeOf(int status);

ApiError MakeApiError(const ApiErrorKind& kind, std::string message, std::optional<std::string> param = std::nullopt);

// The body of an answer that is an error. request_id: of HTTP.
using ErrorWriter = std::string(const ApiError& error, absl::string_view request_id);
// {"error":{"message","type","param","code"}}, all four keys: the form of OpenAI's APIs and of our own.
std::string ErrorBody(const ApiError& error, absl::string_view request_id = "");

// An ApiError on its way through functions that return a status, and what such a status says: any other becomes
// kInternal with its message.
absl::Status ApiStatus(const ApiErrorKind& kind, absl::string_view message, absl::string_view param = "");
ApiError ApiErrorOf(const absl::Status& status);

// What Session::Submit refused: a request for which the job has no room is the client's to shorten.
ApiError RefusedBySession(const absl::Status& status);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_API_ERROR_H_
