#include "coordinator/schedule/row_cost.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {
namespace {

constexpr double kRowScale = 64;  // features of about 1

}  // namespace

void RowCostFit::Add(int64_t rows, int64_t slowest_us) {
  const auto of = static_cast<double>(rows);
  fit_.Add({1, of / kRowScale, reads_.Of(of) - 1}, static_cast<double>(slowest_us));
  most_rows_ = std::max(most_rows_ * std::exp2(-1 / kMemory), of);
  if (fit_.seen() < kNeeded) return;
  const auto [fixed, row, read] = fit_.Solve();
  cost_ =
      RowCost{.fixed_us = fixed, .row_us = row / kRowScale, .read_us = read, .reads = reads_, .most_rows = most_rows_};
}

}  // namespace stagecoach
