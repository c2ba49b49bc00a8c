#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_LINE_SOURCE_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_LINE_SOURCE_H_

// The source of a user's lines. Single-threaded: the reader of a line passes in the function that waits for it.

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

enum class Awaited {
  kReadable,  // the descriptor can be read, or has ended
  kSignal,    // one asks the program to stop or to drain
  kSpoke,     // something was printed: a line that is being typed has to be shown anew
  kNothing,   // none of these so far: call again. A second has passed, or some other signal came
};

// Waits until one of the above is true, and does other work meanwhile. Errors end the reading, and are its errors.
using AwaitInput = std::function<absl::StatusOr<Awaited>(int descriptor)>;

struct LineRead {
  enum class Kind { kLine, kEnd, kSignal };
  Kind kind = Kind::kLine;
  std::string text;    // without its newline
  bool typed = false;  // of kSignal: something was, and is forgotten
};

// Not thread-safe.
class LineSource {
 public:
  virtual ~LineSource() = default;

  // `prompt` is for a terminal.
  virtual absl::StatusOr<LineRead> Read(const std::string& prompt, const AwaitInput& await) = 0;
  // Drops lines that were typed ahead: at a terminal a signal stopped the answer that they follow.
  virtual void Forget() {}
};

// The lines of a pipe or a file. A carriage return before a newline belongs to it, and the last line may lack a
// newline. Of a line that exceeds the limit of messages, returns only enough to exceed it.
class PipedLines : public LineSource {
 public:
  explicit PipedLines(int descriptor) : descriptor_(descriptor) {}  // which is not closed

  absl::StatusOr<LineRead> Read(const std::string& prompt, const AwaitInput& await) override;

 private:
  const int descriptor_;
  std::string bytes_;    // read, not yet given out
  size_t searched_ = 0;  // of bytes_: holds no newline
  bool cut_ = false;     // the line was given out; its remaining bytes are dropped
  bool ended_ = false;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_LINE_SOURCE_H_
