// Where the stages' time went.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/report/report_figure.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

constexpr size_t kMostTimeRows = 12;
constexpr size_t kMostDetailed = 4;   // configurations whose stages are shown one by one
constexpr size_t kMostStageRows = 8;  // of one configuration

Spread BubbleOf(const SweepCell& cell) {
  return cell.Of([](const SweepPoint& point) { return 100 * point.result.bubble; });
}
Spread FloorOf(const SweepCell& cell) {
  return cell.Of([](const SweepPoint& point) { return 100 * point.result.bubble_floor; });
}
Spread RowsOf(const SweepCell& cell) {
  return cell.Of([](const SweepPoint& point) { return point.result.rows_per_pass; });
}

// A small bubble of many small passes is no gain: how many rows a pass serves stands beside it.
void AddBubble(const CellPointers& cells, std::vector<ReportFigure>* figures) {
  CellPointers piped;  // one stage alone has a bubble of the coordinator's making only
  std::copy_if(cells.begin(), cells.end(), std::back_inserter(piped),
               [](const SweepCell* cell) { return BubbleOf(*cell).median > 0 || cell->stages > 1; });
  if (piped.empty()) return;
  size_t left_out = 0;
  const CellPointers shown = FastestCells(piped, kMostTimeRows, &left_out);
  const CellLabels labels(shown, {});
  RowChart chart;
  chart.title = "The bubble, beside the least that was possible";
  chart.axis.label = "% of the stages' time without computing";
  chart.parts = {{"bubble", PartFill::kSolid}};
  RowMark floor;
  floor.label = "floor: the same work in an ideal pipeline";
  floor.tick = true;
  chart.marks = {floor};
  const SweepCell *nearest = nullptr, *farthest = nullptr;
  const auto above = [](const SweepCell& cell) { return BubbleOf(cell).median - FloorOf(cell).median; };
  for (const SweepCell* cell : shown) {
    ChartRow row = SpreadRow(*cell, labels.Of(*cell), BubbleOf(*cell));
    row.marks = {FloorOf(*cell).median};
    const std::string bubble = PercentText(row.parts[0] / 100), rows = FigureText(RowsOf(*cell).median) + " rows/pass";
    row.note = absl::StrCat(bubble, "; ", rows);
    row.tooltip =
        absl::StrCat(row.heading, ": bubble ", bubble, ", floor ", PercentText(row.marks[0] / 100), "; ", rows);
    chart.rows.push_back(std::move(row));
    if (nearest == nullptr || above(*cell) < above(*nearest)) nearest = cell;
    if (farthest == nullptr || above(*cell) > above(*farthest)) farthest = cell;
  }
  std::string sentence = shown.size() == 1
                             ? absl::StrCat("The bubble is ", PercentText(BubbleOf(*nearest).median / 100),
                                            ", its floor ", PercentText(FloorOf(*nearest).median / 100), ".")
                             : absl::StrCat("The bubble lies ", FigureText(above(*nearest)),
                                            " points above its floor at best (", labels.Of(*nearest), ") and ",
                                            FigureText(above(*farthest)), " at worst (", labels.Of(*farthest), ").");
  absl::StrAppend(&sentence, " A pass reads all weights of a stage once, for as many rows as a micro-batch has.",
                  LeftOutSentence(left_out));
  figures->push_back(MakeRowFigure("bubble", sentence, std::move(chart), shown));
}

// The run in the middle of the repetitions, by throughput: shares of one run add up.
const SweepPoint& MedianRun(const SweepCell& cell) {
  std::vector<const SweepPoint*> runs = cell.runs;
  std::stable_sort(runs.begin(), runs.end(), [](const SweepPoint* a, const SweepPoint* b) {
    return a->result.output_tokens_per_s < b->result.output_tokens_per_s;
  });
  return *runs[(runs.size() - 1) / 2];
}

// Of each number of stages the fastest configuration, decode before prefill; where there are too many, those with the
// most stages, measured before simulated.
CellPointers DetailedCells(const CellPointers& cells) {
  std::map<std::pair<bool, int64_t>, const SweepCell*> fastest;  // by simulated, and stages from the most
  const auto rank = [](const SweepCell& cell) {
    return std::make_pair(!cell.prefill_only(), cell.Throughput().median);
  };
  for (const SweepCell* cell : cells) {
    if (MedianRun(*cell).stages.empty()) continue;
    const SweepCell*& best = fastest[{cell->simulated, -cell->stages}];
    if (best == nullptr || rank(*cell) > rank(*best)) best = cell;
  }
  CellPointers detailed;
  for (const auto& [key, cell] : fastest) {
    if (detailed.size() < kMostDetailed) detailed.push_back(cell);
  }
  return detailed;
}

double ShareOf(const SweepStage& stage, double seconds) {
  const double busy = stage.compute_s + stage.wait_s;
  return busy > 0 ? 100 * seconds / busy : 0;
}

void AddStageRows(const SweepCell& cell, const std::string& label, RowChart* chart) {
  const std::vector<SweepStage>& stages = MedianRun(cell).stages;
  const size_t rows = std::min(stages.size(), kMostStageRows);
  for (size_t i = 0; i < rows; ++i) {
    const size_t s = rows < 2 ? 0 : i * (stages.size() - 1) / (rows - 1);
    const SweepStage& stage = stages[s];
    ChartRow row;
    if (i == 0) row.heading = label;
    if (i == 0 && rows < stages.size()) absl::StrAppend(&row.heading, " (", rows, " of them)");
    row.label = absl::StrCat("stage ", s);
    row.hollow = cell.simulated;
    row.parts = {ShareOf(stage, stage.compute_s), ShareOf(stage, stage.wait_s)};
    row.marks = {stage.send_s > 0 ? ShareOf(stage, stage.send_s) : kNoValue};
    row.note = stage.host;
    row.tooltip = absl::StrCat(label, ", stage ", s, stage.host.empty() ? "" : " on ", stage.host, ": computing ",
                               DurationText(stage.compute_s), ", waiting ", DurationText(stage.wait_s), ", sending ",
                               DurationText(stage.send_s));
    chart->rows.push_back(std::move(row));
  }
}

void AddStageTimes(const CellPointers& cells, std::vector<ReportFigure>* figures) {
  const CellPointers shown = DetailedCells(cells);
  if (shown.empty()) return;
  const CellLabels labels(shown, {});
  RowChart chart;
  chart.title = "What each stage's time went to";
  chart.axis.label = "% of the time with work in the pipeline";
  chart.axis.marks = {0, 20, 40, 60, 80, 100};
  chart.parts = {{"computing", PartFill::kSolid}, {"waiting", PartFill::kLines}};
  chart.marks = {{"sending, beside the computing", MarkerShape::kDiamond, false, 1}};
  const SweepStage *busiest = nullptr, *idlest = nullptr;
  size_t busiest_index = 0, idlest_index = 0;
  const std::vector<SweepStage>& of_first = MedianRun(*shown.front()).stages;
  for (size_t s = 0; s < of_first.size(); ++s) {
    const auto share = [](const SweepStage& stage) { return ShareOf(stage, stage.compute_s); };
    if (busiest == nullptr || share(of_first[s]) > share(*busiest)) busiest = &of_first[s], busiest_index = s;
    if (idlest == nullptr || share(of_first[s]) < share(*idlest)) idlest = &of_first[s], idlest_index = s;
  }
  for (const SweepCell* cell : shown) AddStageRows(*cell, labels.Of(*cell), &chart);
  const double most = ShareOf(*busiest, busiest->compute_s) / 100, least = ShareOf(*idlest, idlest->compute_s) / 100;
  std::string sentence = of_first.size() == 1
                             ? absl::StrCat("The stage computes ", PercentText(most), " of the time.")
                             : absl::StrCat("With ", labels.Of(*shown.front()), ", stage ", busiest_index,
                                            " computes the most, ", PercentText(most), " of the time, and stage ",
                                            idlest_index, " the least, ", PercentText(least), ".");
  absl::StrAppend(&sentence, " Of each number of stages the fastest configuration is shown.");
  figures->push_back(MakeRowFigure("stage-times", sentence, std::move(chart), shown));
}

}  // namespace

std::vector<ReportFigure> TimeFigures(const CellPointers& cells) {
  CellPointers ran;
  std::copy_if(cells.begin(), cells.end(), std::back_inserter(ran),
               [](const SweepCell* cell) { return !cell->runs.empty(); });
  std::vector<ReportFigure> figures;
  AddStageTimes(ran, &figures);
  AddBubble(ran, &figures);
  return figures;
}

}  // namespace stagecoach
