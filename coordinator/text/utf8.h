#ifndef STAGECOACH_COORDINATOR_TEXT_UTF8_H_
#define STAGECOACH_COORDINATOR_TEXT_UTF8_H_

// UTF-8 as the Unicode Standard defines it (chapter 3, table 3-7): no overlong forms, no surrogates, nothing beyond
// U+10FFFF.

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

// Appends `text` to *out as valid UTF-8: each broken part becomes one U+FFFD (the longest start of a valid sequence
// counts as one part). A sequence that the end of the text cuts short is left alone. Returns how many bytes of `text`
// were taken: all but 0 to 3.
size_t AppendWholeUtf8(absl::string_view text, std::string* out);

void AppendUtf8(uint32_t code_point, std::string* out);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_UTF8_H_
