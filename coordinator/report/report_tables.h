#ifndef STAGECOACH_COORDINATOR_REPORT_REPORT_TABLES_H_
#define STAGECOACH_COORDINATOR_REPORT_REPORT_TABLES_H_

// The numbers of a report: the cards at its top, tables as plain text in cells, and all points as CSV. Pure.

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/report/sweep_cells.h"

namespace stagecoach {

// The cards as HTML: the configuration with the highest throughput and where its time went; the most tokens per
// core-hour; those with the shortest median gap between tokens and the shortest median wait for the first; how far
// predictions and measurements are apart, and what the predictions rest on; the number of points. Measured comes before
// simulated, and decode before prefill, because their numbers do not compare. Cards without data are left out.
std::string CardsHtml(const CellPointers& cells);

struct ReportTable {
  std::vector<std::string> header;
  size_t left = 1;                             // columns that are flush left; the others are flush right
  std::vector<std::vector<std::string>> rows;  // as many cells as the header has
  bool links_last = false;                     // the last column has addresses of files, beside the report
};

// Every configuration that ran: median, and in brackets the lowest and the highest of its repetitions; its throughput
// against its baseline's (verdict.h).
ReportTable ResultTable(const CellPointers& cells);
// Of several series: every configuration that the first one has too, with its changes against that one.
ReportTable ComparisonTable(const CellPointers& cells);
// Predicted beside what came out, and their ratio; no rows where nothing was predicted.
ReportTable PredictionTable(const CellPointers& cells);
// What failed, with how many of its repetitions and each error.
ReportTable FailureTable(const CellPointers& cells);
// What held for all of them: field and value.
ReportTable CommonTable(const CellPointers& cells);
// The hosts that stages ran on, those alike in one row: processor, cores, instruction set and memory.
ReportTable HostTable(const CellPointers& cells);
// "4 hosts: 2 × EPYC, 32 cores; 2 × Xeon, 16 cores", of what was measured, else of what was simulated; empty where no
// host is known.
std::string HostsSentence(const CellPointers& cells);

// All points, each repetition, with every field of the record under its path, such as `config.stages` and
// `result.ttft_s.p50` (coordinator/bench/sweep_point.h); of stages the sums of times. Of several series the first
// column is the label. RFC 4180 with a line of names.
std::string PointsCsv(absl::Span<const SweepSeries> series);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_REPORT_TABLES_H_
