#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SCREEN_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SCREEN_H_

// The output of a conversation. A terminal shows everything, reasoning and notes dimmed. Otherwise only the text of
// answers goes to the output, and the program's own text to the messages. Text of a model or a file cannot control a
// terminal; other outputs get answers byte for byte.

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/cli/chat/chat_backend.h"

namespace stagecoach {

// Not thread-safe.
class TerminalText {
 public:
  // Returns the text that can be printed now. Newlines and tabs stay; carriage returns are dropped; other characters
  // below U+0020 and U+007F become their control pictures (U+2400 and on); U+0080 to U+009F and invalid UTF-8 become
  // U+FFFD. A character that `text` cuts short waits for the next call.
  std::string Push(absl::string_view text);
  // Ends the text: an incomplete character becomes U+FFFD.
  std::string Flush();

 private:
  std::string waiting_;  // less than a character
};

// A whole text at once.
std::string ForTerminal(absl::string_view text);

struct ChatScreenOptions {
  bool terminal = false;         // the conversation's: lines are typed there, and the output is written there
  bool output_terminal = false;  // only the output is one
  bool dims = false;             // the terminal understands it
  bool quiet = false;            // no notes
};

// Whether the terminal can dim text and the user wants it: TERM, NO_COLOR.
bool TerminalDims();

// Not thread-safe.
class ChatScreen {
 public:
  using Output = std::function<absl::Status(absl::string_view)>;
  using Messages = std::function<void(absl::string_view)>;

  // `messages` is given text with its newlines.
  ChatScreen(ChatScreenOptions options, Output output, Messages messages);

  // An answer's text as it comes, and its end, which ends the line. An empty answer prints nothing, or with
  // of_nothing_too an empty line.
  absl::Status Show(AnswerPart part, absl::string_view text);
  absl::Status EndAnswer(bool of_nothing_too = false);

  absl::Status Say(
      absl::string_view lines);  // what was asked for; may have several lines, and ends in a newline or not
  absl::Status Note(absl::string_view line);  // an unsolicited remark
  absl::Status NewLine();                     // at a terminal: the cursor is in the middle of one

  bool terminal() const { return options_.terminal; }

 private:
  absl::Status Switch(AnswerPart part);

  const ChatScreenOptions options_;
  const Output output_;
  const Messages messages_;

  // Of the answer.
  TerminalText filter_;
  AnswerPart part_ = AnswerPart::kContent;
  bool shown_ = false;
  bool at_line_start_ = true;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SCREEN_H_
