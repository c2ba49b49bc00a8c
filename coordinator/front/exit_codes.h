#ifndef STAGECOACH_COORDINATOR_FRONT_EXIT_CODES_H_
#define STAGECOACH_COORDINATOR_FRONT_EXIT_CODES_H_

// How the program ends, and how a status says it.

#include "absl/status/status.h"

namespace stagecoach {

enum class ExitCode : int {
  kOk = 0,
  kDifferent = 1,      // verify: runs that must agree do not
  kUsage = 2,          // the command line, or a request that can never run
  kInputFile = 3,      // the model, an input or an output file
  kLaunch = 4,         // the job did not come up
  kLostStages = 5,     // stages were lost too often, or a request could not be computed
  kInterrupted = 130,  // by a signal
};

// The same in a word, for help and manual pages.
struct ExitCodeMeaning {
  ExitCode code;
  const char* meaning;
};
inline constexpr ExitCodeMeaning kExitCodes[] = {
    {ExitCode::kOk, "ok"},
    {ExitCode::kDifferent, "verify found a difference"},
    {ExitCode::kUsage, "usage"},
    {ExitCode::kInputFile, "model, input or output file"},
    {ExitCode::kLaunch, "the job did not come up"},
    {ExitCode::kLostStages, "lost stages, or a request that cannot be computed"},
    {ExitCode::kInterrupted, "interrupted or drained (a drained server: 0)"},
};

// The same status, which ends the program with `code` when it reaches the top. An exit code given earlier stays.
absl::Status WithExitCode(absl::Status status, ExitCode code);

// What `status` ends the program with: the code given to it; otherwise kOk for OK, kUsage for kInvalidArgument and
// kOutOfRange, kLostStages for kUnavailable, kLaunch for kFailedPrecondition and kInternal, kInterrupted for
// kCancelled and kInputFile for the rest.
ExitCode ExitCodeOf(const absl::Status& status);

// The exit codes of what keeps a job from being launched, and of what a job reports. The model file is read before a
// job is launched, so what the job finds invalid or too large is an option.
absl::Status LaunchFailure(absl::Status status);
absl::Status JobFailure(absl::Status status);

// Shorthands for the usual failures.
absl::Status UsageError(absl::string_view message);
absl::Status InputFileError(absl::string_view message);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_EXIT_CODES_H_
