#ifndef STAGECOACH_COORDINATOR_REPORT_REPORT_PAGE_H_
#define STAGECOACH_COORDINATOR_REPORT_REPORT_PAGE_H_

// The report as one HTML page: the answers, what failed, pictures, and folded up below them what few readers ask for,
// down to the command lines, which alone are not printed (a browser that knows no ::details-content leaves out all that
// is folded up). It needs nothing but itself: no script, no font, no file; what it shows of others' texts is escaped,
// and a policy in it forbids a browser to load anything. Pure: the same points give the same bytes.

#include <string>
#include <vector>

#include "coordinator/report/report_figure.h"
#include "coordinator/report/sweep_cells.h"

namespace stagecoach {

struct ReportSection {
  std::string id, title;
  std::vector<ReportFigure> figures;
};
// Those for which there are figures.
std::vector<ReportSection> ReportSections(const CellPointers& cells);

std::string ReportPage(const CellPointers& cells, const std::vector<ReportSection>& sections);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_REPORT_PAGE_H_
