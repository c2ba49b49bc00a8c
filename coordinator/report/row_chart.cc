#include "coordinator/report/row_chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "coordinator/report/axis_scale.h"
#include "coordinator/report/chart_legend.h"
#include "coordinator/report/chart_style.h"
#include "coordinator/report/text_width.h"

namespace stagecoach {
namespace {

constexpr double kBarHeight = 13, kRowGap = 7, kHeadingLine = 18, kRowMarkerRadius = 4;
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
    label_width = std::max(label_width, TextWidth(row.label, SvgCanvas::kSmallFontSize));
    layout.note_width = std::max(layout.note_width, TextWidth(row.note, SvgCanvas::kSmallFontSize));
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
  return kBarHeight + kRowGap +
         kHeadingLine * static_cast<double>(WrapText(row.heading, kChartWidth, SvgCanvas::kFontSize).size());
}

void DrawRow(SvgCanvas* canvas, const RowChart& chart, const ChartRow& row, const RowLayout& layout, double top) {
  for (const std::string& line : WrapText(row.heading, kChartWidth, SvgCanvas::kFontSize)) {
    top += kHeadingLine;
    canvas->Text({0, top - 5}, line, TextAnchor::kStart, SvgCanvas::kFontSize,
                 "stroke=\"#fff\" stroke-width=\"4\" paint-order=\"stroke\"");
  }
  const double font = SvgCanvas::kSmallFontSize, middle = top + kBarHeight / 2;
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

std::string DrawRowChart(const RowChart& chart, bool with_title) {
  SvgCanvas canvas;
  for (size_t i = 0; i < chart.parts.size(); ++i) {
    if (chart.parts[i].fill == PartFill::kSolid) continue;
    const bool lines = chart.parts[i].fill == PartFill::kLines;
    canvas.DefinePattern(PatternId(chart, i), lines ? SvgCanvas::Pattern::kLines : SvgCanvas::Pattern::kDots, kBarInk);
  }
  double top = with_title ? DrawTitle(&canvas, chart.title, 0) + 4 : 0;
  top = DrawRemark(&canvas, chart.remark, top);
  top = DrawLegend(&canvas, RowLegend(chart), top) + 2;
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
  canvas.Text({layout.right, bottom + 34}, ElideText(chart.axis.label, layout.right, SvgCanvas::kFontSize),
              TextAnchor::kEnd, SvgCanvas::kFontSize, "font-style=\"italic\"");
  return canvas.Finish(kChartWidth, bottom + 40, chart.title);
}

}  // namespace stagecoach
