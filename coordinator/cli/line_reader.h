#ifndef STAGECOACH_COORDINATOR_CLI_LINE_READER_H_
#define STAGECOACH_COORDINATOR_CLI_LINE_READER_H_

// Reads lines on a thread of its own, so that a pipe may pause while work goes on. Holds a bounded number of lines and
// of bytes.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"

namespace stagecoach {

class LineReader {
 public:
  struct Line {
    int64_t number = 0;     // from 1; blank lines count but are not given out
    std::string text;       // without its newline
    bool too_long = false;  // longer than max_line_bytes; `text` is empty
    int64_t end = 0;        // bytes of the input up to its end
  };

  // `wake` is called on the reader's thread when there may be something new: a line, the end, an error. The descriptor
  // is not closed. `capacity`: most lines held; as many bytes as four lines of the greatest length are held, or one
  // line.
  LineReader(int descriptor, size_t capacity, size_t max_line_bytes, std::function<void()> wake);
  ~LineReader();  // stops reading, also in the middle of a pause

  // Any thread.
  std::optional<Line> TryNext();
  bool finished() const;        // the end was reached (or reading failed), and every line was taken
  absl::Status status() const;  // why reading failed
  size_t held_bytes() const;    // of lines that wait

 private:
  void Run();
  bool Push(Line line);  // false: stop
  bool TakeBytes(const char* bytes, size_t count);
  bool EndLine();
  void End(absl::Status status);

  const int descriptor_;
  const size_t capacity_;
  const size_t max_line_bytes_;
  const std::function<void()> wake_;
  int stop_pipe_[2];

  // Of the reader's thread.
  Line current_;
  bool current_started_ = false;
  int64_t taken_bytes_ = 0;

  mutable std::mutex mu_;
  std::condition_variable room_;
  std::deque<Line> lines_;  // guarded by mu_
  size_t held_bytes_ = 0;   // of lines_; guarded by mu_
  bool stop_ = false;       // guarded by mu_
  bool ended_ = false;      // guarded by mu_
  absl::Status status_;     // guarded by mu_
  std::thread thread_;      // last: it uses all of the above
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_LINE_READER_H_
