#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_LINE_EDITOR_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_LINE_EDITOR_H_

// Lines that are typed at the terminal of standard input and output, with editing and the history of earlier ones:
// libedit, and the keys that its users have set in ~/.editrc.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cli/chat/line_history.h"
#include "coordinator/cli/chat/line_source.h"

namespace stagecoach {

// One at a time in a process: while it is there, characters are of the user's locale, or UTF-8 where that has none; and
// while it reads, changes of the window's size and being continued after a stop are looked after.
class LineEditor : public LineSource {
 public:
  // `history`, which outlives this, holds the lines that were typed earlier; the caller adds new ones.
  explicit LineEditor(const LineHistory* history);
  ~LineEditor() override;

  // A Ctrl-C typed meanwhile is SIGINT, for `await` to notice.
  absl::StatusOr<LineRead> Read(const std::string& prompt, const AwaitInput& await) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_LINE_EDITOR_H_
