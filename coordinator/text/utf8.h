#ifndef STAGECOACH_COORDINATOR_TEXT_UTF8_H_
#define STAGECOACH_COORDINATOR_TEXT_UTF8_H_

// UTF-8 as the Unicode Standard defines it (chapter 3, table 3-7): no overlong forms, surrogates, or beyond U+10FFFF.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

inline constexpr uint32_t kReplacementCharacter = 0xFFFD;

struct DecodedChar {
  uint32_t code_point;  // kReplacementCharacter for a byte that starts no valid sequence
  size_t bytes;         // 1 to 4; 1 for such a byte
};

// The character at `position`, which is less than text.size(). Never reads beyond the text.
DecodedChar DecodeUtf8(absl::string_view text, size_t position);

// Appends `text` to *out as valid UTF-8: each broken part becomes one U+FFFD (the longest start of a valid sequence is
// one part). A sequence cut short by the end is left. Returns the bytes taken: all but 0 to 3.
size_t AppendWholeUtf8(absl::string_view text, std::string* out);

void AppendUtf8(uint32_t code_point, std::string* out);

// Whether the byte continues a character.
inline bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }
int64_t CodePoints(absl::string_view utf8);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_UTF8_H_
