#include "coordinator/serve/api/api_error.h"

#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/json/json.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

// Payloads of a status: the three words of the kind, and the field.
constexpr char kKindPayload[] = "stagecoach/api_error_kind";
constexpr char kParamPayload[] = "stagecoach/api_error_param";

}  // namespace

const char* ErrorTypeOf(int status) {
  switch (status) {
    case 403: return ApiErrorCode::kNotOwner.type;
    case 408: return ApiErrorCode::kQueueTimeout.type;
    case 503: return ApiErrorCode::kLoading.type;
    default: return status < 500 ? ApiErrorCode::kInvalid : ApiErrorCode::kInternal.type;
  }
}

ApiError MakeApiError(const ApiErrorKind& kind, std::string message, std::optional<std::string> param) {
  return {kind.status, kind.type, kind.code, std::move(message), std::move(param)};
}

std::string ErrorBody(const ApiError& error, absl::string_view /*request_id*/) {
  return CompactJson({{"error",
                       {{"message", error.message},
                        {"type", error.type},
                        {"param", error.param.has_value() ? Json(*error.param) : Json(nullptr)},
                        {"code", error.code}}}});
}

absl::Status ApiStatus(const ApiErrorKind& kind, absl::string_view message, absl::string_view param) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kKindPayload, absl::Cord(absl::StrCat(kind.status, " ", kind.type, " ", kind.code)));
  if (!param.empty()) status.SetPayload(kParamPayload, absl::Cord(param));
  return status;
}

ApiError ApiErrorOf(const absl::Status& status) {
  ApiError error = MakeApiError(ApiErrorCode::kInternal, std::string(status.message()));
  if (const auto payload = status.GetPayload(kKindPayload); payload.has_value()) {
    const std::vector<std::string> kind = absl::StrSplit(std::string(*payload), ' ');
    CHECK(kind.size() == 3 && absl::SimpleAtoi(kind[0], &error.status));
    error.type = kind[1];
    error.code = kind[2];
  }
  if (const auto param = status.GetPayload(kParamPayload); param.has_value()) error.param = std::string(*param);
  return error;
}

ApiError RefusedBySession(const absl::Status& status) {
  ApiErrorKind kind = ApiErrorCode::kStagesLost;  // the session has ended unasked
  if (absl::IsOutOfRange(status)) kind = ApiErrorCode::kContextLengthExceeded;
  if (absl::IsFailedPrecondition(status) || absl::IsCancelled(status)) kind = ApiErrorCode::kDraining;
  if (absl::IsInvalidArgument(status)) kind = ApiErrorCode::kInternal;
  return MakeApiError(kind, std::string(status.message()));
}

}  // namespace stagecoach
