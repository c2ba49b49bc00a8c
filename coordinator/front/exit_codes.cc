#include "coordinator/front/exit_codes.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace stagecoach {
namespace {

constexpr char kPayloadUrl[] = "stagecoach/exit_code";

}  // namespace

absl::Status WithExitCode(absl::Status status, ExitCode code) {
  if (!status.ok() && !status.GetPayload(kPayloadUrl).has_value()) {
    status.SetPayload(kPayloadUrl, absl::Cord(absl::StrCat(static_cast<int>(code))));
  }
  return status;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kOk;
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  int code = 0;
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &code)) return static_cast<ExitCode>(code);
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange: return ExitCode::kUsage;
    case absl::StatusCode::kUnavailable: return ExitCode::kLostStages;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInternal: return ExitCode::kLaunch;
    case absl::StatusCode::kCancelled: return ExitCode::kInterrupted;
    default: return ExitCode::kInputFile;
  }
}

absl::Status LaunchFailure(absl::Status status) {
  const ExitCode code = absl::IsInvalidArgument(status) ? ExitCode::kUsage : ExitCode::kLaunch;
  return WithExitCode(std::move(status), code);
}

absl::Status JobFailure(absl::Status status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kResourceExhausted: return WithExitCode(std::move(status), ExitCode::kUsage);
    case absl::StatusCode::kUnavailable: return WithExitCode(std::move(status), ExitCode::kLostStages);
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInternal: return WithExitCode(std::move(status), ExitCode::kLaunch);
    default: return WithExitCode(std::move(status), ExitCode::kInputFile);
  }
}

absl::Status UsageError(absl::string_view message) {
  return WithExitCode(absl::InvalidArgumentError(message), ExitCode::kUsage);
}

absl::Status InputFileError(absl::string_view message) {
  return WithExitCode(absl::NotFoundError(message), ExitCode::kInputFile);
}

}  // namespace stagecoach
