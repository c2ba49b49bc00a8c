#ifndef STAGECOACH_COORDINATOR_REPORT_CHART_CHART_H_
#define STAGECOACH_COORDINATOR_REPORT_CHART_CHART_H_

// A report's charts as SVG pictures: points and lines over two axes, rows of bars over one. Pure, deterministic.

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "coordinator/report/chart/axis_scale.h"
#include "coordinator/report/chart/svg_canvas.h"

namespace stagecoach {

// The width of every chart: narrow enough to read kFontSize on a phone; two fit side by side on a desk.
inline constexpr double kChartWidth = 440;

// Colour, dash pattern and marker of a series. Each alone tells it apart: on paper, in grey, for the colour-blind
// (colours after Okabe and Ito, darkened for white paper).
struct SeriesStyle {
  const char* colour;
  const char* dashes;  // of `stroke-dasharray`; "none" for a solid line
  MarkerShape shape;
};

inline constexpr SeriesStyle kSeriesStyles[] = {
    {"#0b559f", "none", MarkerShape::kCircle},       {"#c24b00", "7 3", MarkerShape::kSquare},
    {"#00785a", "2 2.5", MarkerShape::kTriangle},    {"#8a3a9e", "9 3 2 3", MarkerShape::kDiamond},
    {"#a07600", "12 4", MarkerShape::kDownTriangle}, {"#3a3a3a", "4 2 1 2 1 2", MarkerShape::kCross},
    {"#3d97cf", "5 2", MarkerShape::kStar},          {"#c2185b", "1 3", MarkerShape::kHexagon},
};
// More series in one chart would be indistinguishable.
inline constexpr int kMostSeries = sizeof(kSeriesStyles) / sizeof(kSeriesStyles[0]);

// Wraps round.
inline const SeriesStyle& StyleOf(int series) { return kSeriesStyles[static_cast<size_t>(series) % kMostSeries]; }

// A chart of points and lines over two axes.
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

// Drawn in grey behind the points: a line (ideal, floor) or the area between y_low and y_high; a legend entry each
// label.
struct ChartGuide {
  std::string label;
  std::vector<ChartPoint> points;
};

struct XyChart {
  std::string title;
  std::string remark;  // what holds of all that is shown, such as that it is simulated; above the legend
  ChartAxis x, y;
  std::vector<ChartSeries> series;
  std::vector<ChartGuide> guides, bands;  // lines, areas
  bool square = false;                    // both axes have one scale
};

// An SVG picture of kChartWidth. `with_title`: for a file of its own; on a page the heading stands above.
std::string DrawXyChart(const XyChart& chart, bool with_title);

inline constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

// A chart of rows, one below the other, over one axis: bars of one or more parts, and markers. A row's name stands on a
// line of its own above it, so that a long one can be read on a phone too.
enum class PartFill { kSolid, kLines, kDots, kCrosses };

struct RowPart {
  std::string label;
  PartFill fill = PartFill::kSolid;
};

struct RowMark {
  std::string label;
  MarkerShape shape = MarkerShape::kCircle;
  bool tick = false;  // a vertical line in place of the shape
  int style = 0;      // whose colour of kSeriesStyles
};

struct ChartRow {
  std::string heading;        // empty: none
  std::string label;          // to the left of the bar; short
  std::vector<double> parts;  // [RowChart::parts] widths, from the left; negative and non-finite ones are skipped
  double low = 0, high = 0;   // an error bar where they differ
  std::vector<double> marks;  // [RowChart::marks] kNoValue for none
  std::string note;           // to the right of the bar
  std::string tooltip;
  bool hollow = false;  // simulated: solid parts are white with an outline, markers hollow
};

struct RowChart {
  std::string id;  // letters and digits; of the chart on its page
  std::string title;
  std::string remark;  // what holds of all that is shown, such as that it is simulated; above the legend
  ChartAxis axis;
  std::vector<RowPart> parts;  // those without a label are not in the legend
  std::vector<RowMark> marks;
  bool join_marks = false;  // by a thin line from the lowest to the highest
  std::vector<ChartRow> rows;
};

// As high as its rows.
std::string DrawRowChart(const RowChart& chart, bool with_title);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_CHART_CHART_H_
