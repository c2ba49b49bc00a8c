#include "coordinator/schedule/policy/phases.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {
namespace {

constexpr double kMostFixedRows = 1e6;  // where rows cost nothing that shows
constexpr double kMostGrowth = 2;       // of steps with experts, over those of late
constexpr int kStepRounds = 4;          // of x, which begins with the most rows and only gets smaller

// v of a step of `rows` rows, at least 1.
double FixedRows(const PhaseLoad& load, double rows) {
  if (!load.cost.has_value()) return kUnknownFixedRows;
  const double fixed_us = load.cost->FixedUs(rows);
  if (fixed_us >= kMostFixedRows * load.cost->row_us) return kMostFixedRows;
  return fixed_us / load.cost->row_us;
}

double RowsAfter(const PhaseLoad& load) { return static_cast<double>(load.running + load.admissible) / load.groups; }

double Rate(const PhaseLoad& load, double rows) {
  const double computed = std::max(1.0, rows);
  return rows / (computed + FixedRows(load, computed));
}

}  // namespace

int64_t PhaseStepRows(const PhaseLoad& load) {
  auto most = static_cast<double>(load.budget_rows);
  // While few rows read most of the time, nobody knows what more of them cost beside that.
  const bool experts = load.cost.has_value() && load.cost->reads.experts > 0;
  if (experts) most = std::min(most, kMostGrowth * std::max(load.cost->most_rows, double{kEqualTimeLeastRows}));
  if (load.stages == 1) return load.budget_rows;
  double best = most;
  for (int i = 0; i < kStepRounds; ++i) {
    const double fixed = FixedRows(load, std::max(1.0, best));  // as for more rows than it will be, until it settles
    best = std::min(most, std::sqrt(fixed * static_cast<double>(load.admissible_rows) / (load.stages - 1)));
  }
  return std::min(load.budget_rows, std::max<int64_t>(static_cast<int64_t>(best), kEqualTimeLeastRows));
}

double DecodeIntensity(const PhaseLoad& load) {
  if (load.running == 0) return 0;
  return Rate(load, static_cast<double>(load.running) / load.groups) / Rate(load, RowsAfter(load));
}

double PrefillIntensity(const PhaseLoad& load) {
  const auto rows = static_cast<double>(std::max<int64_t>(load.admissible_rows, 1));
  const double step = std::min(rows, static_cast<double>(PhaseStepRows(load)));
  const double fixed = FixedRows(load, step);
  const double others = load.stages - 1;
  const double length = rows + fixed * std::ceil(rows / step) + others * (step + fixed);
  return 1 - others * std::max(0.0, step - RowsAfter(load)) / length;
}

// However many stages there are, no more of them work on prompts than micro-batches are in flight.
void PhasesPolicy::Compose(PolicyDraft& draft) {
  if (const std::optional<NextPrompt> next = draft.Next()) {
    const PolicyLoad load = draft.Load();
    const PhaseLoad phase = {.running = load.running,
                             .admissible = std::max<int64_t>(load.admissible, 1),
                             .admissible_rows = std::max<int64_t>(load.prompt_rows, 1),
                             .budget_rows = budget_rows_,
                             .groups = load.decode_groups,
                             .stages = micro_batches_,
                             .cost = row_cost_.cost()};
    prefilling_ = prefilling_ || next->runs || PrefillPays(phase);
    if (prefilling_) draft.AddPromptRows(PhaseStepRows(phase));
  }
  if (!draft.empty()) return;
  prefilling_ = false;  // no prompt has work
  draft.AddDecodeRows();
}

std::unique_ptr<SchedulingPolicy> MakePolicy(PolicyTag<Policy::kPhases>, const PolicyOptions& options) {
  return std::make_unique<PhasesPolicy>(options);
}

}  // namespace stagecoach
