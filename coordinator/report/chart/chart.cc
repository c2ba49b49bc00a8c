#include "coordinator/report/chart/chart.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr char kInk[] = "#222";  // text and axes
constexpr char kGridInk[] = "#ddd";
constexpr char kGuideStroke[] = "stroke=\"#777\" stroke-width=\"1.3\" stroke-dasharray=\"5 4\"";
constexpr char kSoftText[] = "fill=\"#555\"";  // labels of ticks and rows

constexpr double kFont = SvgCanvas::kFontSize, kSmallFont = SvgCanvas::kSmallFontSize;
constexpr double kLegendLine = 18, kLegendSample = 26;

struct LegendEntry {
  std::string label;
  // Draws the sample, from `left` to `left` + kLegendSample, around the height `middle`.
  std::function<void(SvgCanvas* canvas, double left, double middle)> sample;
};

struct TextLines {
  double width, font, height, below;  // of each line: its height, and how much of that is below the baseline
  const char* style;
};
constexpr TextLines kTitle = {kChartWidth * 0.93, 15, 19, 4, "font-weight=\"bold\""};  // bold is a little wider
constexpr TextLines kRemark = {kChartWidth * 0.93, kFont, kLegendLine, 5, "font-weight=\"bold\""};

// Returns the height below the last line, from `top`.
double DrawLines(SvgCanvas* canvas, const std::string& text, const TextLines& as, double top) {
  for (const std::string& line : WrapText(text, as.width, as.font)) {
    top += as.height;
    canvas->Text({0, top - as.below}, line, TextAnchor::kStart, as.font, as.style);
  }
  return top;
}

// Title, remark and legend; returns the height below them.
double DrawHead(SvgCanvas* canvas, const std::string& title, const std::string& remark,
                const std::vector<LegendEntry>& entries) {
  double top = title.empty() ? 0 : DrawLines(canvas, title, kTitle, 0) + 4, left = 0;
  top = DrawLines(canvas, remark, kRemark, top);
  if (entries.empty()) return top;
  for (const LegendEntry& entry : entries) {
    const std::string label = ElideText(entry.label, kChartWidth - kLegendSample - 6, kFont);
    const double width = kLegendSample + 6 + TextWidth(label, kFont);
    if (left > 0 && left + width > kChartWidth) {
      left = 0;
      top += kLegendLine;
    }
    const double middle = top + kLegendLine / 2;
    entry.sample(canvas, left, middle);
    canvas->Text({left + kLegendSample + 6, middle + 4.5}, label);
    left += width + 18;
  }
  return top + kLegendLine;
}

// As many as have room, on one line.
void DrawTickLabels(SvgCanvas* canvas, const AxisScale& axis, double baseline) {
  double last_right = -1e9;
  for (const AxisTick& tick : axis.ticks()) {
    const double half = TextWidth(tick.label, kFont) / 2;
    const double middle = std::clamp(axis.At(tick.value), half, kChartWidth - half);
    if (middle - half < last_right + 5) continue;  // no room
    canvas->Text({middle, baseline}, tick.label, TextAnchor::kMiddle, kFont, kSoftText);
    last_right = middle + half;
  }
}

// Points and lines.

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

// What the axes have to hold.
void AddValues(const std::vector<ChartPoint>& points, std::vector<double>* x, std::vector<double>* y) {
  for (const ChartPoint& point : points) {
    x->push_back(point.x);
    y->push_back(point.y);
    if (point.y_low != point.y_high) y->insert(y->end(), {point.y_low, point.y_high});
  }
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
  std::vector<double> x, y;
  for (const ChartSeries& series : chart.series) AddValues(series.points, &x, &y);
  for (const ChartGuide& guide : chart.guides) AddValues(guide.points, &x, &y);
  for (const ChartGuide& band : chart.bands) AddValues(band.points, &x, &y);
  if (chart.square) {
    x.insert(x.end(), y.begin(), y.end());
    y = x;
  }
  plot.x = ScaleOf(chart.x, x);
  plot.y = ScaleOf(chart.y, y);
  double widest = 0;
  for (const AxisTick& tick : plot.y.ticks()) widest = std::max(widest, TextWidth(tick.label, kFont));
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
  std::set<std::string> seen = {""};
  for (const ChartGuide& guide : chart.guides) {
    if (!seen.insert(guide.label).second) continue;
    entries.push_back({guide.label, [](SvgCanvas* canvas, double left, double middle) {
                         canvas->Line({left, middle}, {left + kLegendSample, middle}, kGuideStroke);
                       }});
  }
  for (const ChartGuide& band : chart.bands) {
    if (!seen.insert(band.label).second) continue;
    entries.push_back({band.label, [](SvgCanvas* canvas, double left, double middle) {
                         canvas->Rectangle({left, middle - 6}, kLegendSample, 12, "fill=\"#e8e8e8\" stroke=\"#bbb\"");
                       }});
  }
  return entries;
}

std::string LabelOf(const ChartAxis& axis) {
  return axis.kind == ScaleKind::kLog && !axis.label.empty() ? axis.label + " (log scale)" : axis.label;
}

void DrawAxes(SvgCanvas* canvas, const XyChart& chart, const Plot& plot) {
  for (const AxisTick& tick : plot.y.ticks()) {
    const double y = plot.y.At(tick.value);
    canvas->Line({plot.left, y}, {plot.right, y}, Stroke(kGridInk, 1));
    canvas->Text({plot.left - 6, y + 4.3}, tick.label, TextAnchor::kEnd, kFont, kSoftText);
  }
  for (const AxisTick& tick : plot.x.ticks()) {
    const double x = plot.x.At(tick.value);
    canvas->Line({x, plot.bottom}, {x, plot.bottom + 4}, Stroke(kInk, 1));
  }
  DrawTickLabels(canvas, plot.x, plot.bottom + 18);
  canvas->Line({plot.left, plot.bottom}, {plot.right, plot.bottom}, Stroke(kInk, 1));
  canvas->Text({0, plot.top - 11}, ElideText(LabelOf(chart.y), kChartWidth, kFont), TextAnchor::kStart, kFont,
               "font-style=\"italic\"");
  canvas->Text({plot.right, plot.bottom + 36}, ElideText(LabelOf(chart.x), plot.right, kFont), TextAnchor::kEnd, kFont,
               "font-style=\"italic\"");
}

void DrawBehind(SvgCanvas* canvas, const XyChart& chart, const Plot& plot) {
  for (const ChartGuide& band : chart.bands) {
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
    canvas->Polyline(positions, kGuideStroke);
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

// Labels of points, each at the first of a few places around it where it covers no marker and no other label.
void DrawPointLabels(SvgCanvas* canvas, const XyChart& chart, const Plot& plot) {
  const double font = kSmallFont, height = font, away = kMarkerRadius + 3;
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
      const SvgPosition corners[] = {{at.x + away, at.y + away - 4},
                                     {at.x + away, at.y - away - height + 4},
                                     {at.x - away - width, at.y - away - height + 4},
                                     {at.x - away - width, at.y + away - 4},
                                     {at.x - width / 2, at.y - away - height},
                                     {at.x - width / 2, at.y + away}};
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

// Rows.

constexpr double kBarHeight = 13, kRowGap = 7, kRowMarkerRadius = 4;
constexpr TextLines kHeading = {kChartWidth, kFont, 18, 5, "stroke=\"#fff\" stroke-width=\"4\" paint-order=\"stroke\""};
constexpr double kMostLabelShare = 0.3, kMostNoteShare = 0.5;  // of the width
constexpr double kLeastErrorBar = 3;                           // pixels; a shorter one would only hide the bar's end
constexpr int kMostRowTicks = 7;
constexpr char kBarInk[] = "#0b559f";

// Where things stand.
struct RowLayout {
  double left = 0, right = 0;  // of the bars
  double note_width = 0;
  AxisScale axis;
};

double PartWidth(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

std::string PatternId(const RowChart& chart, size_t part) { return absl::StrCat(chart.id, "p", part); }

std::string PartStyle(const RowChart& chart, size_t part, bool hollow) {
  const bool solid = chart.parts[part].fill == PartFill::kSolid;
  const std::string fill = solid ? (hollow ? "#fff" : kBarInk) : absl::StrCat("url(#", PatternId(chart, part), ")");
  return absl::StrCat("fill=\"", fill, "\" stroke=\"", kBarInk, "\" stroke-width=\"", solid && hollow ? "1.6" : "0.8",
                      "\"");
}

RowLayout LayoutOf(const RowChart& chart) {
  RowLayout layout;
  std::vector<double> values;
  double label_width = 0;
  for (const ChartRow& row : chart.rows) {
    double sum = 0;
    for (double part : row.parts) sum += PartWidth(part);
    if (!row.parts.empty()) values.push_back(sum);
    if (row.low != row.high) values.insert(values.end(), {row.low, row.high});
    values.insert(values.end(), row.marks.begin(), row.marks.end());
    label_width = std::max(label_width, TextWidth(row.label, kSmallFont));
    layout.note_width = std::max(layout.note_width, TextWidth(row.note, kSmallFont));
  }
  label_width = std::min(label_width, kMostLabelShare * kChartWidth);
  layout.note_width = std::min(layout.note_width, kMostNoteShare * kChartWidth);
  layout.axis = chart.axis.marks.empty()
                    ? AxisScale::ForValues(chart.axis.kind, values, chart.axis.from_zero, kMostRowTicks)
                    : AxisScale::AtValues(chart.axis.kind, chart.axis.marks);
  layout.left = label_width > 0 ? label_width + 8 : 4;
  layout.right = kChartWidth - (layout.note_width > 0 ? layout.note_width + 12 : 14);
  layout.axis.SetPixels(layout.left, layout.right);
  return layout;
}

void DrawMark(SvgCanvas* canvas, const RowMark& mark, SvgPosition at, bool hollow) {
  if (mark.tick) {
    canvas->Line({at.x, at.y - 9}, {at.x, at.y + 9}, "stroke=\"#fff\" stroke-width=\"5\"");
    canvas->Line({at.x, at.y - 9}, {at.x, at.y + 9}, "stroke=\"#222\" stroke-width=\"2.4\"");
  } else {
    canvas->Marker(at, mark.shape, StyleOf(mark.style).colour, hollow, kRowMarkerRadius);
  }
}

std::vector<LegendEntry> RowLegend(const RowChart& chart) {
  std::vector<LegendEntry> entries;
  for (size_t i = 0; i < chart.parts.size(); ++i) {
    if (chart.parts[i].label.empty()) continue;
    entries.push_back({chart.parts[i].label, [&chart, i](SvgCanvas* canvas, double left, double middle) {
                         canvas->Rectangle({left, middle - 6}, kLegendSample, 12, PartStyle(chart, i, false));
                       }});
  }
  for (const RowMark& mark : chart.marks) {
    if (mark.label.empty()) continue;
    entries.push_back({mark.label, [&mark](SvgCanvas* canvas, double left, double middle) {
                         DrawMark(canvas, mark, {left + kLegendSample / 2, middle}, false);
                       }});
  }
  return entries;
}

void DrawParts(SvgCanvas* canvas, const RowChart& chart, const ChartRow& row, const RowLayout& layout, double top) {
  double sum = 0;
  for (size_t i = 0; i < std::min(row.parts.size(), chart.parts.size()); ++i) {
    const double width = PartWidth(row.parts[i]);
    const double from = layout.axis.At(sum), to = layout.axis.At(sum + width);
    sum += width;
    if (width > 0 && to > from) canvas->Rectangle({from, top}, to - from, kBarHeight, PartStyle(chart, i, row.hollow));
  }
  if (row.low == row.high || !layout.axis.Holds(row.low) || !layout.axis.Holds(row.high)) return;
  const double low = layout.axis.At(row.low), high = layout.axis.At(row.high), middle = top + kBarHeight / 2;
  if (high - low < kLeastErrorBar) return;
  for (const char* style : {"stroke=\"#fff\" stroke-width=\"4\"", "stroke=\"#222\" stroke-width=\"1.4\""}) {
    canvas->Line({low, middle}, {high, middle}, style);
    canvas->Line({low, middle - 4}, {low, middle + 4}, style);
    canvas->Line({high, middle - 4}, {high, middle + 4}, style);
  }
}

void DrawMarks(SvgCanvas* canvas, const RowChart& chart, const ChartRow& row, const RowLayout& layout, double middle) {
  std::vector<double> places;
  for (double value : row.marks) {
    if (layout.axis.Holds(value)) places.push_back(layout.axis.At(value));
  }
  if (chart.join_marks && places.size() > 1) {
    const auto [first, last] = std::minmax_element(places.begin(), places.end());
    canvas->Line({*first, middle}, {*last, middle}, "stroke=\"#777\" stroke-width=\"1.6\"");
  }
  for (size_t i = 0; i < std::min(row.marks.size(), chart.marks.size()); ++i) {
    if (layout.axis.Holds(row.marks[i])) {
      DrawMark(canvas, chart.marks[i], {layout.axis.At(row.marks[i]), middle}, row.hollow);
    }
  }
}

double RowHeight(const ChartRow& row) {
  const auto headings = static_cast<double>(WrapText(row.heading, kHeading.width, kHeading.font).size());
  return kBarHeight + kRowGap + kHeading.height * headings;
}

void DrawRow(SvgCanvas* canvas, const RowChart& chart, const ChartRow& row, const RowLayout& layout, double top) {
  top = DrawLines(canvas, row.heading, kHeading, top);
  const double font = kSmallFont, middle = top + kBarHeight / 2;
  canvas->BeginTooltip(row.tooltip);
  canvas->Text({layout.left - 6, middle + 4}, ElideText(row.label, layout.left - 6, font), TextAnchor::kEnd, font,
               kSoftText);
  DrawParts(canvas, chart, row, layout, top);
  DrawMarks(canvas, chart, row, layout, middle);
  canvas->Text({kChartWidth, middle + 4}, ElideText(row.note, layout.note_width + 1, font), TextAnchor::kEnd, font,
               "fill=\"#333\"");
  canvas->EndTooltip();
}

}  // namespace

std::string DrawXyChart(const XyChart& chart, bool with_title) {
  SvgCanvas canvas;
  const double top = DrawHead(&canvas, with_title ? chart.title : "", chart.remark, LegendOf(chart));
  const Plot plot = PlotOf(chart, top + 28);
  DrawBehind(&canvas, chart, plot);
  DrawAxes(&canvas, chart, plot);
  for (const ChartSeries& series : chart.series) DrawSeries(&canvas, series, plot);
  DrawPointLabels(&canvas, chart, plot);
  return canvas.Finish(kChartWidth, plot.bottom + 42, chart.title);
}

std::string DrawRowChart(const RowChart& chart, bool with_title) {
  SvgCanvas canvas;
  for (size_t i = 0; i < chart.parts.size(); ++i) {
    using Pattern = SvgCanvas::Pattern;
    const PartFill fill = chart.parts[i].fill;
    if (fill == PartFill::kSolid) continue;
    const Pattern lines = fill == PartFill::kLines ? Pattern::kLines : Pattern::kCrosses;
    canvas.DefinePattern(PatternId(chart, i), fill == PartFill::kDots ? Pattern::kDots : lines, kBarInk);
  }
  double top = DrawHead(&canvas, with_title ? chart.title : "", chart.remark, RowLegend(chart)) + 2;
  const RowLayout layout = LayoutOf(chart);
  double bottom = top;
  for (const ChartRow& row : chart.rows) bottom += RowHeight(row);
  for (const AxisTick& tick : layout.axis.ticks()) {
    const double x = layout.axis.At(tick.value);
    canvas.Line({x, top}, {x, bottom + 3}, "stroke=\"#ddd\"");
  }
  DrawTickLabels(&canvas, layout.axis, bottom + 17);
  for (const ChartRow& row : chart.rows) {
    DrawRow(&canvas, chart, row, layout, top);
    top += RowHeight(row);
  }
  canvas.Line({layout.left, bottom}, {layout.right, bottom}, "stroke=\"#222\"");
  canvas.Text({layout.right, bottom + 34}, ElideText(LabelOf(chart.axis), layout.right, kFont), TextAnchor::kEnd, kFont,
              "font-style=\"italic\"");
  return canvas.Finish(kChartWidth, bottom + 40, chart.title);
}

}  // namespace stagecoach
