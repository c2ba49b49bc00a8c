#include "coordinator/front/progress_line.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"

namespace stagecoach {
namespace {

void WriteStderr(absl::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
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
  WriteStderr(absl::StrCat("\r", text, "\x1b[K"));
  drawn_ = true;
  last_us_ = now;
}

void ProgressLine::Clear() {
  if (drawn_) WriteStderr("\r\x1b[K");
  drawn_ = false;
}

}  // namespace stagecoach
