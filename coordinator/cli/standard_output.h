#ifndef STAGECOACH_COORDINATOR_CLI_STANDARD_OUTPUT_H_
#define STAGECOACH_COORDINATOR_CLI_STANDARD_OUTPUT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Once, before anything is opened: where one of the three standard descriptors is closed, its number is taken by
// something that neither reads nor writes, so that what is said on standard error never lands in a file or a socket
// that got its number.
void HoldStandardDescriptors();

// Writes to standard output and flushes. ExitCode::kInputFile when it cannot be written.
absl::Status WriteStdout(absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_STANDARD_OUTPUT_H_
