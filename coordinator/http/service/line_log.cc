#include "coordinator/http/service/line_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/log.h"

namespace stagecoach {

absl::StatusOr<std::unique_ptr<LineLog>> LineLog::Open(const std::string& path, bool secret) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, secret ? 0600 : 0644);
  if (descriptor < 0) {
    return absl::NotFoundError(absl::StrCat("cannot write '", path, "': ", std::strerror(errno)));
  }
  return std::unique_ptr<LineLog>(new LineLog(path, descriptor));
}

LineLog::~LineLog() { close(descriptor_); }

void LineLog::Write(const Json& line) {
  const std::string text = absl::StrCat(cut_ ? "\n" : "", CompactJson(line), "\n");
  const ssize_t written = write(descriptor_, text.data(), text.size());
  if (written > 0) cut_ = written < static_cast<ssize_t>(text.size());
  if (written == static_cast<ssize_t>(text.size()) || failed_) return;
  failed_ = true;
  LogError(absl::StrCat("cannot write all of '", path_, "': ", written < 0 ? std::strerror(errno) : "no room",
                        "; lines are missing there"));
}

std::string LogTime() { return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()); }

}  // namespace stagecoach
