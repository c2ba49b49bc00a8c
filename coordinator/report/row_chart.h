#ifndef STAGECOACH_COORDINATOR_REPORT_ROW_CHART_H_
#define STAGECOACH_COORDINATOR_REPORT_ROW_CHART_H_

// A chart of rows, one below the other, over one axis: bars of one or more parts, and markers. A row's name stands on a
// line of its own above it, so that a long one can be read on a phone too. Pure: the same chart gives the same text.

#include <limits>
#include <string>
#include <vector>

#include "coordinator/report/svg_canvas.h"
#include "coordinator/report/xy_chart.h"

namespace stagecoach {

inline constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

enum class PartFill { kSolid, kLines, kDots };

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
  std::vector<double> parts;  // [RowChart::parts] widths, from the left; what is not finite or negative is none
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

// An SVG picture of kChartWidth, as high as its rows. `with_title`: as DrawXyChart.
std::string DrawRowChart(const RowChart& chart, bool with_title);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_ROW_CHART_H_
