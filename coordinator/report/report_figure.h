#ifndef STAGECOACH_COORDINATOR_REPORT_REPORT_FIGURE_H_
#define STAGECOACH_COORDINATOR_REPORT_REPORT_FIGURE_H_

// The pictures of a report: each is made only where there are points for it, and says in a sentence or two what is to
// be seen, and what predictions and simulated points in it rest on. Of each kind the most telling ones come first.
// Pure.

#include <string>
#include <vector>

#include "coordinator/report/chart.h"
#include "coordinator/report/sweep_cells.h"

namespace stagecoach {

struct ReportFigure {
  std::string id;  // unique in a report; letters, digits and '-': its file is <id>.svg
  std::string title;
  std::string sentence;
  std::string page_svg, file_svg;  // within the page, where the title stands above it; and alone
};

// `shown`: whose values they are; the picture says which of them are simulated or have emulated links, and the sentence
// what simulations rest on.
ReportFigure MakeXyFigure(std::string id, const std::string& sentence, XyChart chart, const CellPointers& shown);
ReportFigure MakeRowFigure(std::string id, const std::string& sentence, RowChart chart, const CellPointers& shown);

// Points that are joined, in the style of number `index`; hollow where the cell is simulated.
ChartSeries SeriesOf(std::string label, size_t index, const SweepCell& cell);

// A point of a chart with its repetitions' spread as error bar.
ChartPoint SpreadPoint(double x, const Spread& y, std::string tooltip);

// A row of a chart with one bar: the median, and its repetitions' spread as error bar.
ChartRow SpreadRow(const SweepCell& cell, std::string heading, const Spread& value);

// The `most` groups with the highest throughput, decode before prefill, in the order in which they were; `left_out`:
// how many others there are.
std::vector<CellPointers> FastestGroups(std::vector<CellPointers> groups, size_t most, size_t* left_out);
double BestThroughput(const CellPointers& group);
CellPointers FastestCells(const CellPointers& cells, size_t most, size_t* left_out);  // the same of single ones
// The one to speak of: that with the highest throughput, of what was measured if anything was. `groups`: not empty.
const CellPointers& FastestGroup(const std::vector<CellPointers>& groups);
// " 3 more configurations are in the table." or nothing.
std::string LeftOutSentence(size_t left_out);

// Throughput over stages; the throughput of a stage where each has the same work; throughput over cores.
std::vector<ReportFigure> ScalingFigures(const CellPointers& cells);
// The gaps between tokens and the wait for the first one over the throughput; goodput; percentiles.
std::vector<ReportFigure> LatencyFigures(const CellPointers& cells);
// What each stage's time went to; the bubble beside its floor, with the rows of a pass over the weights.
std::vector<ReportFigure> TimeFigures(const CellPointers& cells);
// What was predicted beside what came out.
std::vector<ReportFigure> PredictionFigures(const CellPointers& cells);
// Configurations that differ in one choice alone (policies, groups, chunks, types); what makes the largest difference
// first.
std::vector<ReportFigure> ChoiceFigures(const CellPointers& cells);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_REPORT_FIGURE_H_
