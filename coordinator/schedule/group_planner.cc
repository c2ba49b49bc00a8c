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

// The same with a doubt about the last two, and none of the solution negative: a negative part is left out, and the
// others take what it explained.
std::array<double, 3> SolveNotNegative(std::array<std::array<double, 3>, 3> products, std::array<double, 3> values) {
  products[1][1] += kDoubt;
  products[2][2] += kDoubt;
  std::array<double, 3> solution{};
  for (int round = 0; round < 3; ++round) {
    solution = SolveThree(products, values);
    const auto least = static_cast<size_t>(std::min_element(solution.begin(), solution.end()) - solution.begin());
    if (solution[least] >= 0) break;
    for (size_t i = 0; i < 3; ++i) products[least][i] = products[i][least] = 0;
    values[least] = solution[least] = 0;
  }
  for (double& part : solution) part = std::max(part, 0.0);
  return solution;
}

}  // namespace

GroupPlanner::GroupPlanner(std::vector<int> host_of_stage, int32_t most_groups)
    : host_of_stage_(std::move(host_of_stage)),
      most_groups_(most_groups),
      costs_(host_of_stage_.size()),
      free_us_(host_of_stage_.size()),
      groups_(std::min(most_groups, static_cast<int32_t>(host_of_stage_.size()))) {
  CHECK_GE(most_groups, 1);
  CHECK(!host_of_stage_.empty());
  std::map<int, int> stages_of_host;
  for (const int host : host_of_stage_) ++stages_of_host[host];
  for (const int host : host_of_stage_) host_stages_.push_back(stages_of_host[host]);
}

void GroupPlanner::Confirmed(const Result& result) {
  const size_t stages = costs_.size();
  if (result.times.size() != stages) return;  // a pipeline without times
  if (result.prefill_rows == 0 && result.decode_rows > 0) {
    LearnOutside(result);
    const auto every = static_cast<int64_t>(1 + stages / kStagesAResult);
    if (++confirmed_ % every == 0) {
      constexpr double kKeep = 1 - 0.6931 / kMemory;
      Seen& seen = seen_[std::clamp(result.in_flight, 1, most_groups_)];
      seen.time_us.resize(stages);
      seen.rows_time_us.resize(stages);
      const auto rows = static_cast<double>(result.decode_rows);
      ++learned_;
      ++seen.results;
      seen.weight = seen.weight * kKeep + 1;
      seen.rows = seen.rows * kKeep + rows;
      seen.rows_squared = seen.rows_squared * kKeep + rows * rows;
      for (size_t stage = 0; stage < stages; ++stage) {
        const StageTimes& times = result.times[stage];
        const auto time_us = static_cast<double>(std::max<int64_t>(times.end_us - times.start_us, 0));
        seen.time_us[stage] = seen.time_us[stage] * kKeep + time_us;
        seen.rows_time_us[stage] = seen.rows_time_us[stage] * kKeep + rows * time_us;
      }
    }
  }
  for (size_t stage = 0; stage < stages; ++stage) free_us_[stage] = result.times[stage].end_us;
}

// What its micro-batch took beyond computing and waiting for a stage that computed another.
void GroupPlanner::LearnOutside(const Result& result) {
  int64_t outside_us = result.round_trip_us;
  for (size_t stage = 0; stage < costs_.size(); ++stage) {
    const StageTimes& times = result.times[stage];
    outside_us -= std::max<int64_t>(times.end_us - times.start_us, 0);
    outside_us -= std::max<int64_t>(std::min(free_us_[stage], times.start_us) - times.received_us, 0);
  }
  const auto outside = static_cast<double>(std::max<int64_t>(outside_us, 0));
  outside_us_ = outside_us_.value_or(outside) + (outside - outside_us_.value_or(outside)) / kNeeded;
}

double GroupPlanner::Overlap(size_t stage, int32_t in_flight) const {
  if (host_stages_[stage] == 1) return 0;  // so there are two stages at least
  return (host_stages_[stage] - 1) * std::min(1.0, (in_flight - 1.0) / (static_cast<double>(costs_.size()) - 1));
}

GroupPlanner::Cost GroupPlanner::Solve(size_t stage) const {
  std::array<std::array<double, 3>, 3> products{};
  std::array<double, 3> values{};
  for (const auto& [in_flight, seen] : seen_) {
    const double overlap = Overlap(stage, in_flight);
    products[0][0] += seen.weight;
    products[0][1] += seen.weight * overlap;
    products[0][2] += seen.rows;
    products[1][1] += seen.weight * overlap * overlap;
    products[1][2] += seen.rows * overlap;
    products[2][2] += seen.rows_squared;
    values[0] += seen.time_us[stage];
    values[1] += seen.time_us[stage] * overlap;
    values[2] += seen.rows_time_us[stage];
  }
  products[1][0] = products[0][1];
  products[2][0] = products[0][2];
  products[2][1] = products[1][2];
  const std::array<double, 3> solution = SolveNotNegative(products, values);
  return {solution[0], solution[1], solution[2]};
}

void GroupPlanner::Refit() {
  if (fitted_ == learned_) return;
  fitted_ = learned_;
  for (size_t stage = 0; stage < costs_.size(); ++stage) costs_[stage] = Solve(stage);
}

double GroupPlanner::Round(int64_t decoding, int32_t groups) const {
  const auto rows = static_cast<double>(decoding), largest = std::ceil(rows / groups);
  double slowest = 0, way = outside_us_.value_or(0);
  for (size_t stage = 0; stage < costs_.size(); ++stage) {
    const Cost& cost = costs_[stage];
    const double reading = cost.a + cost.g * Overlap(stage, groups);
    slowest = std::max(slowest, groups * reading + cost.b * rows);
    way += reading + cost.b * largest;
  }
  return std::max(slowest, way);
}

double GroupPlanner::BestRound(int64_t decoding, int32_t groups) const {
  double best_us = 0;
  for (const auto& [known, seen] : seen_) {
    if (known != groups && seen.results >= kNeeded && known <= decoding) {
      best_us = std::max(best_us, BestRound(decoding, known, groups));
    }
  }
  return best_us;
}

double GroupPlanner::BestRound(int64_t decoding, int32_t known, int32_t groups) const {
  const auto rows = static_cast<double>(decoding), largest = std::ceil(rows / known);
  double slowest = 0, way = outside_us_.value_or(0);
  for (size_t stage = 0; stage < costs_.size(); ++stage) {
    const Cost& cost = costs_[stage];
    const double step = cost.a + cost.g * Overlap(stage, known) + cost.b * largest;
    const double share = groups < known ? (1 + Overlap(stage, groups)) / (1 + Overlap(stage, known))
                                        : static_cast<double>(known) / groups;
    slowest = std::max(slowest, groups * step * share);
    way += step * share;
  }
  return std::max(slowest, way);
}

std::optional<double> GroupPlanner::RoundUs(int64_t decoding, int32_t groups) {
  if (learned_ < kNeeded) return std::nullopt;
  Refit();
  return Round(std::max<int64_t>(decoding, 1), groups);
}

bool GroupPlanner::Known(int32_t groups, int64_t results) const {
  const auto seen = seen_.find(groups);
  return seen != seen_.end() && seen->second.results >= results;
}

int32_t GroupPlanner::Groups(int64_t decoding) {
  decoding = std::max<int64_t>(decoding, 1);
  const auto most = static_cast<int32_t>(std::min<int64_t>(decoding, most_groups_));
  if (trial_.has_value() && TrialOver(decoding)) EndTrial();
  if (trial_.has_value()) return trial_->groups;
  if (learned_ >= planned_ + kRefit || 8 * std::abs(decoding - planned_for_) > planned_for_) Plan(decoding);
  return trial_.has_value() ? trial_->groups : std::min(groups_, most);
}

void GroupPlanner::Plan(int64_t decoding) {
  planned_ = learned_;
  planned_for_ = decoding;
  const auto most = static_cast<int32_t>(std::min<int64_t>(decoding, most_groups_));
  const int32_t now = std::min(groups_, most);
  if (!Known(now, kNeeded)) return;
  Refit();
  double best_us = Round(decoding, now) * (1 - kGain);
  std::optional<int32_t> best;
  for (const auto& [groups, seen] : seen_) {
    if (2 * groups < now || groups > std::min(2 * now, most)) continue;
    const double round_us = Round(decoding, groups);
    if (groups == now || !tried_.contains(groups) || round_us >= best_us) continue;
    best_us = round_us;
    best = groups;
  }
  if (best.has_value()) {
    tried_[now];  // it is as well known as what was tried
    tried_[*best].gap = tried_[now].gap = kTrialGap;
    groups_ = *best;
  } else {
    BeginTrial(decoding, now);
  }
}

void GroupPlanner::BeginTrial(int64_t decoding, int32_t now) {
  const auto most = static_cast<int32_t>(std::min<int64_t>({decoding, most_groups_, 2 * now}));
  double least_us = Round(decoding, now) * (1 - kGain);
  std::optional<int32_t> chosen;
  for (int32_t groups = (now + 1) / 2; groups <= most; ++groups) {
    if (groups == now) continue;
    if (const auto tried = tried_.find(groups); tried != tried_.end()) {
      const bool other_load = 2 * decoding >= 3 * tried->second.decoding || 3 * decoding <= 2 * tried->second.decoding;
      if (confirmed_ < tried->second.next && !other_load) continue;
    }
    const double round_us = BestRound(decoding, groups);
    if (round_us >= least_us) continue;
    least_us = round_us;
    chosen = groups;
  }
  if (!chosen.has_value()) return;
  const auto seen = seen_.find(*chosen);
  const int64_t wanted = std::max<int64_t>(kTrialRounds * *chosen, kTrialResults);
  // Groups come back and are cut anew before there are as many as wanted.
  trial_ = {*chosen, wanted + (seen == seen_.end() ? 0 : seen->second.results), confirmed_ + 2 * (now + wanted)};
  Tried& tried = tried_[*chosen];
  tried.gap = tried.next == 0 ? kTrialGap : std::min(2 * tried.gap, kLongestGap * kTrialGap);
  tried.next = confirmed_ + tried.gap;
  tried.decoding = decoding;
}

bool GroupPlanner::TrialOver(int64_t decoding) const {
  if (decoding < trial_->groups || confirmed_ >= trial_->until) return true;
  return Known(trial_->groups, trial_->seen_enough);
}

void GroupPlanner::EndTrial() {
  trial_.reset();
  planned_ = learned_ - kRefit;  // look at once at what it showed
}

}  // namespace stagecoach
