#include "common/base/log.h"

#include <unistd.h>

#include <string>

namespace stagecoach {
namespace {

std::string g_name = "stagecoach";
LogLevel g_level = LogLevel::kInfo;

void Print(absl::string_view message) {
  // One write per line, so that lines of several processes do not mix.
  const std::string line = absl::StrCat(g_name, ": ", message, "\n");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void SetLogName(absl::string_view name) { g_name = std::string(name); }
void SetLogLevel(LogLevel level) { g_level = level; }
LogLevel GetLogLevel() { return g_level; }

void LogError(absl::string_view message) { Print(message); }

void LogInfo(absl::string_view message) {
  if (g_level >= LogLevel::kInfo) Print(message);
}

void LogVerbose(absl::string_view message) {
  if (g_level >= LogLevel::kVerbose) Print(message);
}

}  // namespace stagecoach
