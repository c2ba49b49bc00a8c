#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_TERMINAL_TEXT_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_TERMINAL_TEXT_H_

// Text of strangers (a model, a file) for a terminal, which takes control characters for orders: to move its cursor, to
// name its window, to answer as if the user had typed.

#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

// Not thread-safe.
class TerminalText {
 public:
  // The text that may be printed now. Newlines and tabs stay; carriage returns are left out; the other characters below
  // U+0020 and U+007F become the pictures of themselves (U+2400 and on), those from U+0080 to U+009F and what is no
  // UTF-8 U+FFFD. A character that the end of `text` cuts short waits for the next call.
  std::string Push(absl::string_view text);
  // What waits, as U+FFFD; nothing more of this text follows.
  std::string Flush();

 private:
  std::string waiting_;  // less than a character
};

// A whole text at once.
std::string ForTerminal(absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_TERMINAL_TEXT_H_
