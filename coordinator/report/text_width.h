#ifndef STAGECOACH_COORDINATOR_REPORT_TEXT_WIDTH_H_
#define STAGECOACH_COORDINATOR_REPORT_TEXT_WIDTH_H_

// How wide text will be in a picture, so that nothing is drawn over it: a program that writes SVG cannot ask the font.
// Pure.

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

// In pixels at that size of a font. The widths are Helvetica's, which Arial and Liberation Sans have too; characters
// outside of ASCII are taken for wide ones.
double TextWidth(absl::string_view text, double font_size);

// The text, or as much of its start as fits with an ellipsis behind it; nothing where not even that fits.
std::string ElideText(absl::string_view text, double width, double font_size);

// Lines of at most that width, broken at spaces; what is wider than a line is elided. None for an empty text.
std::vector<std::string> WrapText(absl::string_view text, double width, double font_size);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_TEXT_WIDTH_H_
