#include "coordinator/text/split_patterns.h"

#include "coordinator/text/text_chars.h"

namespace stagecoach {

size_t EndOfLineBreaks(absl::string_view text, size_t position) {
  while (position < text.size() && IsLineBreak(static_cast<uint8_t>(text[position]))) ++position;
  return position;
}

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

namespace {

// qwen2 and llama-bpe, which differ in how many digits one piece takes.
size_t FirstPieceOfQwen2(absl::string_view text, size_t max_digits) {
  if (const size_t contraction = ContractionBytes(text, /*fold_case=*/true); contraction > 0) return contraction;
  const TextChar first = CharAt(text, 0);
  const CharClass first_class = ClassOf(first.code_point);
  if (first_class == CharClass::kLetter) return EndOfClass(text, 0, CharClass::kLetter);
  if (first_class == CharClass::kNumber) return EndOfClass(text, 0, CharClass::kNumber, max_digits);
  if (!IsLineBreak(first.code_point) && CharAt(text, first.bytes).Is(CharClass::kLetter)) {
    return EndOfClass(text, first.bytes, CharClass::kLetter);
  }
  const size_t start = text[0] == ' ' ? 1 : 0;
  const size_t end = EndOfClass(text, start, CharClass::kOther);
  if (end == start) return WhitespaceBytes(text, /*break_after_lines=*/true);
  return EndOfLineBreaks(text, end);
}

}  // namespace

size_t SplitLikeQwen2(absl::string_view text) { return FirstPieceOfQwen2(text, 1); }

size_t SplitLikeLlamaBpe(absl::string_view text) { return FirstPieceOfQwen2(text, 3); }

size_t SplitLikeGpt2(absl::string_view text) {
  if (const size_t contraction = ContractionBytes(text, /*fold_case=*/false); contraction > 0) return contraction;
  const size_t start = text[0] == ' ' ? 1 : 0;
  const TextChar first = CharAt(text, start);
  if (first.at_end() || first.Is(CharClass::kSpace)) return WhitespaceBytes(text, /*break_after_lines=*/false);
  return EndOfClass(text, start, ClassOf(first.code_point));
}

}  // namespace stagecoach
