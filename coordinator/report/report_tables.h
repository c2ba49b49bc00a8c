#ifndef STAGECOACH_COORDINATOR_REPORT_REPORT_TABLES_H_
#define STAGECOACH_COORDINATOR_REPORT_REPORT_TABLES_H_

// The numbers of a report: the cards at its top, tables as plain text in cells, and all points as CSV. Pure.

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/bench/sweep_point.h"
#include "coordinator/report/sweep_cells.h"

namespace stagecoach {

// The cards as HTML: the configuration with the highest throughput and where its time went; those with the shortest
// median gap between tokens and the shortest median wait for the first; how far predictions and measurements are apart,
// and what the predictions rest on; the number of points. Measured comes before simulated, and decode before prefill,
// because their numbers do not compare. Cards without data are left out.
std::string CardsHtml(const CellPointers& cells);

struct ReportTable {
  std::vector<std::string> header;
  size_t left = 1;                             // columns that are flush left; the others are flush right
  std::vector<std::vector<std::string>> rows;  // as many cells as the header has
};

// Every configuration that ran: median, and in brackets the lowest and the highest of its repetitions.
ReportTable ResultTable(const CellPointers& cells);
// Predicted beside measured, and their ratio; no rows where nothing was predicted.
ReportTable PredictionTable(const CellPointers& cells);
// What failed, with how many of its repetitions and each error.
ReportTable FailureTable(const CellPointers& cells);
// What held for all of them: field and value.
ReportTable CommonTable(const CellPointers& cells);
// The coordinator's hosts of what was measured, their processors and what their stages ran on.
ReportTable MachineTable(const CellPointers& cells);

// All points, each repetition, with every field of the record under its path, such as `config.stages` and
// `result.ttft_s.p50` (coordinator/bench/sweep_point.h); of stages the sums of times. RFC 4180 with a line of names.
std::string PointsCsv(absl::Span<const SweepPoint> points);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_REPORT_TABLES_H_
