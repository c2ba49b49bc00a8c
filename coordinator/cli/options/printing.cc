#include "coordinator/cli/options/printing.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "CLI/App.hpp"
#include "common/base/files.h"
#include "common/base/log.h"

namespace stagecoach {

void HoldStandardDescriptors() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // The lowest free number is this one. Reading finds the end, writing fails as it would have.
    if (open("/dev/null", O_RDONLY) < 0) return;
  }
}

absl::Status WriteStdout(absl::string_view text) {
  if (WriteFully(STDOUT_FILENO, text)) return absl::OkStatus();
  return InputFileError(absl::StrCat("cannot write to standard output: ", std::strerror(errno)));
}

void Verbosity::Apply() const {
  SetLogLevel(quiet ? LogLevel::kQuiet : verbose ? LogLevel::kVerbose : LogLevel::kInfo);
}

bool Verbosity::ShowProgress() const {
  if (quiet || progress == "never") return false;
  const char* term = std::getenv("TERM");
  const bool redraws = term != nullptr && absl::string_view(term) != "dumb";
  return progress == "always" || (isatty(STDERR_FILENO) && redraws);
}

void AddVerbosityOptions(CLI::App* app, Verbosity* verbosity, bool with_progress) {
  CLI::Option* quiet = app->add_flag("-q,--quiet", verbosity->quiet, "errors only on stderr: no notes, no statistics");
  app->add_flag("-v,--verbose", verbosity->verbose, "more notes on stderr")->excludes(quiet);
  if (with_progress) {
    AddChoice(app, "--progress", &verbosity->progress, {"auto", "always", "never"},
              "the progress line on stderr; auto: when that is a terminal that can draw a line anew");
  }
}

std::string TextTable::Text() const {
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&text, i == 0 ? "" : "  ", i < left_ ? row[i] : padding, i < left_ ? padding : row[i]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace stagecoach
