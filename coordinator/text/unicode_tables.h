#ifndef STAGECOACH_COORDINATOR_TEXT_UNICODE_TABLES_H_
#define STAGECOACH_COORDINATOR_TEXT_UNICODE_TABLES_H_

// The characters that pre-tokenizers tell apart (Unicode 14).

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace stagecoach {

enum class CharClass : uint8_t {
  kOther,   // punctuation, symbols, marks, controls, unassigned; also a byte that is not part of valid UTF-8
  kLetter,  // \p{L}
  kNumber,  // \p{N}
  kSpace,   // \s: the White_Space property, as the tokenizers of the models have it (without U+180E, which PCRE2 adds)
};

// The class of a code point; kOther for anything beyond U+10FFFF.
CharClass ClassOf(uint32_t code_point);

// Told apart more finely, for the pre-tokenizers that look at case, marks or scripts.
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

// The category of a code point; kOther for anything beyond U+10FFFF. ClassOf agrees on letters, numbers and spaces.
CharCategory CategoryOf(uint32_t code_point);

// Whether its script (not one of its script extensions) is Han: ideographs, and some numbers, marks and symbols.
bool IsHan(uint32_t code_point);

struct CodePointRange {
  uint32_t first, last;
};

// Of ascending ranges, the last that begins at or before the code point, which may lie beyond it; null: none does.
template <typename Ranges>
auto* RangeBefore(uint32_t code_point, const Ranges& ranges) {
  const auto after = std::upper_bound(std::begin(ranges), std::end(ranges), code_point,
                                      [](uint32_t value, const auto& range) { return value < range.first; });
  return after == std::begin(ranges) ? nullptr : &*std::prev(after);
}

// The range with the code point; null when there is none.
template <typename Ranges>
auto* RangeWith(uint32_t code_point, const Ranges& ranges) {
  auto* range = RangeBefore(code_point, ranges);
  return range == nullptr || code_point > range->last ? nullptr : range;
}

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_UNICODE_TABLES_H_
