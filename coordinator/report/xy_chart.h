#ifndef STAGECOACH_COORDINATOR_REPORT_XY_CHART_H_
#define STAGECOACH_COORDINATOR_REPORT_XY_CHART_H_

// A chart of points and lines over two axes. Pure: the same chart gives the same text.

#include <string>
#include <vector>

#include "coordinator/report/axis_scale.h"

namespace stagecoach {

struct ChartAxis {
  std::string label;  // with its unit
  ScaleKind kind = ScaleKind::kLinear;
  bool from_zero = true;      // linear
  std::vector<double> marks;  // values to mark in place of round numbers; empty: round numbers
};

// What is not finite, or not positive on a logarithmic axis, is left out.
struct ChartPoint {
  double x = 0, y = 0;
  double y_low = 0, y_high = 0;  // an error bar where they differ
  std::string label;             // beside the point, where there is room
  std::string tooltip;
};

struct ChartSeries {
  std::string label;
  std::vector<ChartPoint> points;  // joined in this order
  int style = 0;                   // of kSeriesStyles
  bool joined = true;              // by a line
  bool hollow = false;             // markers: simulated, nothing ran
};

// A grey line behind the points: what is ideal, or a floor.
struct ChartGuide {
  std::string label;  // those of one label share its entry in the legend
  std::vector<ChartPoint> points;
};

// A grey area between y_low and y_high.
struct ChartBand {
  std::string label;
  std::vector<ChartPoint> points;
};

struct XyChart {
  std::string title;
  std::string remark;  // what holds of all that is shown, such as that it is simulated; above the legend
  ChartAxis x, y;
  std::vector<ChartSeries> series;
  std::vector<ChartGuide> guides;
  std::vector<ChartBand> bands;
  bool square = false;  // both axes have one scale
};

// An SVG picture of kChartWidth. `with_title`: for a file of its own; on a page the heading stands above.
std::string DrawXyChart(const XyChart& chart, bool with_title);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_XY_CHART_H_
