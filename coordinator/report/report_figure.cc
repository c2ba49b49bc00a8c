#include "coordinator/report/report_figure.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/report/prediction_ratio.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

// What the simulated ones among the cells rest on; nothing where there are none.
std::string SimulationSentence(const CellPointers& shown) {
  CellPointers simulated;
  std::copy_if(shown.begin(), shown.end(), std::back_inserter(simulated),
               [](const SweepCell* cell) { return cell->simulated; });
  const std::string facts = FactsText(simulated);
  return facts.empty() ? "" : absl::StrCat(" Simulated: the real scheduler, with times from ", facts, ".");
}

}  // namespace

std::string OriginRemark(const CellPointers& shown) {
  const auto count = [&](auto holds) { return std::count_if(shown.begin(), shown.end(), holds); };
  const auto all = static_cast<int64_t>(shown.size());
  const int64_t simulated = count([](const SweepCell* cell) { return cell->simulated; });
  const int64_t emulated = count([](const SweepCell* cell) { return cell->link_emulated() && !cell->simulated; });
  std::string remark;
  if (simulated > 0) remark = simulated == all ? "Simulated: nothing ran." : "Hollow: simulated, nothing ran.";
  if (emulated > 0) {
    const auto first =
        std::find_if(shown.begin(), shown.end(), [](const SweepCell* cell) { return cell->link_emulated(); });
    const std::string link = FieldText(**first, SweepField::kLink);
    const bool one = std::all_of(shown.begin(), shown.end(),
                                 [&](const SweepCell* cell) { return FieldText(*cell, SweepField::kLink) == link; });
    absl::StrAppend(&remark, remark.empty() ? "" : " ",
                    one ? absl::StrCat("With ", link, ".") : "Some with emulated links.");
  }
  return remark;
}

ReportFigure MakeXyFigure(std::string id, const std::string& sentence, XyChart chart, const CellPointers& shown) {
  chart.remark = OriginRemark(shown);
  return {std::move(id), chart.title, sentence + SimulationSentence(shown), DrawXyChart(chart, false),
          DrawXyChart(chart, true)};
}

ReportFigure MakeRowFigure(std::string id, const std::string& sentence, RowChart chart, const CellPointers& shown) {
  chart.remark = OriginRemark(shown);
  chart.id = id;
  return {std::move(id), chart.title, sentence + SimulationSentence(shown), DrawRowChart(chart, false),
          DrawRowChart(chart, true)};
}

ChartPoint SpreadPoint(double x, const Spread& y, std::string tooltip) {
  if (y.count > 1) {
    absl::StrAppend(&tooltip, " (", FigureText(y.low), " to ", FigureText(y.high), " in ", CountOf(y.count, "run"),
                    ")");
  }
  ChartPoint point;
  point.x = x;
  point.y = y.median;
  point.y_low = y.low;
  point.y_high = y.high;
  point.tooltip = std::move(tooltip);
  return point;
}

ChartRow SpreadRow(const SweepCell& cell, std::string heading, const Spread& value) {
  ChartRow row;
  row.heading = std::move(heading);
  row.hollow = cell.simulated;
  row.parts = {value.median};
  row.low = value.low, row.high = value.high;
  return row;
}

double BestThroughput(const CellPointers& group) {
  double best = 0;
  for (const SweepCell* cell : group) best = std::max(best, cell->Throughput().median);
  return best;
}

const CellPointers& FastestGroup(const std::vector<CellPointers>& groups) {
  const auto rank = [](const CellPointers& group) {
    return std::make_pair(!group[0]->simulated, BestThroughput(group));
  };
  return *std::max_element(groups.begin(), groups.end(),
                           [&](const CellPointers& a, const CellPointers& b) { return rank(a) < rank(b); });
}

std::vector<CellPointers> FastestGroups(std::vector<CellPointers> groups, size_t most, size_t* left_out) {
  *left_out = groups.size() > most ? groups.size() - most : 0;
  if (*left_out == 0) return groups;
  // Decode before prefill: their rates do not compare.
  std::vector<std::pair<bool, double>> best;
  best.reserve(groups.size());
  for (const CellPointers& group : groups) best.emplace_back(!group[0]->prefill_only(), BestThroughput(group));
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return best[a] > best[b]; });
  order.resize(most);
  std::sort(order.begin(), order.end());
  std::vector<CellPointers> fastest;
  fastest.reserve(order.size());
  for (size_t index : order) fastest.push_back(std::move(groups[index]));
  return fastest;
}

CellPointers FastestCells(const CellPointers& cells, size_t most, size_t* left_out) {
  std::vector<CellPointers> single;
  for (const SweepCell* cell : cells) single.push_back({cell});
  CellPointers fastest;
  for (const CellPointers& group : FastestGroups(std::move(single), most, left_out)) fastest.push_back(group[0]);
  return fastest;
}

std::string LeftOutSentence(size_t left_out) {
  if (left_out == 0) return "";
  return absl::StrCat(" ", CountOf(static_cast<int64_t>(left_out), "slower configuration"),
                      left_out == 1 ? " is" : " are", " in the table below only.");
}

}  // namespace stagecoach
