#include "coordinator/report/text_width.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

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

}  // namespace

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

}  // namespace stagecoach
