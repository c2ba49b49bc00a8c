#include "coordinator/report/prediction_ratio.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagecoach {
namespace {

constexpr PredictedQuantity kQuantities[] = {
    {"output-rate", "output tokens/s", "output tokens/s", 1, [](const SweepCell& cell) { return !cell.prefill_only(); },
     [](const SweepPrediction& prediction) { return prediction.output_tokens_per_s; },
     [](const SweepResult& result) { return result.output_tokens_per_s; }},
    {"prefill-rate", "prefill", "prompt tokens/s", 1, [](const SweepCell& cell) { return cell.prefill_only(); },
     [](const SweepPrediction& prediction) { return prediction.prefill_tokens_per_s; },
     [](const SweepResult& result) { return result.prompt_tokens_per_s; }},
    {"itl", "median gap between tokens", "ITL, ms", 1e3, [](const SweepCell& cell) { return !cell.prefill_only(); },
     [](const SweepPrediction& prediction) { return prediction.itl_s; },
     [](const SweepResult& result) { return result.itl_s.p50; }},
    {"ttft", "first token of a prompt alone", "TTFT, ms", 1e3,
     [](const SweepCell& cell) { return cell.config.concurrency == 1; },
     [](const SweepPrediction& prediction) { return prediction.ttft_s; },
     [](const SweepResult& result) { return result.ttft_s.p50; }},
};

std::string FactsOf(const SweepPrediction& prediction) {
  if (prediction.source == "assumed") return "assumed hosts, nothing measured";
  if (absl::StartsWith(prediction.source, "cluster ")) return prediction.source;  // somebody's own words
  return absl::StrCat(prediction.source == "probe" ? "a probe before the sweep" : prediction.source, ", ",
                      prediction.measured_steps ? "with" : "without", " measured steps of this model");
}

}  // namespace

absl::Span<const PredictedQuantity> PredictedQuantities() { return kQuantities; }

std::string FactsText(const CellPointers& cells) {
  std::set<std::string> facts;
  for (const SweepCell* cell : cells) {
    for (const SweepPoint* run : cell->runs) {
      if (run->prediction.has_value()) facts.insert(FactsOf(*run->prediction));
    }
  }
  return absl::StrJoin(facts, "; ");
}

std::optional<PredictionRatio> RatioOf(const SweepCell& cell, const PredictedQuantity& quantity) {
  if (!quantity.applies(cell)) return std::nullopt;
  std::vector<double> predicted;
  for (const SweepPoint* run : cell.runs) {
    if (run->prediction.has_value()) predicted.push_back(quantity.predicted(*run->prediction));
  }
  PredictionRatio ratio;
  ratio.predicted = SpreadOf(std::move(predicted)).median;
  ratio.measured = cell.Of([&](const SweepPoint& point) { return quantity.measured(point.result); });
  if (!(ratio.predicted > 0) || !(ratio.measured.median > 0)) return std::nullopt;
  return ratio;
}

}  // namespace stagecoach
