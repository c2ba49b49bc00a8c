#include "coordinator/schedule/prefill_throttle.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {
namespace {

// Of the numbers above `low` up to `high`, the last one before `fits` no longer holds; `low` where it holds of none.
template <typename Fits>
int64_t LastThatFits(int64_t low, int64_t high, const Fits& fits) {
  while (low < high) {
    const int64_t middle = high - (high - low) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

int64_t PrefillThrottle::Rows(const Load& load) const {
  if (!load.decoding) return kNoLimit;
  if (!load.time.has_value() || load.waiting_rows == 0) return least_rows();
  const double room = std::max(0.0, (load.free_share - kReserved) / (1 - kReserved));
  const auto most = static_cast<int64_t>(static_cast<double>(most_rows_) * room);
  return std::max(least_rows(), std::min(RowsByTime(load), most));
}

int64_t PrefillThrottle::RowsByTime(const Load& load) const {
  const int64_t spread = std::min(most_rows_, (load.waiting_rows + kTurns - 1) / kTurns);
  const int64_t good = RowsAtRate(*load.time, 0, kGoodRate);
  const int64_t rows = std::min(RowsInGap(load), std::max(spread, good));
  if (gap_us_ > 0) return rows;
  const double known = kRowsGrowth * std::max(load.time->most_rows, static_cast<double>(least_rows()));
  return std::max(rows, std::min(RowsAtRate(*load.time, load.decode_rows, kLeastRate), static_cast<int64_t>(known)));
}

int64_t PrefillThrottle::RowsInGap(const Load& load) const {
  const StepTimeModel& time = *load.time;
  const double in_flight = load.micro_batches;
  double gap_us = gap_us_;
  if (gap_us <= 0) {
    const double decode_us = in_flight * time.Us(static_cast<double>(load.step_rows), load.decode_pairs);
    gap_us = kGapShare * std::max(kGapUs, kGapSteps * decode_us);
  }
  const double after_short_us = std::max(gap_us / (2 * in_flight - 1), kStepGrowth * load.shortest_us);
  const double most_us = std::min(gap_us / in_flight, after_short_us);
  const auto decode = static_cast<double>(load.decode_rows), history = static_cast<double>(load.history);
  return LastThatFits(0, most_rows_, [&](int64_t rows) {
    const auto prompt = static_cast<double>(rows);
    return time.MostUs(decode + prompt, load.decode_pairs + AttentionPairs(prompt, history)) <= most_us;
  });
}

// The price of a row, t(x) / x, falls with x as long as reading is most of it.
int64_t PrefillThrottle::RowsAtRate(const StepTimeModel& time, int64_t decode_rows, double share) const {
  const auto us = [&](int64_t rows) { return time.Us(static_cast<double>(decode_rows + rows), 0); };
  int64_t best = most_rows_;
  double price_us = us(best) / static_cast<double>(best);
  for (int64_t rows = most_rows_ / 2; rows > 0; rows /= 2) {
    const double price_of_fewer_us = us(rows) / static_cast<double>(rows);
    if (price_of_fewer_us >= price_us) break;
    best = rows;
    price_us = price_of_fewer_us;
  }
  const auto too_dear = [&](int64_t rows) { return share * us(rows) > price_us * static_cast<double>(rows); };
  return LastThatFits(0, best, too_dear) + 1;
}

}  // namespace stagecoach
