#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_TERMINAL_HOLD_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_TERMINAL_HOLD_H_

// The modes of the terminal that lines are typed at.
//
// One set of modes from the first line to the last, also while nobody reads: a terminal that is in its own modes
// between two lines echoes what is typed there, and at Ctrl-C throws it away before anybody has seen it. Then a Ctrl-C
// that was to forget a line looks like a second one in a row.
//
//   Ctrl-C   SIGINT; what was typed before it and not read is dropped, and SignalWatch told whether there was any.
//   Stops    the terminal has its own modes while the process is stopped (Ctrl-Z), and ours again when it goes on in
//            the foreground. In the background its modes are never touched.
//   Ends     it has its own modes again, however the process ends, but for SIGKILL.

#include <memory>

#include "absl/status/statusor.h"

namespace stagecoach {

// One at a time in a process; one thread.
class TerminalHold {
 public:
  // Remembers the modes that the terminal `descriptor` has. kUnavailable: it is none, or gone.
  static absl::StatusOr<std::unique_ptr<TerminalHold>> Begin(int descriptor);
  // Also drops what was typed and not read: it was not meant for the shell.
  ~TerminalHold();
  TerminalHold(const TerminalHold&) = delete;

  // The modes that the terminal has by now are to be held.
  void Hold();
  // Sets them again if somebody changed them. Whether what was on the screen may be gone: modes had to be set, or the
  // process was stopped.
  bool Regain();
  bool TakeWindowChange();  // whether the window's size has changed since the last call

 private:
  TerminalHold() = default;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_TERMINAL_HOLD_H_
