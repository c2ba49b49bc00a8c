#ifndef STAGECOACH_COMMON_OBS_STEP_LOG_H_
#define STAGECOACH_COMMON_OBS_STEP_LOG_H_

// One JSON line per micro-batch: what it held and when each stage worked on it.
//
//   {"number":3,"slices":[{"sequence":1,"start":512,"count":88,"sample":true}],"submit_us":..,"confirm_us":..,
//    "stages":[{"stage":0,"received_us":..,"start_us":..,"end_us":..},..]}
//
// Times are microseconds since the Unix epoch of the host that took them (common/base/clock.h).

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/step/step.h"

namespace stagecoach {

// One line, without the newline.
std::string StepLogLine(const MicroBatch& batch, const StepResult& result, int64_t submit_us, int64_t confirm_us);

// Not thread-safe. Each line is flushed, so that a killed job leaves whole lines.
class StepLog {
 public:
  // kInvalidArgument when the file cannot be opened for writing. `append`: go on after the lines of an earlier job.
  static absl::StatusOr<std::unique_ptr<StepLog>> Open(const std::string& path, bool append);
  void Write(const MicroBatch& batch, const StepResult& result, int64_t submit_us, int64_t confirm_us);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  explicit StepLog(std::FILE* file) : file_(file) {}
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_OBS_STEP_LOG_H_
