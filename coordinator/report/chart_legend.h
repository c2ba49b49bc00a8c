#ifndef STAGECOACH_COORDINATOR_REPORT_CHART_LEGEND_H_
#define STAGECOACH_COORDINATOR_REPORT_CHART_LEGEND_H_

// The title, the remark and the legend above a chart. A legend's entries stand in rows that are broken where the chart
// ends.

#include <functional>
#include <string>
#include <vector>

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

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_CHART_LEGEND_H_
