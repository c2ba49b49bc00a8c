#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_INPUT_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_INPUT_H_

// Puts typed lines together to messages for the model and commands for the program.

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Far more than any context takes.
inline constexpr size_t kMostMessageBytes = size_t{8} << 20;

struct ChatInput {
  std::string text;
  bool command = false;  // begins with a slash, and not within a fence
};

// A message is one line, but
//  * a line that ends with an odd number of backslashes continues in the next one, without the last backslash;
//  * from a line that begins with """ to one that ends with """ everything is one message as it stands.
// Not thread-safe.
class MessageReader {
 public:
  // Takes a line, without its newline, and returns the message that it completes. Blank messages are dropped. Errors
  // (kInvalidArgument: more than kMostMessageBytes, or invalid UTF-8) drop that message only.
  absl::StatusOr<std::optional<ChatInput>> Take(absl::string_view line);
  // At the end of the input: returns the message that was begun.
  absl::StatusOr<std::optional<ChatInput>> TakeUnfinished();
  // Forgets what was begun.
  void Drop() { *this = MessageReader(); }

  bool inside() const { return inside_; }  // a message continues in the next line

 private:
  void Append(absl::string_view text);
  absl::StatusOr<std::optional<ChatInput>> Complete();

  bool inside_ = false;
  bool fenced_ = false;
  bool too_long_ = false;
  bool first_line_ = true;  // nothing was appended so far
  std::string text_;
};

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

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_INPUT_H_
