#ifndef STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_REPORT_H_
#define STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_REPORT_H_

// sweep report: the report of one directory of points, or of several side by side.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/bench/sweep_point.h"

namespace CLI {
class App;
}

namespace stagecoach {

struct SweepReportOptions {
  std::vector<std::string> directories;  // the first one is the baseline of the others; none: no report is asked for
  std::string into;                      // where the report goes; empty: ReportDirectory
  bool json = false;                     // print the verdict and the figures' numbers, and write nothing
  bool remarks = true;                   // say what in the files is no point, or only a part of one
};

// Adds the command to the verb.
void AddSweepReport(CLI::App* sweep, SweepReportOptions* options);

// Of one directory itself; of several a folder in the first one, whose own report stays.
std::string ReportDirectory(const SweepReportOptions& options);

// Writes the report and prints where it is, or prints its numbers.
absl::Status ReportSweep(const SweepReportOptions& options);

std::string PathIn(const std::string& directory, const char* name);
// The points of a sweep's directory. Lines that are no points are skipped. `remarks`: this is logged, and what the
// records remark.
absl::StatusOr<SweepRecords> ReadPoints(const std::string& directory, bool remarks = true);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_REPORT_H_
