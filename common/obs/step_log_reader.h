#ifndef STAGECOACH_COMMON_OBS_STEP_LOG_READER_H_
#define STAGECOACH_COMMON_OBS_STEP_LOG_READER_H_

// Reads back what StepLog wrote.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/obs/step_log.h"

namespace stagecoach {

// One line. Fields of other names are passed over. kInvalidArgument: the field, what was expected and what was found.
absl::StatusOr<StepRecord> ParseStepLogLine(absl::string_view line);

// All lines of a file, empty ones aside, and so is half a line at its end, which a killed job may leave. kNotFound when
// it cannot be read; kInvalidArgument with the file and the line.
absl::StatusOr<std::vector<StepRecord>> ReadStepLog(const std::string& file);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_OBS_STEP_LOG_READER_H_
