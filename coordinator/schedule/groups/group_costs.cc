#include "coordinator/schedule/groups/group_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "common/base/check.h"
#include "coordinator/schedule/policy/least_squares.h"

namespace stagecoach {
namespace {

// What is taken for known of a, g and b before results tell: a fit with one number of rows invents no slopes.
constexpr std::array<double, 3> kDoubt = {0, 0.5, 0.5};

constexpr double kErrors = 2;          // standard errors
constexpr double kOutsideMemory = 16;  // results
constexpr double kRowsMemory = 4096;   // results that tell nothing of b in which half of it is forgotten

std::vector<int> StagesOfHost(const std::vector<int>& host_of_stage) {
  std::map<int, int> stages;
  for (const int host : host_of_stage) ++stages[host];
  std::vector<int> host_stages;
  host_stages.reserve(host_of_stage.size());
  for (const int host : host_of_stage) host_stages.push_back(stages[host]);
  return host_stages;
}

// A time that a stage says, believed no more than there was.
int64_t CappedByRoundTrip(int64_t us, const GroupCosts::Result& result) {
  return std::clamp<int64_t>(us, 0, std::max<int64_t>(result.round_trip_us, 0));
}

}  // namespace

GroupCosts::GroupCosts(const std::vector<int>& host_of_stage, ReadCurve reads, double idle_us)
    : host_stages_(StagesOfHost(host_of_stage)),
      shares_hosts_(std::any_of(host_stages_.begin(), host_stages_.end(), [](int stages) { return stages > 1; })),
      reads_(reads),
      idle_us_(idle_us),
      latest_(host_of_stage.size()),
      costs_(host_of_stage.size()),
      prompt_us_(host_of_stage.size()),
      free_us_(host_of_stage.size()) {
  CHECK(!host_of_stage.empty());
}

void GroupCosts::Seen::Scale(double part) {
  for (double* sum : {&weight, &rows, &rows_squared, &reads, &reads_squared, &reads_rows, &outside_us}) *sum *= part;
  for (std::vector<double>* sums : {&time_us, &reads_time_us, &rows_time_us, &time_squared}) {
    for (double& sum : *sums) sum *= part;
  }
}

bool GroupCosts::Confirmed(const Result& result) {
  CHECK_EQ(result.times.size(), host_stages_.size());
  const bool teaches = result.prefill_rows == 0 && result.decode_rows > 0 && result.void_rows == 0;
  if (teaches) Learn(result);
  const auto rows = static_cast<double>(result.prefill_rows + result.decode_rows);
  if (result.prefill_rows > 0 && rows > prompt_rows_) {
    prompt_rows_ = rows;
    for (size_t stage = 0; stage < prompt_us_.size(); ++stage) {
      const StageTimes& times = result.times[stage];
      prompt_us_[stage] = static_cast<double>(CappedByRoundTrip(times.end_us - times.start_us, result));
    }
  }
  for (size_t stage = 0; stage < free_us_.size(); ++stage) free_us_[stage] = result.times[stage].end_us;
  return teaches;
}

void GroupCosts::Learn(const Result& result) {
  Seen& seen = seen_.try_emplace(std::max(result.in_flight, 1), host_stages_.size()).first->second;
  const double outside_us = OutsideOf(result);
  outside_us_ = outside_us_.value_or(outside_us) + (outside_us - outside_us_.value_or(outside_us)) / kOutsideMemory;
  for (Seen* sums : {&seen, &latest_}) Learn(result, outside_us, sums);
  beside_ += result.in_flight > 1 ? 1 : 0;
  fitted_ = false;
}

void GroupCosts::Learn(const Result& result, double outside_us, Seen* seen) {
  static const double keep = std::exp2(-1.0 / kMemory);
  const auto rows = static_cast<double>(result.decode_rows);
  const double reads = reads_.Of(rows);
  seen->Scale(keep);
  ++seen->results;
  seen->weight += 1;
  seen->rows += rows;
  seen->rows_squared += rows * rows;
  seen->reads += reads;
  seen->reads_squared += reads * reads;
  seen->reads_rows += reads * rows;
  seen->outside_us += outside_us;
  for (size_t stage = 0; stage < host_stages_.size(); ++stage) {
    const StageTimes& times = result.times[stage];
    const auto time_us = static_cast<double>(CappedByRoundTrip(times.end_us - times.start_us, result));
    seen->time_us[stage] += time_us;
    seen->reads_time_us[stage] += reads * time_us;
    seen->rows_time_us[stage] += rows * time_us;
    seen->time_squared[stage] += time_us * time_us;
  }
  visits_ += host_stages_.size();
}

// What its micro-batch took beyond computing and waiting for a stage that computed another.
double GroupCosts::OutsideOf(const Result& result) const {
  double outside_us = static_cast<double>(result.round_trip_us);
  for (size_t stage = 0; stage < free_us_.size(); ++stage) {
    const StageTimes& times = result.times[stage];
    outside_us -= static_cast<double>(CappedByRoundTrip(times.end_us - times.start_us, result));
    outside_us -=
        static_cast<double>(CappedByRoundTrip(std::min(free_us_[stage], times.start_us) - times.received_us, result));
  }
  return std::max(outside_us, 0.0);
}

int64_t GroupCosts::results(int32_t in_flight) const {
  const auto seen = seen_.find(in_flight);
  return seen == seen_.end() ? 0 : seen->second.results;
}

void GroupCosts::Fade(int32_t in_flight) {
  const auto found = seen_.find(in_flight);
  if (found == seen_.end() || found->second.weight <= 1) return;
  found->second.Scale(1 / found->second.weight);
  found->second.weight = 1;
  fitted_ = false;
}

double GroupCosts::Share(int32_t in_flight) const {
  return stages() == 1 ? 0 : std::min(1.0, (in_flight - 1.0) / (stages() - 1.0));
}

void GroupCosts::Refit() {
  if (fitted_) return;
  fitted_ = true;
  // Results of one number of rows say nothing of b: then it stays, for the most part, what it was. Forgotten as fast as
  // all else, it was found out anew every 600 results, by micro-batches that took twice as long.
  const bool first = fitted_results_ == 0;
  const double rows_doubt =
      kDoubt[2] * std::exp2(-static_cast<double>(latest_.results - fitted_results_) / kRowsMemory);
  fitted_results_ = latest_.results;
  // The features of all stages of a host are alike, and those of a host with k others k times those with one.
  LeastSquares<3> shared;  // the features alone, with an overlap of Share()
  std::vector<std::array<double, 3>> with_time(host_stages_.size());
  for (const auto& [in_flight, seen] : seen_) {
    const double share = Share(in_flight);
    shared.products[0][0] += seen.reads_squared;
    shared.products[0][1] += seen.reads_squared * share;
    shared.products[0][2] += seen.reads_rows;
    shared.products[1][1] += seen.reads_squared * share * share;
    shared.products[1][2] += seen.reads_rows * share;
    shared.products[2][2] += seen.rows_squared;
    for (size_t stage = 0; stage < with_time.size(); ++stage) {
      with_time[stage][0] += seen.reads_time_us[stage];
      with_time[stage][1] += seen.reads_time_us[stage] * share;
      with_time[stage][2] += seen.rows_time_us[stage];
    }
    visits_ += with_time.size();
  }
  for (size_t stage = 0; stage < with_time.size(); ++stage) {
    const std::array<double, 3> factor = {1, host_stages_[stage] - 1.0, 1};
    LeastSquares<3> sums;
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) {
        sums.products[i][j] = shared.products[std::min(i, j)][std::max(i, j)] * factor[i] * factor[j];
      }
      sums.with_value[i] = with_time[stage][i] * factor[i];
    }
    sums.with_value[2] += rows_doubt * (first ? RowOfPrompt(stage) : costs_[stage].b);
    const std::array<double, 3> solution = sums.Solve(kDoubt);
    costs_[stage] = {solution[0], solution[1], solution[2]};
  }
}

double GroupCosts::RowOfPrompt(size_t stage) const {
  const double rows = latest_.rows / latest_.weight, reads = latest_.reads / latest_.weight;
  if (prompt_rows_ <= rows) return 0;
  const double reading_us = latest_.time_us[stage] / latest_.weight * reads_.Of(prompt_rows_) / reads;
  return std::max(0.0, (prompt_us_[stage] - reading_us) / (prompt_rows_ - rows));
}

template <typename Reading>
double GroupCosts::RoundOf(int64_t decoding, int32_t groups, double largest, double outside_us,
                           const Reading& reading) const {
  const auto rows = static_cast<double>(decoding);
  const double reads = reads_.Of(rows / groups), reads_of_largest = reads_.Of(largest);
  double slowest = 0, way = outside_us;
  for (size_t stage = 0; stage < costs_.size(); ++stage) {
    const double b = costs_[stage].b, reading_us = reading(stage);
    slowest = std::max(slowest, groups * reading_us * reads + b * rows);
    way += reading_us * reads_of_largest + b * largest;
  }
  visits_ += costs_.size();
  return std::max(slowest, way);
}

double GroupCosts::OwnReading(const Seen& seen, size_t stage) const {
  return std::max(0.0, (seen.time_us[stage] - costs_[stage].b * seen.rows) / seen.reads);
}

double GroupCosts::RoundUs(int64_t decoding, int32_t groups) const {
  const auto seen = seen_.find(groups);
  const double largest = std::ceil(static_cast<double>(decoding) / groups);
  return RoundOf(decoding, groups, largest, outside_us_.value_or(0), [&](size_t stage) {
    if (seen != seen_.end()) return OwnReading(seen->second, stage);
    return costs_[stage].a + costs_[stage].g * Overlap(stage, groups);
  });
}

double GroupCosts::LoopUs(int64_t rows, int32_t in_flight, int64_t largest, Beside beside) const {
  return RoundOf(rows, in_flight, static_cast<double>(largest), LoopOutside(in_flight, beside),
                 [&](size_t stage) { return LoopReading(stage, in_flight, beside); });
}

double GroupCosts::LoopReading(size_t stage, int32_t in_flight, Beside beside) const {
  if (host_stages_[stage] == 1 && latest_.results > 0) return OwnReading(latest_, stage);
  const Cost& cost = costs_[stage];
  if (beside == Beside::kAlone) return cost.a;
  const auto seen = seen_.find(in_flight);
  if (seen != seen_.end() && seen->second.results >= kOwnNeeded) return OwnReading(seen->second, stage);
  const double turns = beside_ < kNeeded ? std::max(0.0, cost.a - idle_us_) : 0;
  return cost.a + std::max(cost.g, turns) * Overlap(stage, in_flight);
}

double GroupCosts::LoopOutside(int32_t in_flight, Beside beside) const {
  const auto seen = seen_.find(in_flight);
  const bool own = seen != seen_.end() && seen->second.results >= kOwnNeeded;
  if (!own || !shares_hosts_ || beside == Beside::kAlone) return outside_us_.value_or(0);
  return seen->second.outside_us / seen->second.weight;
}

double GroupCosts::LeastRoundUs(int64_t decoding, int32_t groups, int32_t now, bool own) const {
  double least_us = 0;
  const auto take = [&](const SeenOf::value_type& known) {
    least_us = std::max(least_us, LeastRoundBy(known, decoding, groups));
  };
  const auto is_known = [&](const SeenOf::value_type& seen) {
    return seen.second.results >= kNeeded && seen.first <= decoding;
  };
  if (const auto at = seen_.find(now); at != seen_.end() && now != groups) take(*at);
  if (const auto at = seen_.find(groups); own && at != seen_.end()) take(*at);
  const auto larger = std::find_if(seen_.upper_bound(groups), seen_.end(), is_known);
  if (larger != seen_.end() && larger->first != now) take(*larger);
  const auto smaller = std::find_if(std::make_reverse_iterator(seen_.lower_bound(groups)), seen_.rend(), is_known);
  if (smaller != seen_.rend() && smaller->first != now) take(*smaller);
  return least_us;
}

double GroupCosts::LeastRoundBy(const SeenOf::value_type& known, int64_t decoding, int32_t groups) const {
  const Seen& seen = known.second;
  const double mean_rows = seen.rows / seen.weight, mean_reads = seen.reads / seen.weight;
  const double rows_spread = std::max(0.0, seen.rows_squared - seen.rows * mean_rows);  // summed squares about the mean
  const auto rows = static_cast<double>(decoding), largest = std::ceil(rows / groups);
  const double reads = reads_.Of(rows / groups) / mean_reads, reads_of_largest = reads_.Of(largest) / mean_reads;
  double slowest = 0, way = outside_us_.value_or(0);
  for (size_t stage = 0; stage < host_stages_.size(); ++stage) {
    const double mean_us = seen.time_us[stage] / seen.weight;
    const double covariance = seen.rows_time_us[stage] - seen.rows * mean_us;
    const double line = rows_spread > 0 ? covariance / rows_spread : 0;
    const double unexplained = seen.time_squared[stage] - seen.time_us[stage] * mean_us - line * covariance;
    const double noise = std::max(std::sqrt(std::max(0.0, unexplained) / seen.weight), kLeastNoise * mean_us);
    const double error_us = known.first == groups ? kErrors * noise / std::sqrt(seen.weight) : 0;
    const double least_us = std::max(0.0, mean_us - error_us);
    const double most_b = least_us / mean_rows;
    const double reads_line = least_us * reads_.Slope(mean_rows) / mean_reads;  // if nothing but reading takes time
    const double least_b =
        rows_spread > 0 ? std::clamp(line - reads_line - kErrors * noise / std::sqrt(rows_spread), 0.0, most_b) : 0;
    const double share = groups < known.first ? (1 + Overlap(stage, groups)) / (1 + Overlap(stage, known.first)) : 1.0;
    const double b = rows / groups >= share * reads * mean_rows ? least_b : most_b;
    const double reading = share * (least_us - b * mean_rows);
    slowest = std::max(slowest, groups * reading * reads + b * rows);
    way += reading * reads_of_largest + b * largest;
  }
  visits_ += host_stages_.size();
  return std::max(slowest, way);
}

}  // namespace stagecoach
