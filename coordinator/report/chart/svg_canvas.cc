#include "coordinator/report/chart/svg_canvas.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"

namespace stagecoach {
namespace {

constexpr char kEllipsis[] = "\xE2\x80\xA6";

// Thousandths of the font's size, from the space to the tilde (Adobe's metrics of Helvetica).
constexpr uint16_t kWidths[] = {278,  278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,
                                556,  556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,
                                1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
                                667,  778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,
                                333,  556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,
                                556,  556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584};
static_assert(sizeof(kWidths) / sizeof(kWidths[0]) == '~' - ' ' + 1);

// Of a character by its first byte; 0 for the bytes that continue one.
double CharacterWidth(char c) {
  const uint8_t byte = static_cast<uint8_t>(c);
  if (byte >= ' ' && byte <= '~') return kWidths[byte - ' '] / 1000.0;
  if (byte < 0x80) return 0.3;
  if (byte < 0xC0) return 0;
  return byte < 0xE1 ? 0.6 : 1;  // Latin, Greek, Cyrillic; then signs and the scripts of East Asia
}

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

// The size of the UTF-8 character that `text` starts with; 0 if it is invalid or not allowed in XML.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' || first == '\r' ? 1 : 0;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  uint32_t character = first & (0x7Fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    character = character << 6 | (byte(i) & 0x3Fu);
  }
  const uint32_t smallest = size == 4 ? 0x10000 : size == 3 ? 0x800 : 0x80;
  const bool surrogate = character >= 0xD800 && character < 0xE000;
  const bool no_character = character == 0xFFFE || character == 0xFFFF || character > 0x10FFFF;
  return character < smallest || surrogate || no_character ? 0 : size;
}

std::string Positions(const std::vector<SvgPosition>& positions) {
  std::string text;
  for (const SvgPosition& position : positions) {
    absl::StrAppend(&text, text.empty() ? "" : " ", SvgNumber(position.x), ",", SvgNumber(position.y));
  }
  return text;
}

// The corners of a star or a regular polygon; a star's inner ones are nearer to the middle.
std::vector<SvgPosition> RoundCorners(SvgPosition at, double radius, int corners, double inner, double turn) {
  std::vector<SvgPosition> positions;
  for (int i = 0; i < corners; ++i) {
    const double angle = turn + 2 * M_PI * i / corners;
    const double r = i % 2 == 0 ? radius : radius * inner;
    positions.push_back({at.x + r * std::sin(angle), at.y - r * std::cos(angle)});
  }
  return positions;
}

// Empty for a circle. All shapes look about as large as a circle of that radius.
std::vector<SvgPosition> MarkerCorners(MarkerShape shape, SvgPosition at, double radius) {
  const double r = radius;
  switch (shape) {
    case MarkerShape::kCircle: return {};
    case MarkerShape::kSquare: return RoundCorners(at, r * 1.25, 4, 1, M_PI / 4);
    case MarkerShape::kTriangle: return RoundCorners({at.x, at.y + r * 0.2}, r * 1.3, 3, 1, 0);
    case MarkerShape::kDiamond: return RoundCorners(at, r * 1.35, 4, 1, 0);
    case MarkerShape::kDownTriangle: return RoundCorners({at.x, at.y - r * 0.2}, r * 1.3, 3, 1, M_PI);
    case MarkerShape::kCross: {
      const double a = r * 0.4, b = r * 1.15;
      return {{at.x - a, at.y - b}, {at.x + a, at.y - b}, {at.x + a, at.y - a}, {at.x + b, at.y - a},
              {at.x + b, at.y + a}, {at.x + a, at.y + a}, {at.x + a, at.y + b}, {at.x - a, at.y + b},
              {at.x - a, at.y + a}, {at.x - b, at.y + a}, {at.x - b, at.y - a}, {at.x - a, at.y - a}};
    }
    case MarkerShape::kStar: return RoundCorners(at, r * 1.45, 10, 0.45, 0);
    case MarkerShape::kHexagon: return RoundCorners(at, r * 1.15, 6, 1, M_PI / 6);
  }
  return {};
}

}  // namespace

std::string EscapeMarkup(absl::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    switch (bytes == 1 ? text[0] : 0) {
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '&': escaped += "&amp;"; break;
      case '"': escaped += "&quot;"; break;
      case '\'': escaped += "&#39;"; break;
      default: absl::StrAppend(&escaped, bytes == 0 ? kReplacement : text.substr(0, bytes));
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return escaped;
}

double TextWidth(absl::string_view text, double font_size) {
  double width = 0;
  for (char c : text) width += CharacterWidth(c);
  return width * font_size;
}

std::string ElideText(absl::string_view text, double width, double font_size) {
  if (text.empty() || TextWidth(text, font_size) <= width) return std::string(text);
  double left = width - TextWidth(kEllipsis, font_size);
  if (left < 0) return "";
  size_t size = 0;
  while (size < text.size()) {
    size_t next = size + 1;
    while (next < text.size() && (static_cast<uint8_t>(text[next]) & 0xC0) == 0x80) ++next;
    left -= TextWidth(text.substr(size, next - size), font_size);
    if (left < 0) break;
    size = next;
  }
  return absl::StrCat(text.substr(0, size), kEllipsis);
}

std::vector<std::string> WrapText(absl::string_view text, double width, double font_size) {
  std::vector<std::string> lines;
  std::string line;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::string longer = line.empty() ? std::string(word) : absl::StrCat(line, " ", word);
    if (line.empty() || TextWidth(longer, font_size) <= width) {
      line = longer;
      continue;
    }
    lines.push_back(ElideText(line, width, font_size));
    line = std::string(word);
  }
  if (!line.empty()) lines.push_back(ElideText(line, width, font_size));
  return lines;
}

std::string SvgNumber(double value) {
  CHECK(std::isfinite(value));  // whatever was measured, a coordinate is within the picture
  std::string text = absl::StrFormat("%.2f", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

void SvgCanvas::Line(SvgPosition from, SvgPosition to, absl::string_view style) {
  absl::StrAppend(&body_, "<line x1=\"", SvgNumber(from.x), "\" y1=\"", SvgNumber(from.y), "\" x2=\"", SvgNumber(to.x));
  absl::StrAppend(&body_, "\" y2=\"", SvgNumber(to.y), "\" ", style, "/>\n");
}

void SvgCanvas::Polyline(const std::vector<SvgPosition>& positions, absl::string_view style) {
  if (positions.size() < 2) return;
  absl::StrAppend(&body_, "<polyline points=\"", Positions(positions), "\" fill=\"none\" ", style, "/>\n");
}

void SvgCanvas::Polygon(const std::vector<SvgPosition>& positions, absl::string_view style) {
  absl::StrAppend(&body_, "<polygon points=\"", Positions(positions), "\" ", style, "/>\n");
}

void SvgCanvas::Rectangle(SvgPosition corner, double width, double height, absl::string_view style) {
  absl::StrAppend(&body_, "<rect x=\"", SvgNumber(corner.x), "\" y=\"", SvgNumber(corner.y), "\" width=\"");
  absl::StrAppend(&body_, SvgNumber(width), "\" height=\"", SvgNumber(height), "\" ", style, "/>\n");
}

void SvgCanvas::Text(SvgPosition at, absl::string_view text, TextAnchor anchor, double size, absl::string_view style) {
  absl::StrAppend(&body_, "<text x=\"", SvgNumber(at.x), "\" y=\"", SvgNumber(at.y), "\" text-anchor=\"");
  static constexpr const char* kAnchors[] = {"start", "middle", "end"};
  absl::StrAppend(&body_, kAnchors[static_cast<size_t>(anchor)], "\" font-size=\"", SvgNumber(size), "\"",
                  style.empty() ? "" : " ", style);
  absl::StrAppend(&body_, ">", EscapeMarkup(text), "</text>\n");
}

void SvgCanvas::Marker(SvgPosition at, MarkerShape shape, absl::string_view colour, bool hollow, double radius) {
  const std::string style = absl::StrCat("fill=\"", hollow ? "#fff" : colour, "\" stroke=\"", hollow ? colour : "#fff",
                                         "\" stroke-width=\"", hollow ? "1.6" : "0.8", "\"");
  const std::vector<SvgPosition> corners = MarkerCorners(shape, at, radius);
  if (!corners.empty()) return Polygon(corners, style);
  absl::StrAppend(&body_, "<circle cx=\"", SvgNumber(at.x), "\" cy=\"", SvgNumber(at.y), "\" r=\"", SvgNumber(radius));
  absl::StrAppend(&body_, "\" ", style, "/>\n");
}

void SvgCanvas::BeginTooltip(absl::string_view text) {
  absl::StrAppend(&body_, "<g><title>", EscapeMarkup(text), "</title>\n");
}

void SvgCanvas::EndTooltip() { body_ += "</g>\n"; }

void SvgCanvas::DefinePattern(absl::string_view id, Pattern pattern, absl::string_view colour) {
  absl::StrAppend(&body_, "<defs><pattern id=\"", EscapeMarkup(id), "\" width=\"5\" height=\"5\" ",
                  "patternUnits=\"userSpaceOnUse\"><rect width=\"5\" height=\"5\" fill=\"#fff\"/>");
  if (pattern == Pattern::kLines) {
    absl::StrAppend(&body_, "<path d=\"M-1,1 l2,-2 M0,5 l5,-5 M4,6 l2,-2\" stroke=\"", colour,
                    "\" stroke-width=\"1.7\"/>");
  } else if (pattern == Pattern::kCrosses) {
    absl::StrAppend(&body_, "<path d=\"M0,0 l5,5 M0,5 l5,-5\" stroke=\"", colour, "\" stroke-width=\"0.8\"/>");
  } else {
    absl::StrAppend(&body_, "<circle cx=\"2.5\" cy=\"2.5\" r=\"0.8\" fill=\"", colour, "\"/>");
  }
  body_ += "</pattern></defs>\n";
}

std::string SvgCanvas::Finish(double width, double height, absl::string_view name) const {
  return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", SvgNumber(width), " ",
                      SvgNumber(height), "\" width=\"", SvgNumber(width), "\" height=\"", SvgNumber(height),
                      "\" role=\"img\" aria-label=\"", EscapeMarkup(name),
                      "\" font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\" fill=\"#222\">\n",
                      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", body_, "</svg>\n");
}

}  // namespace stagecoach
