#ifndef STAGECOACH_COORDINATOR_CLI_SHELL_COMPLETION_H_
#define STAGECOACH_COORDINATOR_CLI_SHELL_COMPLETION_H_

#include <string>

#include "common/base/named_values.h"
#include "coordinator/cli/command_table.h"

namespace stagecoach {

enum class Shell { kBash, kZsh, kFish };

inline constexpr NamedValue<Shell> kShells[] = {{Shell::kBash, "bash"}, {Shell::kZsh, "zsh"}, {Shell::kFish, "fish"}};

// A script that teaches the shell the program's commands, options and their values: names of choices, files and
// directories where an option takes those, nothing where it takes a number or words of the user's own.
std::string CompletionScript(Shell shell, const Command& program);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_SHELL_COMPLETION_H_
