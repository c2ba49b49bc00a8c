#ifndef STAGECOACH_COORDINATOR_REPORT_REPORT_PAGE_H_
#define STAGECOACH_COORDINATOR_REPORT_REPORT_PAGE_H_

// The report as one HTML page: pictures, tables, command lines. It needs nothing but itself: no script, no font, no
// file; what it shows of others' texts is escaped, and a policy in it forbids a browser to load anything. Pure: the
// same points give the same bytes.

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
