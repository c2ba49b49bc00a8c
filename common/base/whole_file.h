#ifndef STAGECOACH_COMMON_BASE_WHOLE_FILE_H_
#define STAGECOACH_COMMON_BASE_WHOLE_FILE_H_

// Results that are written at once. Nobody ever finds half of one: the text goes into a file beside it, <path>.new,
// which then takes its place, so after a failure what was there before still is. A path that leads to a device or a
// pipe is written as it is. Thread-safe for different paths.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// kDataLoss: the path, and what the system says.
absl::Status WriteWholeFile(const std::string& path, absl::string_view text);

// Whether that could be begun now: for finding it out before much work is done for the text. Leaves nothing behind.
absl::Status CheckWholeFile(const std::string& path);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_WHOLE_FILE_H_
