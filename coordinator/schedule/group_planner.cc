#include "coordinator/schedule/group_planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"

namespace stagecoach {
namespace {

// What is taken for known of g and b before there are results that tell: as much as this many observations that say
// nothing. It keeps a fit with one number of rows from inventing slopes.
constexpr double kDoubt = 0.5;

// Solves a 3 x 3 system by Gaussian elimination with pivots; singular directions give 0.
std::array<double, 3> SolveThree(std::array<std::array<double, 3>, 3> m, std::array<double, 3> v) {
  for (size_t column = 0; column < 3; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < 3; ++row) {
      if (std::abs(m[row][column]) > std::abs(m[pivot][column])) pivot = row;
    }
    std::swap(m[column], m[pivot]);
    std::swap(v[column], v[pivot]);
    if (std::abs(m[column][column]) < 1e-9) continue;
    for (size_t row = 0; row < 3; ++row) {
      if (row == column) continue;
      const double factor = m[row][column] / m[column][column];
      for (size_t i = column; i < 3; ++i) m[row][i] -= factor * m[column][i];
      v[row] -= factor * v[column];
    }
  }
  std::array<double, 3> solution{};
  for (size_t i = 0; i < 3; ++i) solution[i] = std::abs(m[i][i]) < 1e-9 ? 0 : v[i] / m[i][i];
  return solution;
}

}  // namespace

void GroupPlanner::Fit::Add(double overlap, double rows, double time_us) {
  const double keep = std::exp2(-1.0 / kMemory);
  const std::array<double, 3> features = {1, overlap, rows};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) products[i][j] = products[i][j] * keep + features[i] * features[j];
    with_time[i] = with_time[i] * keep + features[i] * time_us;
  }
  ++seen;
}

std::array<double, 3> GroupPlanner::Fit::Solve() const {
  // A negative part is left out, and the others take what it explained.
  std::array<bool, 3> used = {true, true, true};
  std::array<double, 3> solution{};
  for (int round = 0; round < 3; ++round) {
    auto m = products;
    auto v = with_time;
    m[1][1] += kDoubt;
    m[2][2] += kDoubt;
    for (size_t i = 0; i < 3; ++i) {
      if (used[i]) continue;
      for (size_t j = 0; j < 3; ++j) m[i][j] = m[j][i] = 0;
      v[i] = 0;
    }
    solution = SolveThree(m, v);
    const auto least = std::min_element(solution.begin(), solution.end());
    if (*least >= 0) break;
    used[static_cast<size_t>(least - solution.begin())] = false;
    *least = 0;
  }
  for (double& part : solution) part = std::max(part, 0.0);
  return solution;
}

GroupPlanner::GroupPlanner(std::vector<int> host_of_stage, int32_t most_groups)
    : host_of_stage_(std::move(host_of_stage)),
      most_groups_(most_groups),
      fits_(host_of_stage_.size()),
      groups_(most_groups) {
  CHECK_GE(most_groups, 1);
  for (const int host : host_of_stage_) {
    host_stages_.push_back(static_cast<int>(std::count(host_of_stage_.begin(), host_of_stage_.end(), host)));
  }
}

void GroupPlanner::Confirmed(int64_t decode_rows, int64_t prefill_rows, absl::Span<const StageTimes> times,
                             int64_t outside_us) {
  if (times.size() != fits_.size()) return;  // a pipeline without times
  recent_.push_back({decode_rows, prefill_rows, {times.begin(), times.end()}});
  // Waits in queues come on top of what a hop takes, so the least of late tells most.
  const double outside = static_cast<double>(std::max<int64_t>(outside_us, 0));
  outside_us_ = outside_us_ == 0 ? outside : std::min(outside, outside_us_ * (1 + 1.0 / kMemory));
  const size_t reach = static_cast<size_t>(most_groups_);
  while (learned_ + reach < recent_.size()) Learn(recent_[learned_++]);
  while (learned_ > reach) {
    recent_.pop_front();
    --learned_;
  }
}

// On average over the time of a step: how many other stages of its host computed. Stages of one host have one clock.
double GroupPlanner::OverlapOf(size_t stage, const StageTimes& times) const {
  const int64_t begin = times.start_us, end = times.end_us;
  if (end <= begin) return 0;
  int64_t beside_us = 0;
  for (const Seen& seen : recent_) {
    for (size_t other = 0; other < seen.times.size(); ++other) {
      if (other == stage || host_of_stage_[other] != host_of_stage_[stage]) continue;
      const int64_t from = std::max(begin, seen.times[other].start_us), to = std::min(end, seen.times[other].end_us);
      beside_us += std::max<int64_t>(to - from, 0);
    }
  }
  return static_cast<double>(beside_us) / static_cast<double>(end - begin);
}

void GroupPlanner::Learn(const Seen& seen) {
  if (seen.prefill_rows > 0 || seen.decode_rows == 0) return;
  for (size_t stage = 0; stage < fits_.size(); ++stage) {
    const StageTimes& times = seen.times[stage];
    const double overlap = host_stages_[stage] > 1 ? OverlapOf(stage, times) : 0;
    fits_[stage].Add(overlap, static_cast<double>(seen.decode_rows),
                     static_cast<double>(std::max<int64_t>(times.end_us - times.start_us, 0)));
  }
}

std::optional<double> GroupPlanner::RoundUs(int64_t decoding, int32_t groups) const {
  const double stages = static_cast<double>(fits_.size());
  const double rows = std::ceil(static_cast<double>(decoding) / groups);
  const double busy = fits_.size() > 1 ? std::min(1.0, (groups - 1) / (stages - 1)) : 0;
  double slowest = 0, all = 0;
  for (size_t stage = 0; stage < fits_.size(); ++stage) {
    if (fits_[stage].seen < kNeeded) return std::nullopt;
    const std::array<double, 3> fit = fits_[stage].Solve();
    const double time = fit[0] + fit[1] * (host_stages_[stage] - 1) * busy + fit[2] * rows;
    slowest = std::max(slowest, time);
    all += time;
  }
  return std::max(slowest * groups, all + outside_us_);
}

int32_t GroupPlanner::Groups(int64_t decoding) {
  const auto most = static_cast<int32_t>(std::clamp<int64_t>(decoding, 1, most_groups_));
  const std::optional<double> now = RoundUs(std::max<int64_t>(decoding, 1), std::min(groups_, most));
  if (!now.has_value()) return std::min(groups_, most);
  double best_us = *now * (1 - kGain);
  for (int32_t groups = 1; groups <= most; ++groups) {
    const double round_us = *RoundUs(std::max<int64_t>(decoding, 1), groups);
    if (round_us >= best_us) continue;
    best_us = round_us;
    groups_ = groups;
  }
  return std::min(groups_, most);
}

}  // namespace stagecoach
