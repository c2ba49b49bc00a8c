#ifndef STAGECOACH_COORDINATOR_TEXT_TEXT_CHARS_H_
#define STAGECOACH_COORDINATOR_TEXT_TEXT_CHARS_H_

// What the scanners of split_patterns.h have in common: characters, runs of them, white space and contractions.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "coordinator/text/unicode_tables.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {

inline bool IsLineBreak(uint32_t code_point) { return code_point == '\r' || code_point == '\n'; }

// One character, or the end of the text.
struct TextChar {
  uint32_t code_point = 0;
  size_t bytes = 0;  // 0: the end
  bool at_end() const { return bytes == 0; }
  bool Is(CharClass char_class) const { return !at_end() && ClassOf(code_point) == char_class; }
};

inline TextChar CharAt(absl::string_view text, size_t position) {
  if (position >= text.size()) return TextChar{};
  const DecodedChar decoded = DecodeUtf8(text, position);
  return TextChar{decoded.code_point, decoded.bytes};
}

// The end of the characters from `position` on of which `belongs` is true, `limit` of them at most.
template <typename Belongs>
size_t EndOfRun(absl::string_view text, size_t position, Belongs belongs, size_t limit = SIZE_MAX) {
  for (size_t count = 0; count < limit; ++count) {
    const TextChar next = CharAt(text, position);
    if (next.at_end() || !belongs(next.code_point)) break;
    position += next.bytes;
  }
  return position;
}

inline size_t EndOfClass(absl::string_view text, size_t position, CharClass char_class, size_t limit = SIZE_MAX) {
  return EndOfRun(
      text, position, [char_class](uint32_t c) { return ClassOf(c) == char_class; }, limit);
}

// The end of the line breaks from `position` on.
size_t EndOfLineBreaks(absl::string_view text, size_t position);

// The length of a contraction ('s 't 're 've 'm 'll 'd) at the start of the text; 0 when there is none.
size_t ContractionBytes(absl::string_view text, bool fold_case);

// \s*[\r\n]+ (when `break_after_lines`), then \s+(?!\S), then \s+, of a text that starts with white space.
size_t WhitespaceBytes(absl::string_view text, bool break_after_lines);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_TEXT_CHARS_H_
