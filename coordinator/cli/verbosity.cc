#include "coordinator/cli/verbosity.h"

#include <unistd.h>

#include <cstdlib>

#include "CLI/App.hpp"
#include "common/base/log.h"
#include "coordinator/cli/option_values.h"

namespace stagecoach {

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

}  // namespace stagecoach
