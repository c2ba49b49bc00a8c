#ifndef STAGECOACH_COORDINATOR_TEXT_SPLIT_PATTERNS_H_
#define STAGECOACH_COORDINATOR_TEXT_SPLIT_PATTERNS_H_

// The expressions that pre-tokenizers are published as, a scanner each. A scanner returns the bytes of the first piece
// of a non-empty text: the match at its start or, without one, what lies before the first match. It looks at little
// more than that piece. Contractions fold ASCII letters only.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "coordinator/text/unicode_tables.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {

using SplitPattern = size_t (*)(absl::string_view text);

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t SplitLikeQwen2(absl::string_view text);

// the same with \p{N}{1,3}
size_t SplitLikeLlamaBpe(absl::string_view text);

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t SplitLikeGpt2(absl::string_view text);

// With HEAD for [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], TAIL for [\p{Ll}\p{Lm}\p{Lo}\p{M}] and 'S for
// (?i:'s|'t|'re|'ve|'m|'ll|'d):
// [^\r\n\p{L}\p{N}]?HEAD*TAIL+('S)?|[^\r\n\p{L}\p{N}]?HEAD+TAIL*('S)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
size_t SplitLikeGpt4o(absl::string_view text);

// the same with \p{N} and without ('S)?
size_t SplitLikeTekken(absl::string_view text);

// the same as SplitLikeGpt4o with \p{Han}+ before everything, no \p{Han} in HEAD and TAIL, and no / in [\r\n/]
size_t SplitLikeKimiK2(absl::string_view text);

// With PUNCT for the 32 signs of ASCII:
// PUNCT[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t SplitLikeDeepSeekV3(absl::string_view text);

size_t SplitAtEachNumber(absl::string_view text);         // \p{N}
size_t SplitAtThreeNumbers(absl::string_view text);       // \p{N}{1,3}
size_t SplitAtNumbers(absl::string_view text);            // \p{N}+
size_t SplitAtEachLineBreak(absl::string_view text);      // [\r\n]
size_t SplitAtIdeographsAndKana(absl::string_view text);  // [\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+
size_t SplitAtAsianScripts(absl::string_view text);       // [\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+
size_t SplitAtWords(absl::string_view text);              // \s?\p{L}+
size_t SplitAtPunctuation(absl::string_view text);        // \s?\p{P}+
// \s?[...]+ of the letters that had a case in Unicode 11
size_t SplitAtCasedWords(absl::string_view text);
// \s?[!-\/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+
size_t SplitAtAsciiSigns(absl::string_view text);
// \s+$ for texts in which a line break stands alone
size_t SplitAtSpacesAtEnd(absl::string_view text);

// What scanners have in common.

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

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_SPLIT_PATTERNS_H_
