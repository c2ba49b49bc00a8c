#ifndef STAGECOACH_COORDINATOR_REPORT_WRITE_REPORT_H_
#define STAGECOACH_COORDINATOR_REPORT_WRITE_REPORT_H_

// The report of a sweep, real or simulated: what `coordinator sweep report` and the end of `coordinator sweep` write.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/bench/sweep_point.h"

namespace stagecoach {

// The files of a report, in the directory that it was written to.
struct SweepReportFiles {
  std::string page;                  // report.html
  std::string table;                 // points.csv
  std::vector<std::string> figures;  // figures/<name>.svg
};

// Writes report.html, points.csv and figures/*.svg into the directory, which is made if it is not there. Each file is
// replaced whole or not at all; pictures of an earlier report that this one does not have are deleted. The same points
// give the same bytes. kInvalidArgument: there are no points; kUnavailable: a file could not be written, which one and
// why.
absl::StatusOr<SweepReportFiles> WriteSweepReport(absl::Span<const SweepPoint> points, const std::string& directory);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_WRITE_REPORT_H_
