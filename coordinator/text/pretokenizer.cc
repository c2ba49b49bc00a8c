#include "coordinator/text/pretokenizer.h"

#include "coordinator/text/unicode_tables.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

bool IsLineBreak(uint32_t code_point) { return code_point == '\r' || code_point == '\n'; }

// One character, or the end of the text.
struct TextChar {
  uint32_t code_point = 0;
  size_t bytes = 0;  // 0: the end
  bool at_end() const { return bytes == 0; }
  bool Is(CharClass char_class) const { return !at_end() && ClassOf(code_point) == char_class; }
};

TextChar CharAt(absl::string_view text, size_t position) {
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

size_t EndOfClass(absl::string_view text, size_t position, CharClass char_class, size_t limit = SIZE_MAX) {
  return EndOfRun(
      text, position, [char_class](uint32_t c) { return ClassOf(c) == char_class; }, limit);
}

// The end of the line breaks from `position` on.
size_t EndOfLineBreaks(absl::string_view text, size_t position) {
  while (position < text.size() && IsLineBreak(static_cast<uint8_t>(text[position]))) ++position;
  return position;
}

// The length of a contraction ('s 't 're 've 'm 'll 'd) at the start of the text; 0 when there is none.
size_t ContractionBytes(absl::string_view text, bool fold_case) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto letter = [&](size_t i) {
    return fold_case && text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] - 'A' + 'a') : text[i];
  };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (text.size() < 3) return 0;
  const char second = letter(2);
  const bool found = ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  return found ? 3 : 0;
}

// \s*[\r\n]+ (when `break_after_lines`), then \s+(?!\S), then \s+, of a text that starts with white space.
size_t WhitespaceBytes(absl::string_view text, bool break_after_lines) {
  size_t end = 0, last_char = 0, after_last_line = 0;
  for (TextChar next = CharAt(text, 0); next.Is(CharClass::kSpace); next = CharAt(text, end)) {
    last_char = end;
    end += next.bytes;
    if (IsLineBreak(next.code_point)) after_last_line = end;
  }
  if (break_after_lines && after_last_line > 0) return after_last_line;
  // The last one of several before a word belongs to the word's piece or stands alone.
  return end == text.size() || last_char == 0 ? end : last_char;
}

bool IsNumber(uint32_t c) { return ClassOf(c) == CharClass::kNumber; }
bool IsLetter(uint32_t c) { return ClassOf(c) == CharClass::kLetter; }
bool IsLetterOrMark(uint32_t c) { return IsLetter(c) || CategoryOf(c) == CharCategory::kMark; }

// qwen2, qwen35 and llama-bpe, which differ in how many digits one piece takes, and in what belongs to a word.
template <typename OfWord>
size_t FirstPieceOfQwen(absl::string_view text, size_t max_digits, OfWord of_word) {
  if (const size_t contraction = ContractionBytes(text, /*fold_case=*/true); contraction > 0) return contraction;
  const TextChar first = CharAt(text, 0);
  if (of_word(first.code_point)) return EndOfRun(text, 0, of_word);
  if (first.Is(CharClass::kNumber)) return EndOfClass(text, 0, CharClass::kNumber, max_digits);
  if (!IsLineBreak(first.code_point)) {
    if (const size_t end = EndOfRun(text, first.bytes, of_word); end > first.bytes) return end;
  }
  const size_t start = text[0] == ' ' ? 1 : 0;
  const size_t end = EndOfRun(text, start, [&](uint32_t c) { return ClassOf(c) == CharClass::kOther && !of_word(c); });
  if (end == start) return WhitespaceBytes(text, /*break_after_lines=*/true);
  return EndOfLineBreaks(text, end);
}

// The expressions that tell a word's capitals from its small letters: gpt-4o, tekken and kimi-k2.
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

// The expressions that DeepSeek's pre-tokenizers apply one after the other, and those of single characters.

// X{1,limit}
template <typename Belongs>
size_t FirstPieceOfSet(absl::string_view text, Belongs belongs, size_t limit = SIZE_MAX) {
  const size_t end = EndOfRun(text, 0, belongs, limit);
  return end > 0 ? end : EndOfRun(text, 0, [&](uint32_t c) { return !belongs(c); });
}

// \s?X+
template <typename Belongs>
size_t FirstPieceOfSpacedSet(absl::string_view text, Belongs belongs) {
  for (size_t position = 0;;) {
    const TextChar first = CharAt(text, position);
    if (first.at_end()) return position;
    const size_t after_space = first.Is(CharClass::kSpace) ? position + first.bytes : position;
    size_t end = EndOfRun(text, after_space, belongs);
    if (end == after_space) end = EndOfRun(text, position, belongs, 1);  // the space itself may be one of X
    if (end > position) return position > 0 ? position : end;
    position += first.bytes;
  }
}

bool IsAsciiLetter(uint32_t c) { return (c | 0x20) - 'a' < 26; }

bool IsSign(uint32_t c) {
  const CharCategory category = CategoryOf(c);
  return category == CharCategory::kPunctuation || category == CharCategory::kSymbol;
}

bool IsIdeographOrKana(uint32_t c) { return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF); }
bool IsOfAsianScripts(uint32_t c) { return (c >= 0x800 && c <= 0x9FA5) || (c >= 0xAC00 && c <= 0xD7FF); }

// From ":" to "~", so that the letters of ASCII are among them.
bool IsAsciiSign(uint32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '~') || (c >= 0xFF01 && c <= 0xFF0F) ||
         (c >= 0xFF1A && c <= 0xFF5E) || (c >= 0x2018 && c <= 0x201F) || (c >= 0x3000 && c <= 0x3002);
}

// As the published expression lists them.
constexpr CodePointRange kCasedLetters[] = {
    {0x0041, 0x005A},   {0x0061, 0x007A},   {0x00B5, 0x00B5},   {0x00C0, 0x00D6},   {0x00D8, 0x00F6},
    {0x00F8, 0x01BA},   {0x01BC, 0x01BF},   {0x01C4, 0x0293},   {0x0295, 0x02AF},   {0x0370, 0x0373},
    {0x0376, 0x0377},   {0x037B, 0x037D},   {0x037F, 0x037F},   {0x0386, 0x0386},   {0x0388, 0x038A},
    {0x038C, 0x038C},   {0x038E, 0x03A1},   {0x03A3, 0x03F5},   {0x03F7, 0x0481},   {0x048A, 0x052F},
    {0x0531, 0x0556},   {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},
    {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},
    {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
    {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},
    {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},
    {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},
    {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},
    {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},
    {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

bool IsCasedLetter(uint32_t c) { return RangeWith(c, kCasedLetters) != nullptr; }

// What the expression of deepseek-v3 matches at the start of the text; 0 for nothing.
size_t MatchOfDeepSeekV3(absl::string_view text) {
  const TextChar first = CharAt(text, 0);
  const bool sign = IsSign(first.code_point);
  if (sign && first.code_point < 0x80) {
    if (const size_t end = EndOfRun(text, 1, IsAsciiLetter); end > 1) return end;
  }
  if (IsLetterOrMark(first.code_point)) return EndOfRun(text, 0, IsLetterOrMark);
  if (!sign && !IsLineBreak(first.code_point)) {
    if (const size_t end = EndOfRun(text, first.bytes, IsLetterOrMark); end > first.bytes) return end;
  }
  const size_t start = text[0] == ' ' ? 1 : 0;
  if (const size_t end = EndOfRun(text, start, IsSign); end > start) return EndOfLineBreaks(text, end);
  return first.Is(CharClass::kSpace) ? WhitespaceBytes(text, /*break_after_lines=*/true) : 0;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t SplitLikeQwen2(absl::string_view text) { return FirstPieceOfQwen(text, 1, IsLetter); }

// the same with [\p{L}\p{M}] for \p{L}, except in the first class
size_t SplitLikeQwen35(absl::string_view text) { return FirstPieceOfQwen(text, 1, IsLetterOrMark); }

// the same as SplitLikeQwen2 with \p{N}{1,3}
size_t SplitLikeLlamaBpe(absl::string_view text) { return FirstPieceOfQwen(text, 3, IsLetter); }

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t SplitLikeGpt2(absl::string_view text) {
  if (const size_t contraction = ContractionBytes(text, /*fold_case=*/false); contraction > 0) return contraction;
  const size_t start = text[0] == ' ' ? 1 : 0;
  const TextChar first = CharAt(text, start);
  if (first.at_end() || first.Is(CharClass::kSpace)) return WhitespaceBytes(text, /*break_after_lines=*/false);
  return EndOfClass(text, start, ClassOf(first.code_point));
}

// With HEAD for [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], TAIL for [\p{Ll}\p{Lm}\p{Lo}\p{M}] and 'S for
// (?i:'s|'t|'re|'ve|'m|'ll|'d):
// [^\r\n\p{L}\p{N}]?HEAD*TAIL+('S)?|[^\r\n\p{L}\p{N}]?HEAD+TAIL*('S)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
size_t SplitLikeGpt4o(absl::string_view text) {
  return FirstPieceOfCased(text, {/*max_digits=*/3, /*contractions=*/true, /*slashes=*/true, /*han_apart=*/false});
}

// the same with \p{N} and without ('S)?
size_t SplitLikeTekken(absl::string_view text) {
  return FirstPieceOfCased(text, {/*max_digits=*/1, /*contractions=*/false, /*slashes=*/true, /*han_apart=*/false});
}

// the same as SplitLikeGpt4o with \p{Han}+ before everything, no \p{Han} in HEAD and TAIL, and no / in [\r\n/]
size_t SplitLikeKimiK2(absl::string_view text) {
  return FirstPieceOfCased(text, {/*max_digits=*/3, /*contractions=*/true, /*slashes=*/false, /*han_apart=*/true});
}

// With PUNCT for the 32 signs of ASCII:
// PUNCT[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t SplitLikeDeepSeekV3(absl::string_view text) {
  if (const size_t end = MatchOfDeepSeekV3(text); end > 0) return end;
  // Controls and the like. One of them is part of the match of the letter or mark after it, no other is part of any.
  size_t position = 0;
  while (position < text.size() && MatchOfDeepSeekV3(text.substr(position)) == 0) {
    position += CharAt(text, position).bytes;
  }
  return position;
}

size_t SplitAtEachNumber(absl::string_view text) { return FirstPieceOfSet(text, IsNumber, 1); }        // \p{N}
size_t SplitAtThreeNumbers(absl::string_view text) { return FirstPieceOfSet(text, IsNumber, 3); }      // \p{N}{1,3}
size_t SplitAtNumbers(absl::string_view text) { return FirstPieceOfSet(text, IsNumber); }              // \p{N}+
size_t SplitAtEachLineBreak(absl::string_view text) { return FirstPieceOfSet(text, IsLineBreak, 1); }  // [\r\n]
// [\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+
size_t SplitAtIdeographsAndKana(absl::string_view text) { return FirstPieceOfSet(text, IsIdeographOrKana); }
// [\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+
size_t SplitAtAsianScripts(absl::string_view text) { return FirstPieceOfSet(text, IsOfAsianScripts); }
// \s?[...]+ of the letters that had a case in Unicode 11
size_t SplitAtCasedWords(absl::string_view text) { return FirstPieceOfSpacedSet(text, IsCasedLetter); }
// \s?[!-\/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+
size_t SplitAtAsciiSigns(absl::string_view text) { return FirstPieceOfSpacedSet(text, IsAsciiSign); }
size_t SplitAtWords(absl::string_view text) { return FirstPieceOfSpacedSet(text, IsLetter); }  // \s?\p{L}+

// \s?\p{P}+
size_t SplitAtPunctuation(absl::string_view text) {
  return FirstPieceOfSpacedSet(text, [](uint32_t c) { return CategoryOf(c) == CharCategory::kPunctuation; });
}

// \s+$ for texts in which a line break stands alone
size_t SplitAtSpacesAtEnd(absl::string_view text) {
  size_t after_last_word = 0;
  for (size_t position = 0; position < text.size();) {
    const TextChar next = CharAt(text, position);
    position += next.bytes;
    if (!next.Is(CharClass::kSpace)) after_last_word = position;
  }
  return after_last_word > 0 ? after_last_word : text.size();
}

}  // namespace

// By PreTokenizer, each up to the first that is null.
const PieceCutter::SplitPattern PieceCutter::kPatterns[][kMaxPatterns + 1] = {
    {SplitLikeQwen2},
    {SplitLikeQwen35},
    {SplitLikeLlamaBpe},
    {SplitLikeGpt2},
    {SplitAtEachNumber, SplitLikeGpt2},
    {SplitLikeGpt4o},
    {SplitLikeTekken},
    {SplitLikeKimiK2},
    {SplitAtThreeNumbers, SplitAtIdeographsAndKana, SplitLikeDeepSeekV3},
    {SplitAtEachLineBreak, SplitAtCasedWords, SplitAtAsciiSigns, SplitAtSpacesAtEnd, SplitAtAsianScripts,
     SplitAtNumbers},
    {SplitAtEachLineBreak, SplitAtWords, SplitAtPunctuation, SplitAtAsianScripts, SplitAtEachNumber},
};

size_t EndOfSpace(absl::string_view text, size_t position) { return EndOfClass(text, position, CharClass::kSpace); }

absl::string_view PieceCutter::Next() {
  const size_t begin = position_;
  size_t end = text_.size();
  if (begin == end) return {};
  for (size_t i = 0; patterns_[i] != nullptr; ++i) {
    // No expression looks behind where it starts, so the rest of a piece is split as it would be from its beginning.
    if (ends_[i] <= begin) ends_[i] = begin + patterns_[i](text_.substr(begin, end - begin));
    end = ends_[i];
  }
  position_ = end;
  return text_.substr(begin, end - begin);
}

}  // namespace stagecoach
