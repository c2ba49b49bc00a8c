#ifndef STAGECOACH_COORDINATOR_REPORT_WRITE_REPORT_H_
#define STAGECOACH_COORDINATOR_REPORT_WRITE_REPORT_H_

// The report of a sweep, real or simulated: what `coordinator sweep report` and the end of `coordinator sweep` write.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/bench/sweep_point.h"
#include "coordinator/report/report_figure.h"
#include "coordinator/report/sweep_cells.h"

namespace stagecoach {

struct ReportSection {
  std::string id, title;
  std::vector<ReportFigure> figures;
};
// Those for which there are figures.
std::vector<ReportSection> ReportSections(const CellPointers& cells);

// The report as one HTML page: the answers, what failed, pictures, and folded up below them what few readers ask for,
// down to the command lines, which alone are not printed (a browser that knows no ::details-content leaves out all that
// is folded up). It needs nothing but itself: no script, no font, no file; what it shows of others' texts is escaped,
// and a policy in it forbids a browser to load anything. The same points give the same bytes.
std::string ReportPage(const CellPointers& cells, const std::vector<ReportSection>& sections);

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
