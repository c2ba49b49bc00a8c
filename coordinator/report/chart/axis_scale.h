#ifndef STAGECOACH_COORDINATOR_REPORT_CHART_AXIS_SCALE_H_
#define STAGECOACH_COORDINATOR_REPORT_CHART_AXIS_SCALE_H_

// Maps values to pixels, and chooses round numbers to mark. Pure. A scale has a positive span and gives finite pixels
// for any values: none, one, equal, zero, huge, not finite.

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
  // A scale that contains all finite values (on a logarithmic scale: all positive ones). A linear scale starts at zero
  // if `from_zero` is set and no value is negative. Its ends are round numbers; at most `ticks` (>= 2) are marked.
  static AxisScale ForValues(ScaleKind kind, const std::vector<double>& values, bool from_zero, int ticks);
  // Marks exactly these values (not empty); the ends lie a little beyond them.
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

#endif  // STAGECOACH_COORDINATOR_REPORT_CHART_AXIS_SCALE_H_
