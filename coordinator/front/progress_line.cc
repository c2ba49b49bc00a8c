#include "coordinator/front/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

void WriteStderr(absl::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

// What of a text fits into a line of the terminal with its last column free, as a longer one could not be drawn over
// itself. 0 columns: nobody knows how many there are.
absl::string_view FirstColumns(absl::string_view text, int columns) {
  if (columns <= 0) return text;
  size_t bytes = 0;
  for (int shown = 0; bytes < text.size(); ++bytes) {
    if (!IsContinuation(text[bytes]) && ++shown == columns) break;
  }
  return text.substr(0, bytes);
}

}  // namespace

std::string ProgressText(absl::string_view label, double fraction, absl::string_view detail) {
  constexpr int kWidth = 24;
  fraction = fraction > 0 ? std::min(fraction, 1.0) : 0;
  const int full = static_cast<int>(fraction * kWidth);
  return absl::StrFormat("%s [%s%s] %3d%% %s", label, std::string(full, '#'), std::string(kWidth - full, '.'),
                         static_cast<int>(fraction * 100), detail);
}

void ProgressLine::Draw(const std::string& text) {
  if (!shown_) return;
  const int64_t now = MonotonicUs();
  if (drawn_ && now - last_us_ < 100000) return;
  winsize size{};  // without columns where nobody knows them
  ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
  WriteStderr(absl::StrCat("\r", FirstColumns(text, size.ws_col), "\x1b[K"));
  drawn_ = true;
  last_us_ = now;
}

void ProgressLine::Clear() {
  if (drawn_) WriteStderr("\r\x1b[K");
  drawn_ = false;
}

}  // namespace stagecoach
