#include "coordinator/schedule/policy/throttled.h"

#include <algorithm>

#include "common/base/last_that_fits.h"

namespace stagecoach {

int64_t PrefillThrottle::Rows(const Load& load) const {
  if (!load.decoding) return kAllRows;
  if (!load.time.has_value() || load.waiting_rows == 0) return kThrottledLeastRows;
  const double room = std::max(0.0, (load.free_share - kReserved) / (1 - kReserved));
  const auto most = static_cast<int64_t>(static_cast<double>(most_rows_) * room);
  return std::max(int64_t{kThrottledLeastRows}, std::min(RowsByTime(load), most));
}

int64_t PrefillThrottle::RowsByTime(const Load& load) const {
  const int64_t spread = std::min(most_rows_, (load.waiting_rows + kTurns - 1) / kTurns);
  const int64_t good = RowsAtRate(*load.time, 0, kGoodRate);
  const int64_t rows = std::min(RowsInGap(load), std::max(spread, good));
  if (gap_us_ > 0) return rows;
  const double known = kRowsGrowth * std::max(load.time->most_rows, double{kThrottledLeastRows});
  return std::max(rows, std::min(RowsAtRate(*load.time, load.decode_rows, kLeastRate), static_cast<int64_t>(known)));
}

int64_t PrefillThrottle::RowsInGap(const Load& load) const {
  const StepTimeModel& time = *load.time;
  const double in_flight = load.micro_batches;
  double gap_us = gap_us_;
  if (gap_us <= 0) {
    const auto rows_of_step = static_cast<double>(load.step_rows);
    const double decode_us = in_flight * time.Us(rows_of_step, load.decode_pairs, rows_of_step);
    gap_us = kGapShare * std::max(kGapUs, kGapSteps * decode_us);
  }
  const double after_short_us = std::max(gap_us / (2 * in_flight - 1), kStepGrowth * load.shortest_us);
  const double most_us = std::min(gap_us / in_flight, after_short_us);
  const auto decode = static_cast<double>(load.decode_rows), history = static_cast<double>(load.history);
  return LastThatFits(0, most_rows_, [&](int64_t rows) {
    const auto prompt = static_cast<double>(rows);
    return time.MostUs(decode + prompt, load.decode_pairs + AttentionPairs(prompt, history), decode) <= most_us;
  });
}

// The price of a row, t(x) / x, falls with x as long as reading is most of it.
int64_t PrefillThrottle::RowsAtRate(const StepTimeModel& time, int64_t decode_rows, double share) const {
  const auto decode = static_cast<double>(decode_rows);
  const auto us = [&](int64_t rows) { return time.Us(static_cast<double>(decode_rows + rows), 0, decode); };
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

int64_t ThrottledPolicy::MostPromptRows(const PolicyDraft& draft, const NextPrompt& next) {
  const PolicyLoad load = draft.Load();
  double shortest_us = returned_us_;
  for (const double expected_us : expected_us_) shortest_us = std::min(shortest_us, expected_us);
  const auto decode_rows = static_cast<int64_t>(draft.batch.slices.size());
  const int64_t rows_of_group = (load.decoding + load.decode_groups - 1) / load.decode_groups;
  return throttle_.Rows({.waiting_rows = load.prompt_rows,
                         .free_share = load.free_share,
                         .decoding = load.decoding > 0 || load.first_tokens,
                         .decode_rows = decode_rows,
                         .decode_pairs = AttentionPairs(draft.batch),
                         .step_rows = std::max({int64_t{1}, decode_rows, rows_of_group}),
                         .history = next.history,
                         .micro_batches = std::max(micro_batches_, load.decode_groups),
                         .shortest_us = shortest_us,
                         .time = step_times_.time()});
}

void ThrottledPolicy::Submitted(const MicroBatch& batch) {
  const std::optional<StepTimeModel>& time = step_times_.time();
  expected_us_.push_back(time.has_value() ? time->Us(batch.rows(), AttentionPairs(batch), SampledRows(batch)) : 0);
}

void ThrottledPolicy::Confirmed() {
  returned_us_ = expected_us_.front();
  expected_us_.pop_front();
}

std::unique_ptr<SchedulingPolicy> MakePolicy(PolicyTag<Policy::kThrottled>, const PolicyOptions& options) {
  return std::make_unique<ThrottledPolicy>(options);
}

}  // namespace stagecoach
