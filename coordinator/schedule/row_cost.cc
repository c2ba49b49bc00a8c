#include "coordinator/schedule/row_cost.h"

namespace stagecoach {
namespace {

constexpr double kRowScale = 64;  // features of about 1

}  // namespace

void RowCostFit::Add(int64_t rows, int64_t slowest_us) {
  fit_.Add({1, static_cast<double>(rows) / kRowScale}, static_cast<double>(slowest_us));
  if (fit_.seen() < kNeeded) return;
  const auto [fixed, row] = fit_.Solve();
  cost_ = RowCost{.fixed_us = fixed, .row_us = row / kRowScale};
}

}  // namespace stagecoach
