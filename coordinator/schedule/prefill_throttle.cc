#include "coordinator/schedule/prefill_throttle.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {

int64_t PrefillThrottle::Rows(const Load& load) const {
  if (!load.decoding) return kNoLimit;
  const int64_t spread = (load.waiting_rows + kTurns - 1) / kTurns;
  const double room = std::max(0.0, (load.free_share - kReserved) / (1 - kReserved));
  int64_t rows = std::min(spread, static_cast<int64_t>(static_cast<double>(most_rows_) * room));
  if (gap_us_ > 0) rows = std::min(rows, RowsInGap(load));
  return std::max(least_rows(), rows);
}

int64_t PrefillThrottle::RowsInGap(const Load& load) const {
  if (!load.cost.has_value()) return 0;
  const RowCost& cost = *load.cost;
  const auto decode_rows = static_cast<double>(load.decode_rows);
  // Rows whose work there is time for where the step is read for `rows` rows of prompts.
  const auto rows_beside = [&](int64_t rows) -> int64_t {
    const double reading_us = cost.FixedUs(decode_rows + static_cast<double>(rows));
    const double left_us = gap_us_ / load.micro_batches - reading_us - cost.row_us * decode_rows;
    if (left_us <= 0) return 0;
    // Also where a row costs nothing that shows.
    if (left_us >= cost.row_us * static_cast<double>(most_rows_)) return most_rows_;
    return static_cast<int64_t>(std::floor(left_us / cost.row_us));
  };
  int64_t fit = 0, too_many = most_rows_ + 1;  // more rows never read less
  while (too_many - fit > 1) {
    const int64_t rows = fit + (too_many - fit) / 2;
    (rows_beside(rows) >= rows ? fit : too_many) = rows;
  }
  return fit;
}

}  // namespace stagecoach
