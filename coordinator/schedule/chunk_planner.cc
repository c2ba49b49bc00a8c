#include "coordinator/schedule/chunk_planner.h"

#include <algorithm>
#include <cmath>

#include "common/job/job_choices.h"
#include "coordinator/schedule/policy/step_time.h"

namespace stagecoach {

void ChunkPlanner::Add(const MicroBatch& batch, int64_t slowest_us) {
  const bool has_chunk =
      std::any_of(batch.slices.begin(), batch.slices.end(), [](const SequenceSlice& slice) { return slice.count > 1; });
  if (!has_chunk) return;
  const auto most = static_cast<double>(most_rows_);
  const double pairs = AttentionPairs(batch), rows = static_cast<double>(batch.rows());
  fit_.Add({pairs / (most * most), rows / most, 1}, static_cast<double>(slowest_us));
  if (fit_.seen() < kNeeded) return;
  const auto [attention, row, fixed] = fit_.Solve();
  cost_ = Cost{.attention_us = attention / (most * most), .row_us = row / most, .fixed_us = fixed};
}

int64_t ChunkPlanner::Rows(int64_t history) const {
  if (!cost_.has_value() || cost_->attention_us <= 0) return most_rows_;
  const auto most = static_cast<double>(most_rows_);
  const double a = cost_->attention_us, slope = 2 * a * static_cast<double>(history) + cost_->row_us;
  const double time_us = a * most * most + cost_->row_us * most;
  // x as above, in the form that does not subtract what is nearly equal.
  const double rows = 2 * time_us / (slope + std::sqrt(slope * slope + 4 * a * time_us));
  if (rows >= most - 0.5) return most_rows_;
  const int64_t aligned = static_cast<int64_t>(rows) / kStep * kStep;
  return std::min(most_rows_, std::max<int64_t>(aligned, kEqualTimeLeastRows));
}

}  // namespace stagecoach
