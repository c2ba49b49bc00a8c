#include "coordinator/report/report_figure.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/shown_text.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

// What the simulated ones among the cells rest on; nothing where there are none.
std::string SimulationSentence(const CellPointers& shown) {
  const std::string facts = FactsText(Where(shown, [](const SweepCell& cell) { return cell.simulated; }));
  return facts.empty() ? "" : absl::StrCat(" Simulated: the real scheduler, with times from ", facts, ".");
}

// "Simulated: nothing ran." and the like; empty where everything was measured over real links.
std::string OriginRemark(const CellPointers& shown) {
  const size_t simulated = Where(shown, [](const SweepCell& cell) { return cell.simulated; }).size();
  const CellPointers emulated = Where(shown, [](const SweepCell& cell) { return cell.link_emulated(); });
  std::string remark;
  if (simulated > 0) remark = simulated == shown.size() ? "Simulated: nothing ran." : "Hollow: simulated, nothing ran.";
  if (std::any_of(emulated.begin(), emulated.end(), [](const SweepCell* cell) { return !cell->simulated; })) {
    const std::string link = FieldText(*emulated[0], SweepField::kLink);
    const bool one = std::all_of(shown.begin(), shown.end(),
                                 [&](const SweepCell* cell) { return FieldText(*cell, SweepField::kLink) == link; });
    absl::StrAppend(&remark, remark.empty() ? "" : " ",
                    one ? absl::StrCat("With ", link, ".") : "Some with emulated links.");
  }
  return remark;
}

}  // namespace

ReportFigure MakeXyFigure(std::string id, const std::string& sentence, XyChart chart, const CellPointers& shown) {
  chart.remark = OriginRemark(shown);
  return {std::move(id),           chart.title, sentence + SimulationSentence(shown), chart, DrawXyChart(chart, false),
          DrawXyChart(chart, true)};
}

ReportFigure MakeRowFigure(std::string id, const std::string& sentence, RowChart chart, const CellPointers& shown) {
  chart.remark = OriginRemark(shown);
  chart.id = id;
  return {std::move(id),
          chart.title,
          sentence + SimulationSentence(shown),
          chart,
          DrawRowChart(chart, false),
          DrawRowChart(chart, true)};
}

ChartSeries SeriesOf(std::string label, size_t index, const SweepCell& cell) {
  return {.label = std::move(label), .style = static_cast<int>(index), .hollow = cell.simulated};
}

ChartPoint SpreadPoint(double x, const Spread& y, std::string tooltip) {
  if (y.count > 1) {
    absl::StrAppend(&tooltip, " (", FigureText(y.low), " to ", FigureText(y.high), " in ", CountOf(y.count, "run"),
                    ")");
  }
  return {x, y.median, y.low, y.high, "", std::move(tooltip)};
}

ChartRow SpreadRow(const SweepCell& cell, std::string heading, const Spread& value) {
  ChartRow row;
  row.heading = std::move(heading);
  row.hollow = cell.simulated;
  row.parts = {value.median};
  row.low = value.low, row.high = value.high;
  return row;
}

std::string LoadText(const SweepCell& cell) {
  return FieldText(cell, cell.open_load() ? SweepField::kArrivals : SweepField::kConcurrency);
}

double OfferedRate(const SweepCell& cell) {
  constexpr absl::string_view kPoisson = "poisson:";
  double rate = 0;
  absl::string_view arrivals = cell.config.arrivals;
  return cell.open_load() && absl::ConsumePrefix(&arrivals, kPoisson) && absl::SimpleAtod(arrivals, &rate) ? rate : 0;
}

double ServedShare(const SweepPoint& run) {
  const int64_t arrived = run.result.requests + run.result.failed + run.result.unfinished;
  return arrived > 0 ? static_cast<double>(run.result.requests) / static_cast<double>(arrived) : 0;
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
  std::vector<std::pair<bool, double>> best;
  best.reserve(groups.size());
  for (const CellPointers& group : groups) best.emplace_back(!group[0]->prefill_only(), BestThroughput(group));
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return best[a] > best[b]; });
  order.resize(most);
  std::sort(order.begin(), order.end());
  std::vector<CellPointers> fastest;
  fastest.reserve(most);
  for (size_t index : order) fastest.push_back(std::move(groups[index]));
  return fastest;
}

CellPointers FastestCells(const CellPointers& cells, size_t most, size_t* left_out) {
  std::vector<CellPointers> single;
  single.reserve(cells.size());
  for (const SweepCell* cell : cells) single.push_back({cell});
  return Joined(FastestGroups(std::move(single), most, left_out));
}

std::string LeftOutSentence(size_t left_out) {
  if (left_out == 0) return "";
  return absl::StrCat(" ", CountOf(static_cast<int64_t>(left_out), "slower configuration"),
                      left_out == 1 ? " is" : " are", " in the table below only.");
}

}  // namespace stagecoach
