#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_COMMANDS_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_COMMANDS_H_

// What can be told to the program itself in the middle of a conversation.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

enum class ChatCommand { kHelp, kExit, kClear, kSystem, kUndo, kRegenerate, kThink, kSet, kSave, kLoad, kStats };

struct ChatCommandCall {
  ChatCommand command;
  std::string argument;  // what follows the name, without the blanks around it
};

// `text` begins with a slash. kInvalidArgument: there is no such command, or it lacks an argument, or takes none.
absl::StatusOr<ChatCommandCall> ParseChatCommand(absl::string_view text);

// A line each, and how messages of several lines are written.
std::string ChatCommandHelp();

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_COMMANDS_H_
