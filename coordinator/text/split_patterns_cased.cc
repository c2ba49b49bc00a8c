// The expressions that tell a word's capitals from its small letters: gpt-4o, tekken and kimi-k2.

#include "coordinator/text/split_patterns.h"
#include "coordinator/text/text_chars.h"
#include "coordinator/text/unicode_categories.h"

namespace stagecoach {
namespace {

struct CasedPattern {
  size_t max_digits;
  bool contractions;  // belong to the word before them
  bool slashes;       // after signs, as line breaks
  bool han_apart;
};

// What a character can be in a word HEAD*TAIL+ or HEAD+TAIL*.
enum class WordPart { kNone, kHead, kTail, kEither };

WordPart PartOf(uint32_t code_point, bool han_apart) {
  if (han_apart && IsHan(code_point)) return WordPart::kNone;
  switch (CategoryOf(code_point)) {
    case CharCategory::kUpperLetter: return WordPart::kHead;
    case CharCategory::kLowerLetter: return WordPart::kTail;
    case CharCategory::kOtherLetter:
    case CharCategory::kMark: return WordPart::kEither;
    default: return WordPart::kNone;
  }
}

// The end of HEAD*TAIL+ from `begin` on; 0 where there is none. HEAD* takes all it can and gives back no more than it
// must: where no small letter follows, TAIL+ is the last of the characters that can be either.
size_t EndOfWordWithTail(absl::string_view text, size_t begin, bool han_apart) {
  size_t end = begin, after_last_either = 0;
  for (TextChar next = CharAt(text, end); !next.at_end(); next = CharAt(text, end)) {
    const WordPart part = PartOf(next.code_point, han_apart);
    if (part == WordPart::kNone) break;
    if (part == WordPart::kTail) {
      return EndOfRun(text, end, [han_apart](uint32_t c) {
        const WordPart more = PartOf(c, han_apart);
        return more == WordPart::kTail || more == WordPart::kEither;
      });
    }
    end += next.bytes;
    if (part == WordPart::kEither) after_last_either = end;
  }
  return after_last_either;
}

// The end of the word that the text starts with, its contraction aside; 0 where it starts with none.
size_t EndOfCasedWord(absl::string_view text, bool han_apart) {
  const TextChar first = CharAt(text, 0);
  const CharClass first_class = ClassOf(first.code_point);
  // [^\r\n\p{L}\p{N}]?, which a mark can be as well
  const bool sign =
      first_class != CharClass::kLetter && first_class != CharClass::kNumber && !IsLineBreak(first.code_point);
  if (sign) {
    if (const size_t end = EndOfWordWithTail(text, first.bytes, han_apart); end > 0) return end;
  }
  if (const size_t end = EndOfWordWithTail(text, 0, han_apart); end > 0) return end;
  // HEAD+TAIL*: capitals alone, or there would have been a tail.
  const size_t begin = sign ? first.bytes : 0;
  const size_t end = EndOfRun(text, begin, [han_apart](uint32_t c) { return PartOf(c, han_apart) == WordPart::kHead; });
  return end > begin ? end : 0;
}

size_t FirstPieceOfCased(absl::string_view text, const CasedPattern& pattern) {
  const TextChar first = CharAt(text, 0);
  if (pattern.han_apart && IsHan(first.code_point)) return EndOfRun(text, 0, IsHan);
  if (const size_t end = EndOfCasedWord(text, pattern.han_apart); end > 0) {
    return pattern.contractions ? end + ContractionBytes(text.substr(end), /*fold_case=*/true) : end;
  }
  if (first.Is(CharClass::kNumber)) return EndOfClass(text, 0, CharClass::kNumber, pattern.max_digits);
  const size_t start = text[0] == ' ' ? 1 : 0;
  size_t end = EndOfClass(text, start, CharClass::kOther);
  if (end == start) return WhitespaceBytes(text, /*break_after_lines=*/true);
  while (end < text.size() && (IsLineBreak(static_cast<uint8_t>(text[end])) || (pattern.slashes && text[end] == '/'))) {
    ++end;
  }
  return end;
}

}  // namespace

size_t SplitLikeGpt4o(absl::string_view text) {
  return FirstPieceOfCased(text, {/*max_digits=*/3, /*contractions=*/true, /*slashes=*/true, /*han_apart=*/false});
}

size_t SplitLikeTekken(absl::string_view text) {
  return FirstPieceOfCased(text, {/*max_digits=*/1, /*contractions=*/false, /*slashes=*/true, /*han_apart=*/false});
}

size_t SplitLikeKimiK2(absl::string_view text) {
  return FirstPieceOfCased(text, {/*max_digits=*/3, /*contractions=*/true, /*slashes=*/false, /*han_apart=*/true});
}

}  // namespace stagecoach
