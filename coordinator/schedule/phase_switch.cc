#include "coordinator/schedule/phase_switch.h"

#include <algorithm>
#include <cmath>

#include "common/job/job_choices.h"

namespace stagecoach {
namespace {

constexpr double kMostFixedRows = 1e6;  // where rows cost nothing that shows

double FixedRows(const PhaseLoad& load) {
  if (!load.cost.has_value()) return kUnknownFixedRows;
  if (load.cost->fixed_us >= kMostFixedRows * load.cost->row_us) return kMostFixedRows;
  return load.cost->fixed_us / load.cost->row_us;
}

double RowsAfter(const PhaseLoad& load) { return static_cast<double>(load.running + load.admissible) / load.groups; }

double Rate(double rows, double fixed_rows) { return rows / (std::max(1.0, rows) + fixed_rows); }

}  // namespace

int64_t PhaseStepRows(const PhaseLoad& load) {
  const double best =
      std::sqrt(FixedRows(load) * static_cast<double>(load.admissible_rows) / std::max(1, load.stages - 1));
  if (load.stages == 1 || best >= static_cast<double>(load.budget_rows)) return load.budget_rows;
  return std::min(load.budget_rows, std::max<int64_t>(static_cast<int64_t>(best), kEqualTimeLeastRows));
}

double DecodeIntensity(const PhaseLoad& load) {
  if (load.running == 0) return 0;
  const double fixed = FixedRows(load);
  return Rate(static_cast<double>(load.running) / load.groups, fixed) / Rate(RowsAfter(load), fixed);
}

double PrefillIntensity(const PhaseLoad& load) {
  const auto rows = static_cast<double>(std::max<int64_t>(load.admissible_rows, 1));
  const double step = std::min(rows, static_cast<double>(PhaseStepRows(load)));
  const double fixed = FixedRows(load);
  const double others = load.stages - 1;
  const double length = rows + fixed * std::ceil(rows / step) + others * (step + fixed);
  return 1 - others * std::max(0.0, step - RowsAfter(load)) / length;
}

}  // namespace stagecoach
