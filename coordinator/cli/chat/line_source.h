#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_LINE_SOURCE_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_LINE_SOURCE_H_

// Where a user's lines come from. One thread does all: whoever reads a line hands over the waiting for it.

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

// Does what is to be done while a user thinks, until there is something of the above. Errors end the reading, and are
// its errors.
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
  // At a terminal a signal stopped what the lines before were for: those that have come since go with it.
  virtual void Forget() {}
};

// The lines of a descriptor that is no terminal: a pipe, a file. A carriage return before a newline is part of it, and
// the last line may lack one. Of a line that is longer than any message may be, so much is given that it is still too
// long.
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
