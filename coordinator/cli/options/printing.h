#ifndef STAGECOACH_COORDINATOR_CLI_OPTIONS_PRINTING_H_
#define STAGECOACH_COORDINATOR_CLI_OPTIONS_PRINTING_H_

// What the program writes to its standard descriptors, how much of it, and tables.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/cli/options/option_values.h"

namespace stagecoach {

// Call once, before anything is opened. Opens each closed standard descriptor so that it neither reads nor writes:
// otherwise messages to standard error would go to a file or socket that got its number.
void HoldStandardDescriptors();

// ExitCode::kInputFile when standard output cannot be written.
absl::Status WriteStdout(absl::string_view text);

// -q, -v and --progress, and what follows from them. Apply before threads start.
struct Verbosity {
  bool quiet = false;
  bool verbose = false;
  std::string progress = "auto";  // auto: when stderr is a terminal

  void Apply() const;         // sets the log level
  bool ShowProgress() const;  // never with -q
};
void AddVerbosityOptions(CLI::App* app, Verbosity* verbosity, bool with_progress = true);

// A header, rows, columns as wide as their widest cell, the first `left` flush left, the others right.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header, size_t left = 2) : left_(left) {
    rows_.push_back(std::move(header));
  }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }  // as many cells as the header
  std::string Text() const;                                                    // a line each
  size_t columns() const { return rows_.front().size(); }

 private:
  const size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_OPTIONS_PRINTING_H_
