#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_REPL_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_REPL_H_

// A conversation line by line: messages and commands in, answers out.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "coordinator/cli/chat/chat_backend.h"
#include "coordinator/cli/chat/chat_input.h"
#include "coordinator/cli/chat/chat_screen.h"
#include "coordinator/cli/chat/dialogue.h"
#include "coordinator/cli/chat/line_history.h"
#include "coordinator/cli/chat/line_source.h"

namespace stagecoach {

// Not thread-safe.
class ChatRepl {
 public:
  // All outlive this. `history` may be nullptr.
  ChatRepl(ChatBackend* backend, LineSource* lines, ChatScreen* screen, LineHistory* history);

  void SetSystem(absl::string_view text) { dialogue_.SetSystem(text); }

  // Runs until the input ends, /exit, or a signal (kCancelled). Without a terminal the status reports lines that were
  // refused: kInvalidArgument, or kUnavailable if one failed.
  //
  // SIGINT at a terminal
  //   before the first prompt    leaves.
  //   during an answer           stops it. Input typed before it is dropped; input typed after it is the next line.
  //   while a line is typed      drops the line, and the message that it continues.
  //   on an empty line           leaves if it follows another SIGINT of either kind; else says that the next one will.
  // Without a terminal the first one leaves.
  absl::Status Run();

 private:
  absl::Status TakeLine(absl::string_view line);
  absl::Status TakeInput(absl::StatusOr<std::optional<ChatInput>> input);
  absl::Status OnSignal(const LineRead& read);
  absl::Status Leave();

  absl::Status Do(const ChatCommandCall& call);
  absl::Status System(const std::string& text);
  absl::Status Undo();
  absl::Status Regenerate();
  absl::Status Think(const std::string& word);
  absl::Status Set(const std::string& words);
  absl::Status Save(const std::string& path);
  absl::Status Load(const std::string& path);
  absl::Status Stats();

  absl::Status AnswerMessages(const Dialogue& before);
  absl::Status Refuse(absl::string_view why, bool failed = false);
  absl::Status AfterAnswer(const ChatAnswer& answer, const Dialogue& before);
  std::string AnswerNote(const ChatAnswer& answer) const;

  ChatBackend* const backend_;
  LineSource* const lines_;
  ChatScreen* const screen_;
  LineHistory* const history_;

  MessageReader reader_;
  Dialogue dialogue_;
  std::optional<bool> thinking_;
  int attempt_ = 0;     // of the last message
  int interrupts_ = 0;  // since the last line
  bool leaving_ = false;
  int64_t inputs_refused_ = 0;
  bool failed_ = false;  // one of them

  // For /stats.
  int64_t answers_ = 0;
  int64_t answer_tokens_ = 0;
  bool all_counted_ = true;  // ... and not guessed
  int64_t gaps_ = 0;         // between tokens of an answer
  double decode_s_ = 0;
  ChatAnswer last_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_REPL_H_
