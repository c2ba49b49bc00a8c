#ifndef STAGECOACH_COORDINATOR_CLI_SWEEP_REPORT_H_
#define STAGECOACH_COORDINATOR_CLI_SWEEP_REPORT_H_

// `coordinator sweep report DIR`, and the end of every sweep.

#include <string>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace stagecoach {

// Adds the command `report` to `sweep`; when it is given, `directory` is that of the points, else it stays empty.
void AddSweepReport(CLI::App* sweep, std::string* directory);

// Writes the report of the points in the directory, beside them, and prints where it is. Points that are none are said
// and left out. Without any points: an error.
absl::Status ReportSweep(const std::string& directory);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_SWEEP_REPORT_H_
