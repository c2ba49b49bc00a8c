#include "coordinator/report/chart/axis_scale.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

// Beyond these nothing was measured, and differences would overflow.
constexpr double kMostMagnitude = 1e15, kLeastMagnitude = 1e-12;

double Clamped(ScaleKind kind, double value) {
  return std::clamp(value, kind == ScaleKind::kLog ? kLeastMagnitude : -kMostMagnitude, kMostMagnitude);
}

// The smallest of 1, 2, 5 times a power of ten that is not below `least` (> 0).
double RoundStep(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::vector<AxisTick> Labelled(const std::vector<double>& values) {
  std::vector<AxisTick> ticks;
  ticks.reserve(values.size());
  for (double value : values) ticks.push_back({value, TickLabel(value)});
  return ticks;
}

// Multiples of a round step from at or below `low` to at or above `high`.
std::vector<double> LinearMarks(double low, double high, int most) {
  double step = RoundStep(std::max((high - low) / most, kLeastMagnitude));
  while (std::ceil(high / step - 1e-9) - std::floor(low / step + 1e-9) + 1 > most) step = RoundStep(step * 1.5);
  std::vector<double> marks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) marks.push_back(i * step + 0.0);  // never -0
  return marks;
}

// 1, 2 and 5 times powers of ten, or as many powers as fit, from at or below `low` to at or above `high`.
std::vector<double> LogMarks(double low, double high, int most) {
  const auto between = [&](const std::vector<double>& factors, int stride) {
    const int first = static_cast<int>(std::floor(std::log10(low) + 1e-9)),
              last = static_cast<int>(std::ceil(std::log10(high)));
    std::vector<double> marks;
    for (int power = first; power <= last + stride - 1; power += stride) {
      for (double factor : factors) marks.push_back(factor * std::pow(10, power));
    }
    while (marks.size() > 1 && marks[1] <= low * (1 + 1e-9)) marks.erase(marks.begin());
    while (marks.size() > 1 && marks[marks.size() - 2] >= high * (1 - 1e-9)) marks.pop_back();
    return marks;
  };
  for (const std::vector<double>& factors : {std::vector<double>{1, 2, 5}, {1, 3}}) {
    const std::vector<double> marks = between(factors, 1);
    if (static_cast<int>(marks.size()) <= most) return marks;
  }
  int stride = 1;
  while (static_cast<int>(between({1}, stride).size()) > most && stride < 64) ++stride;
  return between({1}, stride);
}

}  // namespace

std::string TickLabel(double value) {
  if (!std::isfinite(value)) return "-";
  const double magnitude = std::abs(value);
  if (magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e15)) return absl::StrFormat("%.3g", value);
  for (const DecimalPrefix& unit : kDecimalPrefixes) {
    if (magnitude >= unit.unit && magnitude >= 1e4) return absl::StrFormat("%.6g%s", value / unit.unit, unit.sign);
  }
  return absl::StrFormat("%.6g", value);
}

AxisScale AxisScale::ForValues(ScaleKind kind, const std::vector<double>& values, bool from_zero, int ticks) {
  CHECK(ticks >= 2);
  AxisScale scale;
  scale.kind_ = kind;
  bool any = false;
  double low = 0, high = 0;
  for (double value : values) {
    if (!scale.Holds(value)) continue;
    value = Clamped(kind, value);
    low = any ? std::min(low, value) : value;
    high = any ? std::max(high, value) : value;
    any = true;
  }
  const bool log = kind == ScaleKind::kLog;
  if (!any) low = log ? 1 : 0, high = log ? 10 : 1;
  if (!log && from_zero) low = std::min(low, 0.0), high = std::max(high, 0.0);
  if (high - low <= 1e-9 * std::max(std::abs(low), std::abs(high))) {  // equal, or all zero
    if (log)
      low /= 2, high *= 2;
    else if (high == 0)
      high = 1;
    else
      low -= std::abs(low) / 10, high += std::abs(high) / 10;
  }
  const std::vector<double> marks = log ? LogMarks(low, high, ticks) : LinearMarks(low, high, ticks);
  scale.low_ = std::min(low, marks.front());
  scale.high_ = std::max(high, marks.back());
  scale.ticks_ = Labelled(marks);
  return scale;
}

AxisScale AxisScale::AtValues(ScaleKind kind, std::vector<double> values) {
  AxisScale scale;
  scale.kind_ = kind;
  values.erase(std::remove_if(values.begin(), values.end(), [&](double value) { return !scale.Holds(value); }),
               values.end());
  CHECK(!values.empty());
  for (double& value : values) value = Clamped(kind, value);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  const double low = values.front(), high = values.back();
  if (kind == ScaleKind::kLog) {
    const double beyond = low == high ? 2 : std::pow(high / low, 0.06);
    scale.low_ = low / beyond, scale.high_ = high * beyond;
  } else {
    const double beyond = low == high ? std::max(std::abs(low) / 2, 1.0) : 0.06 * (high - low);
    scale.low_ = low - beyond, scale.high_ = high + beyond;
  }
  scale.ticks_ = Labelled(values);
  return scale;
}

bool AxisScale::Holds(double value) const { return std::isfinite(value) && (kind_ == ScaleKind::kLinear || value > 0); }

double AxisScale::Position(double value) const { return kind_ == ScaleKind::kLog ? std::log(value) : value; }

double AxisScale::At(double value) const {
  if (!Holds(value)) return low_pixel_;
  const double within = std::clamp(value, low_, high_);
  const double share = (Position(within) - Position(low_)) / (Position(high_) - Position(low_));
  return low_pixel_ + share * (high_pixel_ - low_pixel_);
}

}  // namespace stagecoach
