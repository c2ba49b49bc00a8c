#include "coordinator/serve/metrics/bubble_window.h"

#include <algorithm>

namespace stagecoach {
namespace {

constexpr int64_t kKeptUs = 60000000, kGapUs = 100000;

}  // namespace

void BubbleWindow::Take(const pb::JobStatistics& statistics, int64_t now_us) {
  Point point = {.at_us = now_us, .prompt_rows = static_cast<double>(statistics.prefill_rows())};
  point.stages = statistics.stages_size();
  point.busy_s = statistics.busy_s() * point.stages;
  for (const pb::StageSummary& stage : statistics.stages()) point.compute_s += stage.compute_s();
  if (statistics.bubble_floor() < 1) point.ideal_s = point.compute_s / (1 - statistics.bubble_floor());
  // A job with other stages counts in another measure; so does a session that begins.
  if (!points_.empty() && (point.stages != points_.back().stages || point.busy_s < points_.back().busy_s ||
                           point.compute_s < points_.back().compute_s)) {
    points_.clear();
  }
  // The latest is always the latest; those before it are some way apart.
  if (points_.size() >= 2 && points_.back().at_us - points_[points_.size() - 2].at_us < kGapUs) points_.pop_back();
  points_.push_back(point);
  if (points_.size() >= 2) {
    const double rate = WorkBetween(points_[points_.size() - 2], point).rate();
    if (rate > 0) last_rate_ = rate;
  }
  while (points_.size() > 2 && points_[1].at_us <= now_us - kKeptUs) points_.pop_front();
}

const BubbleWindow::Point* BubbleWindow::Before(int64_t at_us) const {
  if (points_.size() < 2) return nullptr;
  // The latest point that is as old, or the oldest that there is.
  const auto younger =
      std::find_if(points_.begin(), points_.end() - 1, [at_us](const Point& point) { return point.at_us > at_us; });
  return younger == points_.begin() ? &points_.front() : &*(younger - 1);
}

double BubbleWindow::IdleShare(int64_t span_us, double Point::*time) const {
  const Point* before = points_.empty() ? nullptr : Before(points_.back().at_us - span_us);
  if (before == nullptr) return 0;
  const double time_s = points_.back().*time - before->*time;
  if (time_s <= 0) return 0;
  return std::clamp(1 - (points_.back().compute_s - before->compute_s) / time_s, 0.0, 1.0);
}

double BubbleWindow::Over(int64_t span_us) const { return IdleShare(span_us, &Point::busy_s); }
double BubbleWindow::FloorOver(int64_t span_us) const { return IdleShare(span_us, &Point::ideal_s); }

// An engine that had no other work was at these prompts as long as it was at anything.
BubbleWindow::PromptWork BubbleWindow::WorkBetween(const Point& before, const Point& after) {
  const double rows = after.prompt_rows - before.prompt_rows;
  if (rows <= 0 || after.stages == 0) return {};
  return {rows, (after.busy_s - before.busy_s) / after.stages};
}

double BubbleWindow::PromptRate(int64_t span_us, int64_t now_us) const {
  PromptWork sum;
  for (size_t i = 1; i < points_.size(); ++i) {
    if (points_[i].at_us <= now_us - span_us) continue;
    const PromptWork work = WorkBetween(points_[i - 1], points_[i]);
    sum.rows += work.rows;
    sum.seconds += work.seconds;
  }
  return sum.rate() > 0 ? sum.rate() : last_rate_;
}

}  // namespace stagecoach
