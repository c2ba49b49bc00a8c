#ifndef STAGECOACH_COORDINATOR_REPORT_AXIS_SCALE_H_
#define STAGECOACH_COORDINATOR_REPORT_AXIS_SCALE_H_

// From values to pixels, and the round numbers to mark between. Pure. Whatever the values are - none, one, all equal,
// zero, huge, not finite - a scale has a span, and gives finite pixels.

#include <string>
#include <vector>

namespace stagecoach {

enum class ScaleKind { kLinear, kLog };

struct AxisTick {
  double value = 0;
  std::string label;
  bool operator==(const AxisTick&) const = default;
};

// 1200 is "1200", 0.25 "0.25", 12000 "12k", 3e9 "3G", below a ten-thousandth with an exponent.
std::string TickLabel(double value);

class AxisScale {
 public:
  // A scale that holds all of `values` but those that are not finite, and on a logarithmic one those that are not
  // positive. A linear one starts at zero if no value is negative and `from_zero` is set. Its ends are round numbers;
  // at most `ticks` (>= 2) of them are marked.
  static AxisScale ForValues(ScaleKind kind, const std::vector<double>& values, bool from_zero, int ticks);
  // Marks these values alone (not empty), whatever numbers they are; the ends lie a little beyond them.
  static AxisScale AtValues(ScaleKind kind, std::vector<double> values);

  // Pixels of the ends.
  void SetPixels(double low, double high) { low_pixel_ = low, high_pixel_ = high; }
  // What lies outside is drawn at the end.
  double At(double value) const;

  double low() const { return low_; }
  double high() const { return high_; }
  bool Holds(double value) const;                                // finite, and positive on a logarithmic scale
  const std::vector<AxisTick>& ticks() const { return ticks_; }  // rising, at least one

 private:
  double Position(double value) const;  // in the unit that is linear in pixels

  ScaleKind kind_ = ScaleKind::kLinear;
  double low_ = 0, high_ = 1;
  double low_pixel_ = 0, high_pixel_ = 1;
  std::vector<AxisTick> ticks_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_AXIS_SCALE_H_
