#ifndef STAGECOACH_COMMON_BASE_LOG_H_
#define STAGECOACH_COMMON_BASE_LOG_H_

// One line to stderr: "<program>: <message>". Verbose lines appear with -v only.

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

enum class LogLevel { kQuiet = 0, kInfo = 1, kVerbose = 2 };

// Set once at start, before threads: the name printed before each line, and what is printed at all.
void SetLogName(absl::string_view name);
void SetLogLevel(LogLevel level);
LogLevel GetLogLevel();

void LogError(absl::string_view message);    // always printed
void LogInfo(absl::string_view message);     // not with -q
void LogVerbose(absl::string_view message);  // only with -v

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_LOG_H_
