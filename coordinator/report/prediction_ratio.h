#ifndef STAGECOACH_COORDINATOR_REPORT_PREDICTION_RATIO_H_
#define STAGECOACH_COORDINATOR_REPORT_PREDICTION_RATIO_H_

// Which predicted number stands against which measured one, and what predictions and simulations rest on. Pure.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/report/sweep_cells.h"

namespace stagecoach {

struct PredictedQuantity {
  const char* id;    // in the name of a figure
  const char* name;  // in its title
  const char* axis;  // with its unit
  double per_unit;   // what the record's number is multiplied with for that unit
  // A cell that the prediction speaks of: that of a first token is one of a prompt alone.
  bool (*applies)(const SweepCell& cell);
  double (*predicted)(const SweepPrediction& prediction);
  double (*measured)(const SweepResult& result);
};
absl::Span<const PredictedQuantity> PredictedQuantities();

struct PredictionRatio {
  double predicted = 0;  // the median of the repetitions', which are alike
  Spread measured;
  double ratio() const { return measured.median / predicted; }
  // How far they are apart, whichever is larger: 1.25 for a ratio of 1.25 and of 0.8. Rates and times compare by it.
  double factor() const { return std::max(ratio(), 1 / ratio()); }
};
// What the planner's formulas and the simulator reckon with in these cells, in words, such as "profile hosts.json, with
// measured steps of this model"; several are joined. Empty where nothing was predicted.
std::string FactsText(const CellPointers& cells);

// Absent where nothing was predicted or measured.
std::optional<PredictionRatio> RatioOf(const SweepCell& cell, const PredictedQuantity& quantity);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_PREDICTION_RATIO_H_
