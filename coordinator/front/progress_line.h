#ifndef STAGECOACH_COORDINATOR_FRONT_PROGRESS_LINE_H_
#define STAGECOACH_COORDINATOR_FRONT_PROGRESS_LINE_H_

// A progress line on stderr, drawn over itself at most ten times a second.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

// "loading [#####...............]  25% 1.2 / 4.8 GiB". A fraction outside 0 to 1 is brought into it.
std::string ProgressText(absl::string_view label, double fraction, absl::string_view detail);

class ProgressLine {
 public:
  explicit ProgressLine(bool shown) : shown_(shown) {}
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;

  bool shown() const { return shown_; }
  void Draw(const std::string& text);  // skipped when the last one is younger than 100 ms
  void Clear();                        // before anything else is printed

 private:
  const bool shown_;
  bool drawn_ = false;
  int64_t last_us_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_PROGRESS_LINE_H_
