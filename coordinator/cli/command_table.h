#ifndef STAGECOACH_COORDINATOR_CLI_COMMAND_TABLE_H_
#define STAGECOACH_COORDINATOR_CLI_COMMAND_TABLE_H_

// What the command line offers, read out of the tables that it is parsed by: manual pages and shell completion are made
// from this, so that every verb has both, and neither says anything else than --help. Hidden verbs and options are not
// in it.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace stagecoach {

enum class ValueKind {
  kNone,       // a flag
  kChoice,     // one of `choices`
  kFile,       // the path of a file
  kDirectory,  // the path of a directory
  kOther,
};

struct CommandOption {
  std::vector<std::string> names;  // "-n", "--predict"; of an argument without dashes, its only name
  ValueKind kind = ValueKind::kNone;
  std::string value;                 // as the help shows it: "N", "FILE", "text|json"; empty for kNone
  std::vector<std::string> choices;  // for kChoice
  std::string shown_default;         // empty: none
  std::string description;
  std::string group;  // the help's heading
  bool required = false;
};

// The program, a verb, or what stands below a verb.
struct Command {
  std::vector<std::string> words;  // "coordinator", "generate"
  std::string summary;
  std::string footer;  // what the help ends with
  std::vector<CommandOption> options;
  std::vector<CommandOption> arguments;  // those without dashes, in order
  std::vector<Command> commands;
};

Command DescribeCommand(const CLI::App& app);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_COMMAND_TABLE_H_
