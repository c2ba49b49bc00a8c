#include "coordinator/text/pretokenizer.h"

#include "coordinator/text/unicode_tables.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

struct NamedPreTokenizer {
  const char* name;
  PreTokenizer kind;
};

// The first of each kind is the usual name; the others are names that converters write for the same expression.
constexpr NamedPreTokenizer kNames[] = {
    {"qwen2", PreTokenizer::kQwen2},        {"deepseek-r1-qwen", PreTokenizer::kQwen2},
    {"megrez", PreTokenizer::kQwen2},       {"kormo", PreTokenizer::kQwen2},
    {"llama-bpe", PreTokenizer::kLlamaBpe}, {"llama3", PreTokenizer::kLlamaBpe},
    {"llama-v3", PreTokenizer::kLlamaBpe},  {"falcon3", PreTokenizer::kLlamaBpe},
    {"pixtral", PreTokenizer::kLlamaBpe},   {"gpt-2", PreTokenizer::kGpt2},
    {"phi-2", PreTokenizer::kGpt2},         {"olmo", PreTokenizer::kGpt2},
    {"mpt", PreTokenizer::kGpt2},           {"jina-es", PreTokenizer::kGpt2},
    {"jina-de", PreTokenizer::kGpt2},       {"jina-v2-es", PreTokenizer::kGpt2},
    {"jina-v2-de", PreTokenizer::kGpt2},
};

bool IsLineBreak(uint32_t code_point) { return code_point == '\r' || code_point == '\n'; }

// One character, or the end of the text.
struct Char {
  bool end = true;
  uint32_t code_point = 0;
  size_t bytes = 0;
  CharClass char_class = CharClass::kOther;
  bool Is(CharClass c) const { return !end && char_class == c; }
};

Char CharAt(absl::string_view text, size_t position) {
  if (position >= text.size()) return Char{};
  const DecodedChar decoded = DecodeUtf8(text, position);
  return Char{false, decoded.code_point, decoded.bytes, ClassOf(decoded.code_point)};
}

// The end of the characters of one class from `position` on, `limit` of them at most.
size_t EndOfRun(absl::string_view text, size_t position, CharClass char_class, size_t limit = SIZE_MAX) {
  for (size_t count = 0; count < limit; ++count) {
    const Char next = CharAt(text, position);
    if (!next.Is(char_class)) break;
    position += next.bytes;
  }
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

// The last three alternatives, for a text that starts with white space: \s*[\r\n]+ (when `break_after_lines`), then
// \s+(?!\S), then \s+.
size_t WhitespaceBytes(absl::string_view text, bool break_after_lines) {
  size_t end = 0, last_char = 0, after_last_line = 0;
  for (Char next = CharAt(text, 0); next.Is(CharClass::kSpace); next = CharAt(text, end)) {
    last_char = end;
    end += next.bytes;
    if (IsLineBreak(next.code_point)) after_last_line = end;
  }
  if (break_after_lines && after_last_line > 0) return after_last_line;
  // The last one of several before a word belongs to the word's piece or stands alone.
  return end == text.size() || last_char == 0 ? end : last_char;
}

// qwen2 and llama-bpe, which differ in how many digits one piece takes.
size_t FirstPieceOfQwen2(absl::string_view text, size_t max_digits) {
  if (const size_t contraction = ContractionBytes(text, /*fold_case=*/true); contraction > 0) return contraction;
  const Char first = CharAt(text, 0);
  if (first.char_class == CharClass::kLetter) return EndOfRun(text, 0, CharClass::kLetter);
  if (first.char_class == CharClass::kNumber) return EndOfRun(text, 0, CharClass::kNumber, max_digits);
  if (!IsLineBreak(first.code_point) && CharAt(text, first.bytes).Is(CharClass::kLetter)) {
    return EndOfRun(text, first.bytes, CharClass::kLetter);
  }
  const size_t start = text[0] == ' ' ? 1 : 0;
  size_t end = EndOfRun(text, start, CharClass::kOther);
  if (end == start) return WhitespaceBytes(text, /*break_after_lines=*/true);
  while (end < text.size() && IsLineBreak(static_cast<uint8_t>(text[end]))) ++end;
  return end;
}

size_t FirstPieceOfGpt2(absl::string_view text) {
  if (const size_t contraction = ContractionBytes(text, /*fold_case=*/false); contraction > 0) return contraction;
  const size_t start = text[0] == ' ' ? 1 : 0;
  const Char first = CharAt(text, start);
  if (first.end || first.char_class == CharClass::kSpace) return WhitespaceBytes(text, /*break_after_lines=*/false);
  return EndOfRun(text, start, first.char_class);
}

}  // namespace

std::optional<PreTokenizer> PreTokenizerByName(absl::string_view name) {
  for (const NamedPreTokenizer& entry : kNames) {
    if (name == entry.name) return entry.kind;
  }
  return std::nullopt;
}

std::string SupportedPreTokenizers() {
  std::string names;
  for (const NamedPreTokenizer& entry : kNames) names.append(names.empty() ? "" : ", ").append(entry.name);
  return names;
}

size_t FirstPieceBytes(PreTokenizer kind, absl::string_view text) {
  if (text.empty()) return 0;
  switch (kind) {
    case PreTokenizer::kQwen2: return FirstPieceOfQwen2(text, 1);
    case PreTokenizer::kLlamaBpe: return FirstPieceOfQwen2(text, 3);
    case PreTokenizer::kGpt2: return FirstPieceOfGpt2(text);
  }
  return text.size();
}

}  // namespace stagecoach
