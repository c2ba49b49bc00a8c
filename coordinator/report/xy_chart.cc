#include "coordinator/report/xy_chart.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "coordinator/report/chart_legend.h"
#include "coordinator/report/chart_style.h"
#include "coordinator/report/svg_canvas.h"
#include "coordinator/report/text_width.h"

namespace stagecoach {
namespace {

constexpr double kPlotHeight = 230;
constexpr double kMarkerRadius = 4.2;
constexpr double kRightMargin = 16;
constexpr double kLabelDistance = 24;  // between labelled points of a series
constexpr int kMostTicks = 8;

struct Box {
  double left, top, right, bottom;
  bool Overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// Where the axes stand.
struct Plot {
  double left = 0, right = 0, top = 0, bottom = 0;
  AxisScale x, y;

  bool Holds(const ChartPoint& point) const { return x.Holds(point.x) && y.Holds(point.y); }
  SvgPosition At(double px, double py) const { return {x.At(px), y.At(py)}; }
};

std::string Stroke(absl::string_view colour, double width, absl::string_view dashes = "none") {
  return absl::StrCat("stroke=\"", colour, "\" stroke-width=\"", SvgNumber(width), "\" stroke-dasharray=\"", dashes,
                      "\"");
}

std::vector<double> AllValues(const XyChart& chart, bool of_x) {
  std::vector<double> values;
  const auto add = [&](const std::vector<ChartPoint>& points, bool with_range) {
    for (const ChartPoint& point : points) {
      if (of_x) {
        values.push_back(point.x);
      } else if (with_range) {
        values.insert(values.end(), {point.y_low, point.y_high});
      } else {
        values.push_back(point.y);
      }
    }
  };
  for (const ChartSeries& series : chart.series) {
    add(series.points, false);
    for (const ChartPoint& point : series.points) {
      if (!of_x && point.y_low != point.y_high) values.insert(values.end(), {point.y_low, point.y_high});
    }
  }
  for (const ChartGuide& guide : chart.guides) add(guide.points, false);
  for (const ChartBand& band : chart.bands) add(band.points, true);
  return values;
}

AxisScale ScaleOf(const ChartAxis& axis, const std::vector<double>& values) {
  const bool usable = std::any_of(axis.marks.begin(), axis.marks.end(), [&](double mark) {
    return std::isfinite(mark) && (axis.kind == ScaleKind::kLinear || mark > 0);
  });
  if (usable) return AxisScale::AtValues(axis.kind, axis.marks);
  return AxisScale::ForValues(axis.kind, values, axis.from_zero, kMostTicks);
}

Plot PlotOf(const XyChart& chart, double top) {
  Plot plot;
  std::vector<double> x = AllValues(chart, true), y = AllValues(chart, false);
  if (chart.square) {
    x.insert(x.end(), y.begin(), y.end());
    y = x;
  }
  plot.x = ScaleOf(chart.x, x);
  plot.y = ScaleOf(chart.y, y);
  double widest = 0;
  for (const AxisTick& tick : plot.y.ticks()) widest = std::max(widest, TextWidth(tick.label, SvgCanvas::kFontSize));
  plot.left = widest + 10;
  plot.right = kChartWidth - kRightMargin;
  plot.top = top;
  plot.bottom = top + (chart.square ? plot.right - plot.left : kPlotHeight);
  plot.x.SetPixels(plot.left, plot.right);
  plot.y.SetPixels(plot.bottom, plot.top);
  return plot;
}

std::vector<LegendEntry> LegendOf(const XyChart& chart) {
  std::vector<LegendEntry> entries;
  for (const ChartSeries& series : chart.series) {
    if (series.label.empty()) continue;
    entries.push_back(
        {series.label, [&series](SvgCanvas* canvas, double left, double middle) {
           const SeriesStyle& style = StyleOf(series.style);
           if (series.joined) {
             canvas->Line({left, middle}, {left + kLegendSample, middle}, Stroke(style.colour, 2, style.dashes));
           }
           canvas->Marker({left + kLegendSample / 2, middle}, style.shape, style.colour, series.hollow, kMarkerRadius);
         }});
  }
  std::set<std::string> seen;
  for (const ChartGuide& guide : chart.guides) {
    if (guide.label.empty() || !seen.insert(guide.label).second) continue;
    entries.push_back({guide.label, [](SvgCanvas* canvas, double left, double middle) {
                         canvas->Line({left, middle}, {left + kLegendSample, middle}, Stroke(kGuideInk, 1.3, "5 4"));
                       }});
  }
  for (const ChartBand& band : chart.bands) {
    if (band.label.empty()) continue;
    entries.push_back({band.label, [](SvgCanvas* canvas, double left, double middle) {
                         canvas->Rectangle({left, middle - 6}, kLegendSample, 12, "fill=\"#e8e8e8\" stroke=\"#bbb\"");
                       }});
  }
  return entries;
}

void DrawAxes(SvgCanvas* canvas, const XyChart& chart, const Plot& plot) {
  const double font = SvgCanvas::kFontSize;
  for (const AxisTick& tick : plot.y.ticks()) {
    const double y = plot.y.At(tick.value);
    canvas->Line({plot.left, y}, {plot.right, y}, Stroke(kGridInk, 1));
    canvas->Text({plot.left - 6, y + 4.3}, tick.label, TextAnchor::kEnd, font, kSoftText);
  }
  for (const AxisTick& tick : plot.x.ticks()) {
    const double x = plot.x.At(tick.value);
    canvas->Line({x, plot.bottom}, {x, plot.bottom + 4}, Stroke(kInk, 1));
  }
  DrawTickLabels(canvas, plot.x, plot.bottom + 18);
  canvas->Line({plot.left, plot.bottom}, {plot.right, plot.bottom}, Stroke(kInk, 1));
  canvas->Text({0, plot.top - 11}, ElideText(chart.y.label, kChartWidth, font), TextAnchor::kStart, font,
               "font-style=\"italic\"");
  canvas->Text({plot.right, plot.bottom + 36}, ElideText(chart.x.label, plot.right, font), TextAnchor::kEnd, font,
               "font-style=\"italic\"");
}

void DrawBehind(SvgCanvas* canvas, const XyChart& chart, const Plot& plot) {
  for (const ChartBand& band : chart.bands) {
    std::vector<SvgPosition> corners;
    for (const ChartPoint& point : band.points) corners.push_back(plot.At(point.x, point.y_low));
    for (auto point = band.points.rbegin(); point != band.points.rend(); ++point) {
      corners.push_back(plot.At(point->x, point->y_high));
    }
    if (corners.size() >= 4) canvas->Polygon(corners, "fill=\"#e8e8e8\"");
  }
  for (const ChartGuide& guide : chart.guides) {
    std::vector<SvgPosition> positions;
    for (const ChartPoint& point : guide.points) {
      if (plot.Holds(point)) positions.push_back(plot.At(point.x, point.y));
    }
    canvas->Polyline(positions, Stroke(kGuideInk, 1.3, "5 4"));
  }
}

void DrawErrorBar(SvgCanvas* canvas, const Plot& plot, const ChartPoint& point, const char* colour) {
  if (point.y_low == point.y_high || !plot.y.Holds(point.y_low) || !plot.y.Holds(point.y_high)) return;
  const SvgPosition low = plot.At(point.x, point.y_low), high = plot.At(point.x, point.y_high);
  const std::string stroke = Stroke(colour, 1.2);
  canvas->Line(low, high, stroke);
  canvas->Line({low.x - 4, low.y}, {low.x + 4, low.y}, stroke);
  canvas->Line({high.x - 4, high.y}, {high.x + 4, high.y}, stroke);
}

void DrawSeries(SvgCanvas* canvas, const ChartSeries& series, const Plot& plot) {
  const SeriesStyle& style = StyleOf(series.style);
  std::vector<SvgPosition> line;
  for (const ChartPoint& point : series.points) {
    if (plot.Holds(point)) line.push_back(plot.At(point.x, point.y));
  }
  if (series.joined)
    canvas->Polyline(line, absl::StrCat(Stroke(style.colour, 2, style.dashes), " stroke-linejoin=\"round\""));
  for (const ChartPoint& point : series.points) {
    if (!plot.Holds(point)) continue;
    canvas->BeginTooltip(point.tooltip);
    DrawErrorBar(canvas, plot, point, style.colour);
    canvas->Marker(plot.At(point.x, point.y), style.shape, style.colour, series.hollow, kMarkerRadius);
    canvas->EndTooltip();
  }
}

// Labels of points, each at the first of a few places around its point where it covers neither a marker nor another
// label.
void DrawPointLabels(SvgCanvas* canvas, const XyChart& chart, const Plot& plot) {
  const double font = SvgCanvas::kSmallFontSize, height = font, away = kMarkerRadius + 3;
  std::vector<Box> taken;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      if (!plot.Holds(point)) continue;
      const SvgPosition at = plot.At(point.x, point.y);
      taken.push_back({at.x - away + 1, at.y - away + 1, at.x + away - 1, at.y + away - 1});
    }
  }
  for (const ChartSeries& series : chart.series) {
    SvgPosition last = {-1e9, -1e9};  // labelled of this series
    for (const ChartPoint& point : series.points) {
      if (point.label.empty() || !plot.Holds(point)) continue;
      const SvgPosition at = plot.At(point.x, point.y);
      if (std::hypot(at.x - last.x, at.y - last.y) < kLabelDistance) continue;
      const double width = TextWidth(point.label, font);
      const SvgPosition corners[] = {
          {at.x + away, at.y - away - height + 4},         {at.x + away, at.y + away - 4},
          {at.x - away - width, at.y - away - height + 4}, {at.x - away - width, at.y + away - 4},
          {at.x - width / 2, at.y - away - height},        {at.x - width / 2, at.y + away}};
      for (const SvgPosition& corner : corners) {
        const Box box = {corner.x, corner.y, corner.x + width, corner.y + height};
        const bool inside =
            box.left >= plot.left && box.right <= kChartWidth && box.top >= plot.top - 4 && box.bottom <= plot.bottom;
        if (!inside || std::any_of(taken.begin(), taken.end(), [&](const Box& other) { return box.Overlaps(other); }))
          continue;
        taken.push_back(box);
        last = at;
        canvas->Text({corner.x, corner.y + height - 2}, point.label, TextAnchor::kStart, font,
                     "fill=\"#333\" stroke=\"#fff\" stroke-width=\"3\" paint-order=\"stroke\"");
        break;
      }
    }
  }
}

}  // namespace

std::string DrawXyChart(const XyChart& chart, bool with_title) {
  SvgCanvas canvas;
  double top = with_title ? DrawTitle(&canvas, chart.title, 0) + 4 : 0;
  top = DrawRemark(&canvas, chart.remark, top);
  top = DrawLegend(&canvas, LegendOf(chart), top);
  const Plot plot = PlotOf(chart, top + 28);
  DrawBehind(&canvas, chart, plot);
  DrawAxes(&canvas, chart, plot);
  for (const ChartSeries& series : chart.series) DrawSeries(&canvas, series, plot);
  DrawPointLabels(&canvas, chart, plot);
  return canvas.Finish(kChartWidth, plot.bottom + 42, chart.title);
}

}  // namespace stagecoach
