#ifndef STAGECOACH_COORDINATOR_FRONT_API_API_ERROR_H_
#define STAGECOACH_COORDINATOR_FRONT_API_API_ERROR_H_

// What a client is told when a request is refused or cannot go on: the one table of statuses, types and codes.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

enum class ApiErrorCode {
  // 400
  kInvalidJson,
  kInvalidValue,
  kMissingParameter,
  kUnsupportedParameter,
  kUnsupportedContent,
  kUnsupportedSchema,
  kTemplateError,
  kTemplateLimit,
  kChatTemplateUnusable,
  kContextLengthExceeded,
  // 401, 403
  kInvalidApiKey,
  kHostNotAllowed,
  kNotOwner,
  // 404, 405, 408, 409, 413, 415, 431
  kModelNotFound,
  kNotFound,
  kMethodNotAllowed,
  kBodyTimeout,
  kCancelled,  // by its own key, before its first token; one that has begun ends with what is there
  kTooLarge,
  kUnsupportedMediaType,
  kHeaderTooLarge,
  // 429: limit reached
  kQueueFull,
  kTenantLimit,
  // 500, 501
  kInternal,
  kNotSupported,
  // 503: not able
  kLoading,
  kDraining,
  kStagesLost,
  kRecovering,  // /health alone: requests wait for the relaunch
  // 504
  kQueueTimeout,
};

struct ApiError {
  int status = 500;  // of HTTP
  std::string type;  // "invalid_request_error"
  std::string code;  // "context_length_exceeded"
  std::string message;
  std::optional<std::string> param;  // the field
  std::optional<int> retry_after_s;  // the header Retry-After
};

// With the code's status and type.
ApiError MakeApiError(ApiErrorCode code, std::string message, std::optional<std::string> param = std::nullopt);

// {"error":{"message","type","param","code"}}, all four keys.
std::string ErrorBody(const ApiError& error);
// The last event of a stream that cannot go on, with its blank line; nothing follows, not even [DONE].
std::string ErrorEvent(const ApiError& error);

// An ApiError on its way through functions that return a status, and what such a status says: any other becomes
// kInternal with its message.
absl::Status ApiStatus(ApiErrorCode code, absl::string_view message, absl::string_view param = "");
ApiError ApiErrorOf(const absl::Status& status);

// What Session::Submit refused: a request for which the job has no room is the client's to shorten.
ApiError RefusedBySession(const absl::Status& status);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_API_API_ERROR_H_
