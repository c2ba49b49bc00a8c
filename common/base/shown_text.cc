#include "common/base/shown_text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {

std::string CutText(absl::string_view text, size_t most_characters) {
  size_t characters = 0, end = 0;
  const size_t most_bytes = std::min(text.size(), 4 * most_characters);  // of no UTF-8 every byte may continue another
  for (; end < text.size(); ++end) {
    const bool begins = (static_cast<uint8_t>(text[end]) & 0xC0) != 0x80;
    if (begins && ++characters > most_characters) break;
    if (end >= most_bytes) break;
  }
  return absl::StrCat(text.substr(0, end), end < text.size() ? "..." : "");
}

std::string ShownText(absl::string_view text) {
  constexpr size_t kMostShownBytes = 60;  // each of which may become four
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMostShownBytes)),
                      text.size() > kMostShownBytes ? "..." : "", "'");
}

}  // namespace stagecoach
