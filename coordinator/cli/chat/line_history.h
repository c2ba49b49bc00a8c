#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_LINE_HISTORY_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_LINE_HISTORY_H_

// The lines that a user typed, kept from one run to the next in a file that nobody else may read: a line each.

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Where the history lies: in $XDG_STATE_HOME/stagecoach, else in ~/.local/state/stagecoach. Empty where the environment
// names neither.
std::string LineHistoryPath();

// Not thread-safe. Several programs may add to one file.
class LineHistory {
 public:
  static constexpr size_t kMostLines = 1000;
  static constexpr size_t kMostFileBytes = size_t{1} << 20;

  // Reads the file, if it is there, and makes it and the directories before it if they are not; the last directory and
  // the file are the user's alone. With an empty path, or after an error, lines are kept in memory only.
  absl::Status Open(const std::string& path);

  // Nothing comes of a blank line, of one like the last, and of one with control characters. An error is told once:
  // after it nothing is written any more.
  absl::Status Add(absl::string_view line);

  const std::vector<std::string>& lines() const { return lines_; }  // the oldest first, at most kMostLines

 private:
  bool Keep(absl::string_view line);
  absl::Status Shorten();

  std::string path_;  // empty: not written
  std::vector<std::string> lines_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_LINE_HISTORY_H_
