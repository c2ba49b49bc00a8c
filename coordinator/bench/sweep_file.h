#ifndef STAGECOACH_COORDINATOR_BENCH_SWEEP_FILE_H_
#define STAGECOACH_COORDINATOR_BENCH_SWEEP_FILE_H_

// The file of a sweep's points: one line each (sweep_point.h), added as they finish and never changed. Whoever stops
// half-way leaves whole lines and at most a part of one at the end.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/bench/sweep_point.h"

namespace stagecoach {

struct SweepRecords {
  std::vector<SweepPoint> points;    // of each key the line that came last, measured and simulated each for
                                     // itself; in the order in which they came first
  std::vector<std::string> refused;  // "line 3: <why>": lines that are no points
  bool cut = false;                  // the last line lacks its end and is no point
};

// kNotFound: there is no such file. kDataLoss: it cannot be read.
absl::StatusOr<SweepRecords> ReadSweepFile(const std::string& path);

// Not thread-safe.
class SweepFile {
 public:
  // Opens or makes the file, for this process alone, and takes the part of a line at its end away. kFailedPrecondition:
  // another process writes to it; kNotFound: it cannot be opened.
  static absl::StatusOr<std::unique_ptr<SweepFile>> Open(const std::string& path);
  ~SweepFile();

  // On the disk when it returns. kDataLoss: it is not; the file then ends as it did before, or in a part of the line.
  absl::Status Append(const SweepPoint& point);

 private:
  SweepFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  absl::Status EndLastLine();

  const std::string path_;
  const int descriptor_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_SWEEP_FILE_H_
