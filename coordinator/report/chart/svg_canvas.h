#ifndef STAGECOACH_COORDINATOR_REPORT_CHART_SVG_CANVAS_H_
#define STAGECOACH_COORDINATOR_REPORT_CHART_SVG_CANVAS_H_

// Builds one SVG picture (SVG 1.1, within an HTML page or as a file). It refers to nothing outside itself. All text is
// escaped here; a style is a list of our own attributes. Coordinates: finite pixels from the upper left.

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

// As content or quoted attribute, in XML and HTML. What is no UTF-8 or not allowed in XML becomes U+FFFD.
std::string EscapeMarkup(absl::string_view text);

// The estimated width of text, so that nothing is drawn over it: a program that writes SVG cannot ask the font. In
// pixels at this font size, by the widths of Helvetica, which Arial and Liberation Sans share; non-ASCII counts as
// wide.
double TextWidth(absl::string_view text, double font_size);
// The text, or as much of its start as fits with an ellipsis behind it; nothing where not even that fits.
std::string ElideText(absl::string_view text, double width, double font_size);
// Lines of at most that width, broken at spaces; what is wider than a line is elided. None for an empty text.
std::vector<std::string> WrapText(absl::string_view text, double width, double font_size);

// At most two digits behind the point, none of them a trailing zero.
std::string SvgNumber(double value);

struct SvgPosition {
  double x = 0, y = 0;
};

enum class TextAnchor { kStart, kMiddle, kEnd };

// Shapes that can be told apart without colour. The order is that of the series in a chart.
enum class MarkerShape { kCircle, kSquare, kTriangle, kDiamond, kDownTriangle, kCross, kStar, kHexagon };
inline constexpr int kMarkerShapes = 8;

class SvgCanvas {
 public:
  // Of text, where no other size is given.
  static constexpr double kFontSize = 12.5;
  static constexpr double kSmallFontSize = 11;

  void Line(SvgPosition from, SvgPosition to, absl::string_view style);
  void Polyline(const std::vector<SvgPosition>& positions, absl::string_view style);
  void Polygon(const std::vector<SvgPosition>& positions, absl::string_view style);
  void Rectangle(SvgPosition corner, double width, double height, absl::string_view style);
  // `at`: the baseline's start, middle or end.
  void Text(SvgPosition at, absl::string_view text, TextAnchor anchor = TextAnchor::kStart, double size = kFontSize,
            absl::string_view style = "");
  // `hollow`: white inside.
  void Marker(SvgPosition at, MarkerShape shape, absl::string_view colour, bool hollow, double radius);
  // What is drawn between the two shows this text when a pointer rests on it.
  void BeginTooltip(absl::string_view text);
  void EndTooltip();
  // A pattern for `fill="url(#id)"`; `id` is unique on the page. Lines from lower left to upper right, dots, or
  // lines both ways.
  enum class Pattern { kLines, kDots, kCrosses };
  void DefinePattern(absl::string_view id, Pattern pattern, absl::string_view colour);

  // `name`: what the picture shows, for readers who do not see it.
  std::string Finish(double width, double height, absl::string_view name) const;

 private:
  std::string body_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_CHART_SVG_CANVAS_H_
