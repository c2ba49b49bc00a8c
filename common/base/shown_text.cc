#include "common/base/shown_text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
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

bool IsPlainName(absl::string_view text, size_t most_bytes) {
  return !text.empty() && text.size() <= most_bytes && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  });
}

std::string CountOf(int64_t count, absl::string_view noun) {
  if (count == 1) return absl::StrCat("1 ", noun);
  return absl::StrCat(count, " ", noun, absl::EndsWith(noun, "ch") ? "es" : "s");
}

}  // namespace stagecoach
