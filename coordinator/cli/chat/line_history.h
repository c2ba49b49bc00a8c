#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_LINE_HISTORY_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_LINE_HISTORY_H_

// The lines that a user typed, kept between runs in a private file: one per line.

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// The path of the history: in $XDG_STATE_HOME/stagecoach, else in ~/.local/state/stagecoach. Empty if neither is set.
std::string LineHistoryPath();

// Not thread-safe. Several programs may add to one file.
class LineHistory {
 public:
  static constexpr size_t kMostLines = 1000;
  static constexpr size_t kMostFileBytes = size_t{1} << 20;

  // Reads the file, or creates it and its directories; the last directory and the file are private. With an empty path,
  // or after an error, lines are kept only in memory.
  absl::Status Open(const std::string& path);

  // Ignores blank lines, repeats of the last line, and lines with control characters. Reports an error once, and writes
  // nothing after it.
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
