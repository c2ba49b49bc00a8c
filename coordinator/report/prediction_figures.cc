// What was predicted beside what came out.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/report/chart_style.h"
#include "coordinator/report/prediction_ratio.h"
#include "coordinator/report/report_figure.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

constexpr double kBand = 0.1;       // either side of the diagonal
constexpr double kWideSquare = 20;  // the largest over the smallest: more is drawn on logarithmic axes

// `what`: "measured" or "simulated".
std::string RatioSentence(const std::vector<double>& ratios, absl::string_view what) {
  const Spread spread = SpreadOf(ratios);
  const auto near = std::count_if(ratios.begin(), ratios.end(),
                                  [](double ratio) { return ratio >= 1 - kBand && ratio <= 1 + kBand; });
  const std::string median = absl::StrCat("he ratio of ", what, " to predicted is ", FigureText(spread.median));
  if (ratios.size() == 1) return absl::StrCat("T", median, ".");
  return absl::StrCat(near, " of ", ratios.size(), " are within 10 % of the prediction; t", median, " in the median (",
                      FigureText(spread.low), " to ", FigureText(spread.high), ").");
}

// Of each cell the series that it belongs to: how many stages, and what was not real; without the stages where that
// were more than can be told apart.
std::vector<std::string> SeriesNames(const CellPointers& cells) {
  std::vector<std::string> names;
  for (bool with_stages : {true, false}) {
    names.clear();
    for (const SweepCell* cell : cells) {
      const std::string origin = cell->simulated ? "simulated" : cell->link_emulated() ? "emulated links" : "";
      const std::string stages = with_stages ? FieldText(*cell, SweepField::kStages) : "";
      names.push_back(absl::StrCat(stages, stages.empty() || origin.empty() ? "" : ", ", origin));
      if (names.back().empty()) names.back() = "measured";
    }
    if (std::set<std::string>(names.begin(), names.end()).size() <= static_cast<size_t>(kMostSeries)) break;
  }
  return names;
}

void AddBand(double low, double high, XyChart* chart) {
  ChartBand band;
  band.label = "within 10 %";
  ChartGuide diagonal;
  diagonal.label = "as predicted";
  for (double x : {low, high}) {
    ChartPoint point;
    point.x = point.y = x;
    point.y_low = x * (1 - kBand);
    point.y_high = x * (1 + kBand);
    band.points.push_back(point);
    diagonal.points.push_back(point);
  }
  chart->bands.push_back(std::move(band));
  chart->guides.push_back(std::move(diagonal));
}

void AddScatter(const CellPointers& cells, const PredictedQuantity& quantity, std::vector<ReportFigure>* figures) {
  CellPointers shown;
  for (const SweepCell* cell : cells) {
    if (RatioOf(*cell, quantity).has_value()) shown.push_back(cell);
  }
  if (shown.empty()) return;
  const CellLabels labels(shown, {});
  XyChart chart;
  chart.title = absl::StrCat("Prediction and measurement: ", quantity.name);
  chart.square = true;
  chart.x.label = absl::StrCat("predicted ", quantity.axis);
  const bool measured = std::any_of(shown.begin(), shown.end(), [](const SweepCell* cell) { return !cell->simulated; });
  const char* what = measured ? "measured" : "simulated";
  chart.y.label = absl::StrCat(what, " ", quantity.axis);
  const std::vector<std::string> kinds = SeriesNames(shown);
  std::map<std::string, size_t> places;  // of series
  std::vector<double> ratios;
  double low = 0, high = 0;
  for (size_t i = 0; i < shown.size(); ++i) {
    const SweepCell* cell = shown[i];
    const PredictionRatio ratio = *RatioOf(*cell, quantity);
    const auto [place, fresh] = places.emplace(kinds[i], chart.series.size());
    if (fresh) {
      ChartSeries series;
      series.label = kinds[i];
      series.style = static_cast<int>(place->second);
      series.joined = false;
      series.hollow = cell->simulated;
      chart.series.push_back(std::move(series));
    }
    const double unit = quantity.per_unit;
    const Spread y = {ratio.measured.median * unit, ratio.measured.low * unit, ratio.measured.high * unit,
                      ratio.measured.count};
    chart.series[place->second].points.push_back(SpreadPoint(
        ratio.predicted * unit, y,
        absl::StrCat(labels.Of(*cell), ": predicted ", FigureText(ratio.predicted * unit), ", ",
                     cell->simulated ? "simulated " : "measured ", FigureText(y.median), " ", quantity.axis)));
    if (measured != cell->simulated) ratios.push_back(ratio.ratio());
    for (double value : {ratio.predicted * unit, y.low, y.high}) {
      low = low == 0 ? value : std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (low > 0 && high > kWideSquare * low) chart.x.kind = chart.y.kind = ScaleKind::kLog;
  AddBand(chart.x.kind == ScaleKind::kLog ? low * 0.8 : 0, high * 1.05, &chart);
  const std::string sentence =
      absl::StrCat(RatioSentence(ratios, what), " Predicted by the planner's formulas from ", FactsText(shown), ".");
  figures->push_back(MakeXyFigure(absl::StrCat("prediction-", quantity.id), sentence, std::move(chart), shown));
}

}  // namespace

std::vector<ReportFigure> PredictionFigures(const CellPointers& cells) {
  std::vector<ReportFigure> figures;
  for (const PredictedQuantity& quantity : PredictedQuantities()) AddScatter(cells, quantity, &figures);
  return figures;
}

}  // namespace stagecoach
