#include "coordinator/engine/bubble_meter.h"

#include <algorithm>

namespace stagecoach {

void BubbleMeter::Submitted(uint64_t number, int64_t now_us) {
  if (ready_us_.empty()) busy_since_us_ = now_us;
  ready_us_[number] = last_confirmed_us_;
}

void BubbleMeter::Confirmed(const StepResult& result, int64_t now_us) {
  const auto entry = ready_us_.find(result.number);
  if (entry == ready_us_.end()) return;
  double at = entry->second;
  ready_us_.erase(entry);
  for (const StageTimes& times : result.times) {
    const int64_t compute = std::max<int64_t>(0, times.end_us - times.start_us);
    compute_us_[times.stage] += compute;
    send_us_[times.stage] += times.send_us;
    at = std::max(at, stage_free_us_[times.stage]) + static_cast<double>(compute);
    stage_free_us_[times.stage] = at;
  }
  last_confirmed_us_ = at;
  if (ready_us_.empty()) busy_us_ += now_us - busy_since_us_;
}

double BubbleMeter::BubbleOf(double span_us) const {
  double compute = 0;
  for (const int64_t us : compute_us_) compute += static_cast<double>(us);
  const double total = span_us * static_cast<double>(compute_us_.size());
  return total > 0 ? std::clamp(1 - compute / total, 0.0, 1.0) : 0;
}

double BubbleMeter::Measured() const { return BubbleOf(static_cast<double>(busy_us_)); }
double BubbleMeter::Floor() const { return BubbleOf(last_confirmed_us_); }

}  // namespace stagecoach
