#include "common/gguf/utf8_name.h"

#include <cstddef>
#include <cstdint>

namespace stagecoach {
namespace {

// Bytes of the code point that starts at text[at], 0 when it is not a valid one.
size_t CodePointBytes(absl::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const uint8_t second = byte(at + 1);
  if (lead == 0xe0 && second < 0xa0) return 0;  // overlong
  if (lead == 0xed && second > 0x9f) return 0;  // surrogate
  if (lead == 0xf0 && second < 0x90) return 0;  // overlong
  if (lead == 0xf4 && second > 0x8f) return 0;  // above U+10FFFF
  return length;
}

// Of one valid code point: U+0000 to U+001F and U+007F to U+009F.
bool IsControl(absl::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (text.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<uint8_t>(text[1]) < 0xa0;
}

}  // namespace

bool IsValidGgufName(absl::string_view text) {
  if (text.empty()) return false;
  for (size_t at = 0; at < text.size();) {
    const size_t length = CodePointBytes(text, at);
    if (length == 0 || IsControl(text.substr(at, length))) return false;
    at += length;
  }
  return true;
}

}  // namespace stagecoach
