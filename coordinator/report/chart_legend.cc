#include "coordinator/report/chart_legend.h"

#include <algorithm>

#include "coordinator/report/chart_style.h"
#include "coordinator/report/text_width.h"

namespace stagecoach {
namespace {

constexpr double kLegendLine = 18;
constexpr double kTitleSize = 15, kTitleLine = 19;

}  // namespace

double DrawTitle(SvgCanvas* canvas, const std::string& title, double top) {
  for (const std::string& line : WrapText(title, kChartWidth * 0.93, kTitleSize)) {  // bold is a little wider
    top += kTitleLine;
    canvas->Text({0, top - 4}, line, TextAnchor::kStart, kTitleSize, "font-weight=\"bold\"");
  }
  return top;
}

double DrawRemark(SvgCanvas* canvas, const std::string& remark, double top) {
  for (const std::string& line : WrapText(remark, kChartWidth * 0.93, SvgCanvas::kFontSize)) {
    top += kLegendLine;
    canvas->Text({0, top - 5}, line, TextAnchor::kStart, SvgCanvas::kFontSize, "font-weight=\"bold\"");
  }
  return top;
}

double DrawLegend(SvgCanvas* canvas, const std::vector<LegendEntry>& entries, double top) {
  if (entries.empty()) return top;
  double left = 0;
  for (const LegendEntry& entry : entries) {
    const double room = kChartWidth - kLegendSample - 6;
    const std::string label = ElideText(entry.label, room, SvgCanvas::kFontSize);
    const double width = kLegendSample + 6 + TextWidth(label, SvgCanvas::kFontSize);
    if (left > 0 && left + width > kChartWidth) {
      left = 0;
      top += kLegendLine;
    }
    const double middle = top + kLegendLine / 2;
    entry.sample(canvas, left, middle);
    canvas->Text({left + kLegendSample + 6, middle + 4.5}, label, TextAnchor::kStart, SvgCanvas::kFontSize, "");
    left += width + 18;
  }
  return top + kLegendLine;
}

void DrawTickLabels(SvgCanvas* canvas, const AxisScale& axis, double baseline) {
  double last_right = -1e9;
  for (const AxisTick& tick : axis.ticks()) {
    const double half = TextWidth(tick.label, SvgCanvas::kFontSize) / 2;
    const double middle = std::clamp(axis.At(tick.value), half, kChartWidth - half);
    if (middle - half < last_right + 5) continue;  // no room
    canvas->Text({middle, baseline}, tick.label, TextAnchor::kMiddle, SvgCanvas::kFontSize, kSoftText);
    last_right = middle + half;
  }
}

}  // namespace stagecoach
