#ifndef STAGECOACH_COORDINATOR_TEXT_UNICODE_CATEGORIES_H_
#define STAGECOACH_COORDINATOR_TEXT_UNICODE_CATEGORIES_H_

// Characters told apart more finely than by unicode_tables.h, for the pre-tokenizers that look at case, marks or
// scripts (Unicode 14).

#include <cstdint>

namespace stagecoach {

enum class CharCategory : uint8_t {
  kUpperLetter,  // \p{Lu} and \p{Lt}
  kLowerLetter,  // \p{Ll}
  kOtherLetter,  // \p{Lm} and \p{Lo}
  kMark,         // \p{M}
  kNumber,       // \p{N}
  kPunctuation,  // \p{P}
  kSymbol,       // \p{S}; U+FFFD, for which a byte that is not part of valid UTF-8 is taken, is one
  kSpace,        // \s, as CharClass::kSpace
  kOther,        // controls, formats, private use, unassigned
};

// The category of a code point; kOther for anything beyond U+10FFFF. What ClassOf calls a letter, a number or a space
// is one here.
CharCategory CategoryOf(uint32_t code_point);

// Whether its script (not one of its script extensions) is Han: ideographs, and some numbers, marks and symbols.
bool IsHan(uint32_t code_point);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_UNICODE_CATEGORIES_H_
