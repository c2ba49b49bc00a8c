// Where the stages' time went.

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/report/report_figure.h"
#include "coordinator/report/report_text.h"
#include "coordinator/report/verdict.h"

namespace stagecoach {
namespace {

constexpr size_t kMostTimeRows = 12;
constexpr size_t kMostDetailed = 4;   // configurations whose stages are shown one by one
constexpr size_t kMostStageRows = 8;  // of one configuration

Spread BubbleOf(const SweepCell& cell) { return cell.Of(&SweepResult::bubble, 100); }
double FloorOf(const SweepCell& cell) { return cell.Of(&SweepResult::bubble_floor, 100).median; }

// Its causes where they are known, else the bubble alone as the last part. Percent.
std::vector<double> BubbleParts(const SweepCell& cell) {
  const std::optional<BubbleShares> causes = CausesOf(cell);
  if (!causes.has_value()) return {0, 0, BubbleOf(cell).median};
  return {100 * causes->few, 100 * causes->uneven, 100 * causes->links, 100 * causes->voids};
}

// A small bubble from many small passes is no gain, so the rows of a pass are shown with it.
void AddBubble(const CellPointers& cells, std::vector<ReportFigure>* figures) {
  // One stage alone has a bubble of the coordinator's making only.
  const CellPointers piped =
      Where(cells, [](const SweepCell& cell) { return BubbleOf(cell).median > 0 || cell.stages > 1; });
  if (piped.empty()) return;
  size_t left_out = 0;
  const CellPointers shown = FastestCells(piped, kMostTimeRows, &left_out);
  const CellLabels labels(shown, {});
  RowChart chart;
  chart.title = "The bubble and its causes, beside its floor";
  chart.axis.label = "% of the stages' time without computing";
  chart.parts = {{"too few requests", PartFill::kLines},
                 {"uneven stages", PartFill::kDots},
                 {"links and coordinator", PartFill::kSolid}};
  const bool guesses = std::any_of(shown.begin(), shown.end(), [](const SweepCell* cell) { return cell->guesses(); });
  if (guesses) chart.parts.push_back({"wrong guesses", PartFill::kCrosses});
  chart.marks = {{.label = "floor", .tick = true}};
  const SweepCell *nearest = nullptr, *farthest = nullptr;
  const auto above = [](const SweepCell& cell) { return BubbleOf(cell).median - FloorOf(cell); };
  for (const SweepCell* cell : shown) {
    ChartRow row;
    row.heading = labels.Of(*cell);
    row.hollow = cell->simulated;
    row.parts = BubbleParts(*cell);
    row.parts.resize(chart.parts.size());
    row.low = BubbleOf(*cell).low, row.high = BubbleOf(*cell).high;
    row.marks = {FloorOf(*cell)};
    const std::string bubble = PercentText(BubbleOf(*cell).median / 100);
    const std::string rows = FigureText(cell->Of(&SweepResult::rows_per_pass).median) + " rows/pass";
    row.note = absl::StrCat(bubble, "; ", rows);
    row.tooltip =
        absl::StrCat(row.heading, ": bubble ", bubble, ", floor ", PercentText(row.marks[0] / 100), "; ", rows);
    for (size_t i = 0; i < row.parts.size(); ++i) {
      absl::StrAppend(&row.tooltip, "; ", chart.parts[i].label, " ", PercentText(row.parts[i] / 100));
    }
    chart.rows.push_back(std::move(row));
    if (nearest == nullptr || above(*cell) < above(*nearest)) nearest = cell;
    if (farthest == nullptr || above(*cell) > above(*farthest)) farthest = cell;
  }
  std::string sentence =
      shown.size() == 1
          ? absl::StrCat("The bubble is ", PercentText(BubbleOf(*nearest).median / 100), ", its floor ",
                         PercentText(FloorOf(*nearest) / 100), ".")
          : absl::StrCat("The bubble lies ", absl::StrFormat("%.1f", above(*nearest)),
                         " points above its floor at best (", labels.Of(*nearest), ") and ",
                         absl::StrFormat("%.1f", above(*farthest)), " at worst (", labels.Of(*farthest), ").");
  absl::StrAppend(
      &sentence,
      " The floor is the bubble of the same work in an ideal pipeline: too few requests, or uneven stages. "
      "What lies above it is due to links",
      guesses ? ", wrong guesses" : "",
      " and the coordinator. A pass reads all weights of a stage once, for as many rows as a micro-batch has.",
      LeftOutSentence(left_out));
  figures->push_back(MakeRowFigure("bubble", sentence, std::move(chart), shown));
}

// Of each number of stages the fastest configuration, decode before prefill; too many: most stages, measured first.
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
  std::vector<double> shares;  // of the first one's stages
  for (const SweepStage& stage : MedianRun(*shown.front()).stages) shares.push_back(ShareOf(stage, stage.compute_s));
  const auto busiest = std::max_element(shares.begin(), shares.end());
  const auto idlest = std::min_element(shares.begin(), shares.end());
  for (const SweepCell* cell : shown) AddStageRows(*cell, labels.Of(*cell), &chart);
  const std::string most = PercentText(*busiest / 100), least = PercentText(*idlest / 100);
  std::string sentence = shares.size() == 1
                             ? absl::StrCat("The stage computes ", most, " of the time.")
                             : absl::StrCat("With ", labels.Of(*shown.front()), ", stage ", busiest - shares.begin(),
                                            " computes the most, ", most, " of the time, and stage ",
                                            idlest - shares.begin(), " the least, ", least, ".");
  absl::StrAppend(&sentence, " Shown is the fastest configuration of each number of stages.");
  figures->push_back(MakeRowFigure("stage-times", sentence, std::move(chart), shown));
}

}  // namespace

std::vector<ReportFigure> TimeFigures(const CellPointers& cells) {
  const CellPointers ran = Where(cells, [](const SweepCell& cell) { return !cell.runs.empty(); });
  std::vector<ReportFigure> figures;
  AddStageTimes(ran, &figures);
  AddBubble(ran, &figures);
  return figures;
}

}  // namespace stagecoach
