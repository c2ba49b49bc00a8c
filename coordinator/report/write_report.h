#ifndef STAGECOACH_COORDINATOR_REPORT_WRITE_REPORT_H_
#define STAGECOACH_COORDINATOR_REPORT_WRITE_REPORT_H_

// Writes the report of a sweep, measured or simulated: for `coordinator sweep report`, and after a sweep.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/json/json_value.h"
#include "coordinator/report/report_figure.h"
#include "coordinator/report/sweep_cells.h"

namespace stagecoach {

struct ReportSection {
  std::string id, title;
  std::vector<ReportFigure> figures;
};
// Those for which there are figures.
std::vector<ReportSection> ReportSections(const CellPointers& cells);

// The report as one HTML page: the verdict with its picture, the cards, what failed, the figures, the tables, and
// folded below them the details down to the command lines, which alone are not printed (a browser without
// ::details-content prints nothing that is folded). It is self-contained: no font or file, and one script
// (page_style.h), without which it reads as well; texts of others are escaped, and a policy forbids the browser any
// other script and to load anything. The same points give the same bytes.
std::string ReportPage(const CellPointers& cells, const std::vector<ReportSection>& sections);

// The verdict and the numbers of all figures: {"verdict": {"outcome", "sentence", "because", "cost", "best",
// "baseline"}, "figures": [{"id", "title", "sentence", and either "x", "y", "series" or "unit", "rows"}]}.
Json ReportJson(const CellPointers& cells, const std::vector<ReportSection>& sections);

// The files of a report, in the directory that it was written to.
struct SweepReportFiles {
  std::string page;                  // report.html
  std::string table;                 // points.csv
  std::vector<std::string> figures;  // figures/<name>.svg
};

// Writes report.html, points.csv and figures/*.svg into the directory, which is made if it is not there. Each file is
// replaced whole or not at all; pictures of an earlier report that this one does not have are deleted, and no others'.
// The same points give the same bytes. kInvalidArgument: there are no points. kUnavailable: a directory, kDataLoss: a
// file could not be written.
absl::StatusOr<SweepReportFiles> WriteSweepReport(absl::Span<const SweepSeries> series, const std::string& directory);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_WRITE_REPORT_H_
