#include "coordinator/report/report_cards.h"

#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "coordinator/report/prediction_ratio.h"
#include "coordinator/report/report_text.h"
#include "coordinator/report/svg_canvas.h"

namespace stagecoach {
namespace {

using CellValue = std::function<double(const SweepCell&)>;

std::string Card(const std::string& name, const std::string& figure, const std::string& unit, const std::string& rest) {
  return absl::StrCat("<div><dt>", EscapeMarkup(name), "</dt><dd><p><b>", EscapeMarkup(figure), "</b> ",
                      EscapeMarkup(unit), "</p>", EscapeMarkup(rest), "</dd></div>\n");
}

// The one with the largest value above 0; nullptr where there is none.
const SweepCell* Foremost(const CellPointers& cells, const CellValue& value) {
  const auto rank = [&](const SweepCell& cell) {
    return std::make_tuple(!cell.simulated, !cell.prefill_only(), value(cell));
  };
  const SweepCell* foremost = nullptr;
  for (const SweepCell* cell : cells) {
    if (value(*cell) > 0 && (foremost == nullptr || rank(*cell) > rank(*foremost))) foremost = cell;
  }
  return foremost;
}

// Of the quantity, behind a card's configuration; empty where nothing was predicted.
std::string PredictedText(const SweepCell& cell, absl::string_view id) {
  for (const PredictedQuantity& quantity : PredictedQuantities()) {
    const auto ratio = RatioOf(cell, quantity);
    if (id == quantity.id && ratio.has_value()) {
      return absl::StrCat("; predicted ", FigureText(ratio->predicted * quantity.per_unit));
    }
  }
  return "";
}

std::string RateCard(const SweepCell& fastest, const CellLabels& labels) {
  const bool prefill = fastest.prefill_only();
  return Card("Highest throughput", FigureText(fastest.Throughput().median),
              prefill ? "prompt tokens/s" : "output tokens/s",
              labels.Of(fastest) + PredictedText(fastest, prefill ? "prefill-rate" : "output-rate"));
}

std::string TimeCard(const SweepCell& fastest) {
  const Spread bubble = fastest.Of([](const SweepPoint& point) { return point.result.bubble; });
  const Spread floor = fastest.Of([](const SweepPoint& point) { return point.result.bubble_floor; });
  if (fastest.runs[0]->stages.empty() || bubble.count == 0 || bubble.median < 0 || bubble.median > 1) return "";
  const std::string who = fastest.stages == 1 ? "its stage" : "its stages";
  return Card("Where its time went", PercentText(1 - bubble.median), absl::StrCat(who, " computed"),
              absl::StrCat(PercentText(bubble.median), " waiting with work in the pipeline; no less than ",
                           PercentText(floor.median), " was possible"));
}

std::string LatencyCard(const CellPointers& cells, const CellLabels& labels, const std::string& name,
                        const std::string& unit, Percentiles SweepResult::*sample, absl::string_view prediction) {
  const auto median = [sample](const SweepCell& cell) {
    return cell.Of([sample](const SweepPoint& point) { return (point.result.*sample).p50; }).median;
  };
  const SweepCell* quickest =
      Foremost(cells, [&](const SweepCell& cell) { return median(cell) > 0 ? 1 / median(cell) : 0; });
  if (quickest == nullptr) return "";
  return Card(name, FigureText(median(*quickest) * 1e3), unit,
              labels.Of(*quickest) + PredictedText(*quickest, prediction));
}

std::string PredictionCard(const CellPointers& cells) {
  for (const bool simulated : {false, true}) {
    std::vector<double> apart;
    CellPointers compared;
    for (const SweepCell* cell : cells) {
      if (cell->simulated != simulated) continue;
      for (const PredictedQuantity& quantity : PredictedQuantities()) {
        const auto ratio = RatioOf(*cell, quantity);
        if (!ratio.has_value()) continue;
        apart.push_back(ratio->factor() - 1);
        compared.push_back(cell);
      }
    }
    if (apart.empty()) continue;
    const Spread spread = SpreadOf(apart);
    return Card(simulated ? "Prediction off the simulation by" : "Prediction off by", PercentText(spread.median),
                "in the median",
                absl::StrCat("at most ", PercentText(spread.high), ", over ",
                             CountOf(static_cast<int64_t>(apart.size()), "comparison"),
                             "; by the planner's formulas from ", FactsText(compared)));
  }
  return "";
}

std::string CountCard(const CellPointers& cells) {
  int64_t measured = 0, simulated = 0, failed = 0;
  for (const SweepCell* cell : cells) {
    (cell->simulated ? simulated : measured) += static_cast<int64_t>(cell->runs.size());
    failed += static_cast<int64_t>(cell->failures.size());
  }
  std::vector<std::string> parts = {CountOf(static_cast<int64_t>(cells.size()), "configuration")};
  if (simulated > 0) parts.push_back(absl::StrCat(simulated, " simulated"));
  if (failed > 0) parts.push_back(absl::StrCat(failed, " failed"));
  return Card("Points", absl::StrCat(measured), "measured", absl::StrJoin(parts, ", "));
}

}  // namespace

std::string CardsHtml(const CellPointers& cells) {
  const CellLabels labels(cells, {});
  std::string html = "<dl class=\"cards\">\n";
  const SweepCell* fastest = Foremost(cells, [](const SweepCell& cell) { return cell.Throughput().median; });
  if (fastest != nullptr) absl::StrAppend(&html, RateCard(*fastest, labels), TimeCard(*fastest));
  absl::StrAppend(
      &html, LatencyCard(cells, labels, "Shortest median gap", "ms between tokens", &SweepResult::itl_s, "itl"),
      LatencyCard(cells, labels, "Shortest median wait", "ms to the first token", &SweepResult::ttft_s, "ttft"),
      PredictionCard(cells), CountCard(cells), "</dl>\n");
  return html;
}

}  // namespace stagecoach
