#ifndef STAGECOACH_COORDINATOR_CLI_COMMAND_TABLE_H_
#define STAGECOACH_COORDINATOR_CLI_COMMAND_TABLE_H_

// Describes the command line from the tables it is parsed by. Manual pages and shell completion are generated from
// this, so every verb has both, and they agree with --help. Hidden verbs and options are left out.

#include <string>
#include <vector>

#include "common/base/manual_page.h"
#include "common/base/value_range.h"

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

// The program, a verb, or a command of a verb.
struct Command {
  std::vector<std::string> words;  // "coordinator", "generate"
  std::string summary;
  std::string footer;  // what the help ends with
  std::vector<CommandOption> options;
  std::vector<CommandOption> arguments;  // those without dashes, in order
  std::vector<Command> commands;
};

Command DescribeCommand(const CLI::App& app);

// A page for the program and one for every command below it: coordinator, coordinator-generate,
// coordinator-trace-summary.
std::vector<ManualPage> ManualPages(const Command& program);

enum class Shell { kBash, kZsh, kFish };

inline constexpr NamedValue<Shell> kShells[] = {{Shell::kBash, "bash"}, {Shell::kZsh, "zsh"}, {Shell::kFish, "fish"}};

// A script that completes commands, options and their values in a shell: choices, files and directories; nothing for
// numbers and free text.
std::string CompletionScript(Shell shell, const Command& program);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_COMMAND_TABLE_H_
