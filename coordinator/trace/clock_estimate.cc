#include "coordinator/trace/clock_estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stagecoach {
namespace {

constexpr int64_t kMomentUs = 250000;
constexpr int64_t kMostMoments = 2048;
constexpr double kReadingUs = 1;          // clocks are read to the microsecond, rounded down
constexpr double kMostOffsetUs = 0x1p58;  // nine thousand years: no clocks, and more would not fit their numbers
constexpr double kNever = std::numeric_limits<double>::infinity();

struct Edge {
  int from, to;
  double at_most;  // o_to - o_from
};

// The shortest paths from `source` along the edges, or against them. Absent with a negative cycle.
std::optional<std::vector<double>> ShortestPaths(int clocks, const std::vector<Edge>& edges, double less,
                                                 bool against) {
  constexpr double kRounding = 1e-6;
  std::vector<double> distance(static_cast<size_t>(clocks), kNever);
  distance[0] = 0;
  for (int round = 0; round <= clocks; ++round) {
    bool changed = false;
    for (const Edge& edge : edges) {
      const size_t a = static_cast<size_t>(against ? edge.to : edge.from);
      const size_t b = static_cast<size_t>(against ? edge.from : edge.to);
      const double through = distance[a] + edge.at_most - less;
      if (!(through < distance[b] - kRounding)) continue;
      distance[b] = through;
      changed = true;
    }
    if (!changed) return distance;
  }
  return std::nullopt;
}

// The least mean of a cycle through clock 0's reach (Karp 1978).
double MinimumMeanCycle(int clocks, const std::vector<Edge>& edges) {
  const size_t n = static_cast<size_t>(clocks);
  std::vector<std::vector<double>> walks(n + 1, std::vector<double>(n, kNever));  // of so many edges to each clock
  walks[0][0] = 0;
  for (size_t k = 1; k <= n; ++k) {
    for (const Edge& edge : edges) {
      double& best = walks[k][static_cast<size_t>(edge.to)];
      best = std::min(best, walks[k - 1][static_cast<size_t>(edge.from)] + edge.at_most);
    }
  }
  double least = kNever;
  for (size_t v = 0; v < n; ++v) {
    if (walks[n][v] == kNever) continue;
    double most = -kNever;
    for (size_t k = 0; k < n; ++k) {
      if (walks[k][v] != kNever) most = std::max(most, (walks[n][v] - walks[k][v]) / static_cast<double>(n - k));
    }
    least = std::min(least, most);
  }
  return least;
}

struct Moment {
  std::vector<double> offset, error;  // [clocks]
};

std::optional<Moment> EstimateMoment(int clocks, const std::vector<Edge>& edges) {
  const auto upper = ShortestPaths(clocks, edges, 0, false), lower = ShortestPaths(clocks, edges, 0, true);
  if (!upper.has_value() || !lower.has_value()) return std::nullopt;
  // A hair less, so that rounding makes no cycle negative.
  const double hop_us = std::max(0.0, MinimumMeanCycle(clocks, edges) - 1e-3);
  const auto high = ShortestPaths(clocks, edges, hop_us, false), low = ShortestPaths(clocks, edges, hop_us, true);
  Moment moment;
  for (size_t c = 0; c < upper->size(); ++c) {
    if ((*upper)[c] == kNever || (*lower)[c] == kNever) return std::nullopt;
    const bool even = high.has_value() && low.has_value();
    const double offset = even ? ((*high)[c] - (*low)[c]) / 2 : ((*upper)[c] - (*lower)[c]) / 2;
    if (std::abs(offset) > kMostOffsetUs) return std::nullopt;
    moment.offset.push_back(offset);
    moment.error.push_back(std::max((*upper)[c] - offset, offset + (*lower)[c]));
  }
  return moment;
}

}  // namespace

double ClockCurve::At(int64_t first_clock_us) const {
  if (offset_us.empty()) return 0;
  const double place = static_cast<double>(first_clock_us - first_us) / static_cast<double>(step_us);
  const double last = static_cast<double>(offset_us.size() - 1);
  const double at = std::clamp(place, 0.0, last);
  const size_t before = std::min(static_cast<size_t>(at), offset_us.size() - 1);
  const size_t after = std::min(before + 1, offset_us.size() - 1);
  return offset_us[before] + (offset_us[after] - offset_us[before]) * (at - static_cast<double>(before));
}

int64_t ClockCurve::ToFirst(int64_t us) const {
  if (offset_us.empty()) return us;
  int64_t first = us - std::llround(offset_us.front());
  for (int i = 0; i < 3; ++i) first = us - std::llround(At(first));  // the offset changes by little in so short a time
  return first;
}

HopBounds::HopBounds(int from, int to, int64_t first_us, int64_t last_us, double drift_ppm)
    : from_(from), to_(to), first_us_(first_us), drift_ppm_(drift_ppm) {
  const int64_t span_us = std::max<int64_t>(last_us - first_us, 0);
  step_us_ = std::max(kMomentUs, span_us / kMostMoments + 1);
  near_.assign(static_cast<size_t>(span_us / step_us_ + 2), kNever);
}

void HopBounds::Add(int64_t at_us, int64_t gap_us) {
  const int64_t last = static_cast<int64_t>(near_.size()) - 1;
  const int64_t before = std::clamp<int64_t>((at_us - first_us_) / step_us_, 0, last - 1);
  for (const int64_t moment : {before, before + 1}) {
    const double distance_us = std::abs(static_cast<double>(at_us - first_us_ - moment * step_us_));
    double& near = near_[static_cast<size_t>(moment)];
    near = std::min(near, static_cast<double>(gap_us) + kReadingUs + distance_us * drift_ppm_ * 1e-6);
  }
}

std::vector<double> HopBounds::AtMost() const {
  std::vector<double> bounds = near_;
  const double drift_us = static_cast<double>(step_us_) * drift_ppm_ * 1e-6;
  for (size_t i = 1; i < bounds.size(); ++i) bounds[i] = std::min(bounds[i], bounds[i - 1] + drift_us);
  for (size_t i = bounds.size() - 1; i > 0; --i) bounds[i - 1] = std::min(bounds[i - 1], bounds[i] + drift_us);
  return bounds;
}

std::optional<std::vector<ClockCurve>> EstimateClocks(int clocks, absl::Span<const HopBounds> hops) {
  std::vector<ClockCurve> curves(static_cast<size_t>(clocks));
  if (clocks <= 1) return curves;
  std::vector<std::vector<double>> bounds;
  for (const HopBounds& hop : hops) bounds.push_back(hop.AtMost());
  for (size_t i = 0; i < bounds.front().size(); ++i) {
    std::vector<Edge> edges;
    for (size_t h = 0; h < hops.size(); ++h) {
      if (hops[h].from() != hops[h].to()) edges.push_back({hops[h].from(), hops[h].to(), bounds[h][i]});
    }
    const std::optional<Moment> moment = EstimateMoment(clocks, edges);
    if (!moment.has_value()) return std::nullopt;
    for (size_t c = 1; c < curves.size(); ++c) {
      curves[c].offset_us.push_back(moment->offset[c]);
      curves[c].error_us = std::max(curves[c].error_us, moment->error[c]);
    }
  }
  // Between two moments a clock may have drifted away from the line through them and back.
  const HopBounds& hop = hops.front();
  const double between_us = static_cast<double>(hop.step_us()) / 2 * hop.drift_ppm() * 1e-6;
  for (size_t c = 1; c < curves.size(); ++c) {
    curves[c].first_us = hop.first_us();
    curves[c].step_us = hop.step_us();
    curves[c].error_us += between_us;
  }
  return curves;
}

}  // namespace stagecoach
