#ifndef STAGECOACH_COORDINATOR_HTTP_SERVICE_LINE_LOG_H_
#define STAGECOACH_COORDINATOR_HTTP_SERVICE_LINE_LOG_H_

// A file that grows by one line of JSON for each thing that happened.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/json/json.h"

namespace stagecoach {

// Not thread-safe.
class LineLog {
 public:
  // Appends to what is there. `secret`: a file that is made can be read by its owner alone.
  static absl::StatusOr<std::unique_ptr<LineLog>> Open(const std::string& path, bool secret);
  ~LineLog();
  LineLog(const LineLog&) = delete;

  // Each line goes out at once. That it cannot be written is said once; lines follow when there is room again.
  void Write(const Json& line);

 private:
  LineLog(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  const std::string path_;
  const int descriptor_;
  bool failed_ = false;
  bool cut_ = false;  // the latest line is not whole
};

// "2026-01-31T13:05:09.123Z", now.
std::string LogTime();

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_SERVICE_LINE_LOG_H_
