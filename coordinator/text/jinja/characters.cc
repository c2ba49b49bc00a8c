#include "coordinator/text/jinja/characters.h"

#include <algorithm>

#include "coordinator/text/unicode_tables.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::jinja {
namespace {

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

bool IsWhiteSpace(uint32_t code_point) {
  if (code_point < 0x80)
    return (code_point >= 0x09 && code_point <= 0x0D) || (code_point >= 0x1C && code_point <= 0x20);
  return code_point == 0x85 || code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 || code_point == 0x2029 ||
         code_point == 0x202F || code_point == 0x205F || code_point == 0x3000;
}

bool IsLineEnd(uint32_t code_point) {
  return (code_point >= 0x0A && code_point <= 0x0D) || (code_point >= 0x1C && code_point <= 0x1E) ||
         code_point == 0x85 || code_point == 0x2028 || code_point == 0x2029;
}

bool IsAlphanumeric(uint32_t code_point) {
  const CharClass kind = ClassOf(code_point);
  return kind == CharClass::kLetter || kind == CharClass::kNumber;
}

size_t CountCharacters(absl::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); }));
}

size_t SkipWhiteSpace(absl::string_view text, size_t begin) {
  while (begin < text.size()) {
    const DecodedChar next = DecodeUtf8(text, begin);
    if (!IsWhiteSpace(next.code_point)) break;
    begin += next.bytes;
  }
  return begin;
}

size_t SizeWithoutTrailingSpace(absl::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t start = StartOfCharacterBefore(text, end);
    if (!IsWhiteSpace(DecodeUtf8(text, start).code_point)) break;
    end = start;
  }
  return end;
}

size_t ByteOfCharacter(absl::string_view text, size_t index) {
  size_t byte = 0;
  for (; byte < text.size(); ++byte) {
    if (IsContinuation(text[byte])) continue;
    if (index == 0) break;
    --index;
  }
  return byte;
}

size_t StartOfCharacterBefore(absl::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && IsContinuation(text[start])) --start;
  return start;
}

}  // namespace stagecoach::jinja
