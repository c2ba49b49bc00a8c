#ifndef STAGECOACH_COORDINATOR_REPORT_REPORT_CARDS_H_
#define STAGECOACH_COORDINATOR_REPORT_REPORT_CARDS_H_

// The answers that stand first on a report's page. Pure.

#include <string>

#include "coordinator/report/sweep_cells.h"

namespace stagecoach {

// As HTML: which configuration has the highest throughput and where its time went; which has the shortest gap between
// tokens and which the shortest wait for the first one, medians each; how far predictions and measurements are apart,
// and what the predictions rest on; how many points there are. What was measured comes before what was simulated, and
// decode before prefill, for their numbers do not compare. What nobody measured is left out.
std::string CardsHtml(const CellPointers& cells);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_REPORT_CARDS_H_
