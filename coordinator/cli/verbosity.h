#ifndef STAGECOACH_COORDINATOR_CLI_VERBOSITY_H_
#define STAGECOACH_COORDINATOR_CLI_VERBOSITY_H_

#include <string>

namespace CLI {
class App;
}

namespace stagecoach {

// -q, -v and --progress, and what follows from them. Apply before threads start.
struct Verbosity {
  bool quiet = false;
  bool verbose = false;
  std::string progress = "auto";  // auto: when stderr is a terminal

  void Apply() const;         // sets the log level
  bool ShowProgress() const;  // never with -q
};
void AddVerbosityOptions(CLI::App* app, Verbosity* verbosity, bool with_progress);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_VERBOSITY_H_
