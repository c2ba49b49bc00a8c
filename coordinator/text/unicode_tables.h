#ifndef STAGECOACH_COORDINATOR_TEXT_UNICODE_TABLES_H_
#define STAGECOACH_COORDINATOR_TEXT_UNICODE_TABLES_H_

// The character classes that pre-tokenizers tell apart (Unicode 14).

#include <cstdint>

namespace stagecoach {

enum class CharClass : uint8_t {
  kOther,   // punctuation, symbols, marks, controls, unassigned; also a byte that is not part of valid UTF-8
  kLetter,  // \p{L}
  kNumber,  // \p{N}
  kSpace,   // \s: the White_Space property, as the tokenizers of the models have it (without U+180E, which PCRE2 adds)
};

// The class of a code point; kOther for anything beyond U+10FFFF.
CharClass ClassOf(uint32_t code_point);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_UNICODE_TABLES_H_
