#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_PIPED_LINES_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_PIPED_LINES_H_

#include <string>

#include "coordinator/cli/chat/line_source.h"

namespace stagecoach {

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
  bool cut_ = false;     // the line was given; what is left of it is thrown away
  bool ended_ = false;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_PIPED_LINES_H_
