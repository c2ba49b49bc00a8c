#ifndef STAGECOACH_COORDINATOR_LAUNCH_SHELL_WORDS_H_
#define STAGECOACH_COORDINATOR_LAUNCH_SHELL_WORDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Splits as a shell would: blanks, '...', "..." and backslash. kInvalidArgument for an open quote.
absl::StatusOr<std::vector<std::string>> SplitShellWords(absl::string_view text);
// Joins with quotes where a shell needs them.
std::string JoinShellWords(const std::vector<std::string>& words);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_SHELL_WORDS_H_
