#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_LINE_SOURCE_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_LINE_SOURCE_H_

// Where a user's lines come from. One thread does all: whoever reads a line hands over the waiting for it.

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

// Does what is to be done meanwhile until `descriptor` can be read (or has ended), true; or until a signal asks the
// program for something, false. Errors end the reading, and are its errors.
using AwaitInput = std::function<absl::StatusOr<bool>(int descriptor)>;

struct LineRead {
  enum class Kind { kLine, kEnd, kSignal };
  Kind kind = Kind::kLine;
  std::string text;  // without its newline; of kSignal: what was typed so far, and is forgotten
};

// Not thread-safe.
class LineSource {
 public:
  virtual ~LineSource() = default;

  // `prompt` is for a terminal.
  virtual absl::StatusOr<LineRead> Read(const std::string& prompt, const AwaitInput& await) = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_LINE_SOURCE_H_
