#ifndef STAGECOACH_COORDINATOR_CLI_STANDARD_OUTPUT_H_
#define STAGECOACH_COORDINATOR_CLI_STANDARD_OUTPUT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Writes to standard output and flushes. ExitCode::kInputFile when it cannot be written.
absl::Status WriteStdout(absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_STANDARD_OUTPUT_H_
