#ifndef STAGECOACH_COMMON_BASE_SHOWN_TEXT_H_
#define STAGECOACH_COMMON_BASE_SHOWN_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

// A stranger's text as a message can show it: in single quotes, its beginning alone where it is long, and what a
// terminal would take for an order, or a reader for another line, escaped.
std::string ShownText(absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_SHOWN_TEXT_H_
