#include "coordinator/engine/bubble_meter.h"

#include <algorithm>

namespace stagecoach {
namespace {

constexpr int64_t kMostUs = INT64_MAX / 2;

void Add(int64_t us, int64_t* sum) { *sum = std::min(*sum + std::min(us, kMostUs), kMostUs); }

}  // namespace

void BubbleMeter::Submitted(uint64_t number, int64_t now_us) {
  if (first_submitted_us_ < 0) first_submitted_us_ = now_us;
  if (in_flight_.empty()) busy_since_us_ = now_us;
  in_flight_[number] = {now_us, last_confirmed_us_};
}

void BubbleMeter::Confirmed(const StepResult& result, int64_t now_us, double void_share) {
  const auto entry = in_flight_.find(result.number);
  if (entry == in_flight_.end()) return;
  double at = entry->second.ready_us;
  const int64_t most_compute_us = now_us - entry->second.submitted_us;
  const int64_t most_send_us = now_us - first_submitted_us_;  // it is of an earlier micro-batch
  in_flight_.erase(entry);
  for (const StageTimes& times : result.times) {
    Stage& stage = stages_[times.stage];
    const int64_t compute = std::clamp<int64_t>(times.end_us - times.start_us, 0, most_compute_us);
    Add(compute, &stage.compute_us);
    Add(std::llround(static_cast<double>(std::min(compute, kMostUs)) * void_share), &stage.void_us);
    const bool told_before = times.send_start_us != 0 && times.send_start_us == stage.send_start_us;
    if (!told_before) Sent(times.send_start_us, std::clamp<int64_t>(times.send_us, 0, most_send_us), &stage);
    stage.send_start_us = times.send_start_us;
    at = stage.free_us = std::max(at, stage.free_us) + static_cast<double>(compute);
  }
  last_confirmed_us_ = at;
  if (in_flight_.empty()) busy_us_ += now_us - busy_since_us_;
}

void BubbleMeter::Sent(int64_t start_us, int64_t us, Stage* stage) {
  if (start_us == 0) return;  // there was none
  // Sends of queued frames overlap: the time of both is counted once.
  const int64_t end_us = start_us + us;
  Add(std::clamp<int64_t>(end_us - stage->sent_until_us, 0, us), &stage->send_us);
  stage->sent_until_us = std::max(stage->sent_until_us, end_us);
  stage->hop_us += (static_cast<double>(us) - stage->hop_us) / (stage->hop_us == 0 ? 1 : 8);
}

double BubbleMeter::BubbleOf(double span_us) const {
  double work = 0;
  for (const Stage& stage : stages_) work += static_cast<double>(stage.compute_us - stage.void_us);
  const double total = span_us * static_cast<double>(stages_.size());
  return total > 0 ? std::clamp(1 - work / total, 0.0, 1.0) : 0;
}

int64_t BubbleMeter::busy_us(int64_t now_us) const {
  return busy_us_ + (in_flight_.empty() ? 0 : now_us - busy_since_us_);
}

double BubbleMeter::Measured(int64_t now_us) const { return BubbleOf(static_cast<double>(busy_us(now_us))); }
double BubbleMeter::Floor() const { return BubbleOf(last_confirmed_us_); }

}  // namespace stagecoach
