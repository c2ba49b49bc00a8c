#ifndef STAGECOACH_COORDINATOR_CLI_COMMAND_LINE_H_
#define STAGECOACH_COORDINATOR_CLI_COMMAND_LINE_H_

// From argv to a verb with its options.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {

class CommandLine {
 public:
  CommandLine();
  ~CommandLine();

  // The verb to run; nullptr when there is none, and then `exit_code`, `output` (for stdout) and `error` (a message for
  // stderr) say what to do: help was asked for, or the command line is wrong.
  Verb* Parse(int argc, const char* const* argv);

  ExitCode exit_code() const { return exit_code_; }
  const std::string& output() const { return output_; }
  const std::string& error() const { return error_; }

 private:
  Verb* Help(const std::vector<std::string>& topics);
  Verb* Refuse(const std::string& message, const std::string& help_command);
  Verb* Find(const std::string& name) const;
  std::string VerbNames() const;

  std::vector<std::unique_ptr<Verb>> verbs_;
  std::unique_ptr<CLI::App> app_;
  ExitCode exit_code_ = ExitCode::kOk;
  std::string output_;
  std::string error_;
};

// Runs a verb of a joined world: the engine on the calling (main) thread, the verb on another, a socket between them.
// Ends the world: in order if both succeed, else by aborting with the verb's exit code. `verb` gets the descriptor of
// its end of the socket, owns it, and returns its exit code. It is not called if the world is invalid.
int RunInWorld(int* argc, char*** argv, const std::function<int(int descriptor)>& verb);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_COMMAND_LINE_H_
