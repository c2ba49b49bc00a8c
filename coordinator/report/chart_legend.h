#ifndef STAGECOACH_COORDINATOR_REPORT_CHART_LEGEND_H_
#define STAGECOACH_COORDINATOR_REPORT_CHART_LEGEND_H_

// What stands around a chart: the title, the remark and the legend above it, in rows that are broken where the chart
// ends, and the labels of the axis below it.

#include <functional>
#include <string>
#include <vector>

#include "coordinator/report/axis_scale.h"
#include "coordinator/report/svg_canvas.h"

namespace stagecoach {

struct LegendEntry {
  std::string label;
  // Draws the sample, from `left` to `left` + kLegendSample, around the height `middle`.
  std::function<void(SvgCanvas* canvas, double left, double middle)> sample;
};
inline constexpr double kLegendSample = 26;

// Returns the height below the last line, from `top`.
double DrawTitle(SvgCanvas* canvas, const std::string& title, double top);
double DrawRemark(SvgCanvas* canvas, const std::string& remark, double top);
double DrawLegend(SvgCanvas* canvas, const std::vector<LegendEntry>& entries, double top);

// The labels of the ticks, as many as have room, on one line.
void DrawTickLabels(SvgCanvas* canvas, const AxisScale& axis, double baseline);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_CHART_LEGEND_H_
