#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_LINE_EDITOR_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_LINE_EDITOR_H_

// Reads lines from the terminal of standard input and output, with editing and history: libedit, with the keys of
// ~/.editrc. One at a time in a process. While it exists, characters are of the user's locale (UTF-8 if that has none),
// and the terminal is held (TerminalHold): input typed between prompts is not echoed, and can be edited at the next
// prompt.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cli/chat/line_history.h"
#include "coordinator/cli/chat/line_source.h"

namespace stagecoach {

// One at a time in a process: while it is there, characters are of the user's locale, or UTF-8 where that has none, and
// the terminal is held (TerminalHold): what is typed while nobody reads is not echoed, and edited at the next
// prompt.
class LineEditor : public LineSource {
 public:
  // `history`, which outlives this, holds the lines that were typed earlier; the caller adds new ones. Errors: the
  // terminal is gone, or there is no memory.
  static absl::StatusOr<std::unique_ptr<LineEditor>> Open(const LineHistory* history);
  ~LineEditor() override;

  // A Ctrl-C typed meanwhile is SIGINT, for `await` to notice.
  absl::StatusOr<LineRead> Read(const std::string& prompt, const AwaitInput& await) override;
  void Forget() override;

 private:
  struct State;
  explicit LineEditor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_LINE_EDITOR_H_
