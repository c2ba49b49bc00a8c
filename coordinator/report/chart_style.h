#ifndef STAGECOACH_COORDINATOR_REPORT_CHART_STYLE_H_
#define STAGECOACH_COORDINATOR_REPORT_CHART_STYLE_H_

// What charts have in common: their size, inks, and how series differ. A series has a colour, a dash pattern and a
// marker, each of which tells it apart without the other two: on paper, in grey, for the colour-blind (colours after
// Okabe and Ito, darkened for white paper).

#include <cstddef>

#include "absl/strings/string_view.h"
#include "coordinator/report/svg_canvas.h"

namespace stagecoach {

// Of every chart: so narrow that text of kFontSize can be read on a phone, two a row on a desk.
inline constexpr double kChartWidth = 440;

inline constexpr char kInk[] = "#222";  // text and axes
inline constexpr char kGridInk[] = "#ddd";
inline constexpr char kGuideInk[] = "#777";           // what is ideal, a floor, a band
inline constexpr char kSoftText[] = "fill=\"#555\"";  // labels of ticks and rows

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
// More series than these in one chart could not be told apart.
inline constexpr int kMostSeries = sizeof(kSeriesStyles) / sizeof(kSeriesStyles[0]);

// Wraps round.
inline const SeriesStyle& StyleOf(int series) { return kSeriesStyles[static_cast<size_t>(series) % kMostSeries]; }

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_CHART_STYLE_H_
