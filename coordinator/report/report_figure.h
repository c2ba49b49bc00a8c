#ifndef STAGECOACH_COORDINATOR_REPORT_REPORT_FIGURE_H_
#define STAGECOACH_COORDINATOR_REPORT_REPORT_FIGURE_H_

// The figures of a report. Each is made only if there are points for it, and has a sentence or two: what it shows, and
// what predictions and simulated points rest on. The most telling ones of each kind come first. Pure.

#include <string>
#include <variant>
#include <vector>

#include "coordinator/report/chart/chart.h"
#include "coordinator/report/sweep_cells.h"

namespace stagecoach {

struct ReportFigure {
  std::string id;  // unique in a report; letters, digits and '-': its file is <id>.svg
  std::string title;
  std::string sentence;
  std::variant<XyChart, RowChart> chart;
  std::string page_svg, file_svg;  // within the page, where the title stands above it; and alone
};

// `shown`: the cells of the figure. The picture marks simulated ones and emulated links, the sentence their basis.
ReportFigure MakeXyFigure(std::string id, const std::string& sentence, XyChart chart, const CellPointers& shown);
ReportFigure MakeRowFigure(std::string id, const std::string& sentence, RowChart chart, const CellPointers& shown);

// Points that are joined, in the style of number `index`; hollow where the cell is simulated.
ChartSeries SeriesOf(std::string label, size_t index, const SweepCell& cell);

// A point of a chart with its repetitions' spread as error bar.
ChartPoint SpreadPoint(double x, const Spread& y, std::string tooltip);

// A row of a chart with one bar: the median, and its repetitions' spread as error bar.
ChartRow SpreadRow(const SweepCell& cell, std::string heading, const Spread& value);

// The `most` groups with the highest throughput, decode before prefill, in their order; `left_out`: how many others.
std::vector<CellPointers> FastestGroups(std::vector<CellPointers> groups, size_t most, size_t* left_out);
double BestThroughput(const CellPointers& group);
CellPointers FastestCells(const CellPointers& cells, size_t most, size_t* left_out);  // the same of single ones
// The group with the highest throughput, measured before simulated. `groups`: not empty.
const CellPointers& FastestGroup(const std::vector<CellPointers>& groups);
// " 3 more configurations are in the table." or nothing.
std::string LeftOutSentence(size_t left_out);

// The largest value over the smallest: more is drawn on a logarithmic axis.
inline constexpr double kWideRange = 20;

std::string LoadText(const SweepCell& cell);  // "8 at once", "poisson:2 arrivals"
// Of an open load: requests a second that arrive; 0: not known (a trace's).
double OfferedRate(const SweepCell& cell);
// Of the requests that arrived: those that ended with all their tokens, from 0 to 1. A rate up to the last token would
// be less than what is offered even where all of them ended.
double ServedShare(const SweepPoint& run);

// Throughput over stages; one user's over stages, where guesses keep them busy; the throughput of a stage where each
// has the same work; throughput over cores.
std::vector<ReportFigure> ScalingFigures(const CellPointers& cells);
// The Pareto front; the gaps between tokens and the wait for the first one over the throughput; what open loads offer
// and get; goodput; percentiles.
std::vector<ReportFigure> LatencyFigures(const CellPointers& cells);
// What each stage's time went to; the bubble with its causes beside its floor, with the rows of a pass.
std::vector<ReportFigure> TimeFigures(const CellPointers& cells);
// What was predicted beside what came out.
std::vector<ReportFigure> PredictionFigures(const CellPointers& cells);
// Configurations that differ in one choice alone (policies, groups, chunks, types); the largest difference first.
std::vector<ReportFigure> ChoiceFigures(const CellPointers& cells);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_REPORT_FIGURE_H_
