#ifndef STAGECOACH_COORDINATOR_TEXT_SPLIT_PATTERNS_H_
#define STAGECOACH_COORDINATOR_TEXT_SPLIT_PATTERNS_H_

// The expressions that pre-tokenizers are published as, a scanner each. A scanner gives the length in bytes of the
// first piece of a text that is not empty: what the expression matches at its start or, where it matches nothing there,
// what lies before its first match. It looks at little more than that piece, and at nothing beyond the text.
//
// Contractions fold ASCII letters only.

#include <cstddef>

#include "absl/strings/string_view.h"

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

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_SPLIT_PATTERNS_H_
