#include "coordinator/text/jinja/syntax/literals.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/text/jinja/values/characters.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::jinja {
namespace {

// The value of a digit in any base up to 36; 36 for what is none.
int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 36;
}

// The end of the digits from `begin` on, with single underscores between them.
size_t DigitsEnd(absl::string_view text, size_t begin, int base) {
  size_t end = begin;
  while (end < text.size()) {
    const size_t digit = text[end] == '_' && end > begin ? end + 1 : end;
    if (digit >= text.size() || DigitValue(text[digit]) >= base) break;
    end = digit + 1;
  }
  return end;
}

int BaseOfPrefix(absl::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 10;
  const char kind = absl::ascii_tolower(static_cast<unsigned char>(text[1]));
  return kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
}

std::string WithoutUnderscores(absl::string_view text) {
  std::string digits(text);
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  return digits;
}

bool ParseDigits(absl::string_view text, int base, Integer* value) {
  *value = 0;
  for (const char c : text) {
    if (c == '_') continue;
    if (__builtin_mul_overflow(*value, static_cast<Integer>(base), value)) return false;
    if (__builtin_add_overflow(*value, static_cast<Integer>(DigitValue(c)), value)) return false;
  }
  return true;
}

absl::string_view Stripped(absl::string_view text) {
  text = text.substr(0, SizeWithoutTrailingSpace(text));
  return text.substr(SkipWhiteSpace(text, 0));
}

// The value of `digits` hexadecimal digits at `position`; nothing when they are not there.
std::optional<uint32_t> HexAt(absl::string_view text, size_t position, size_t digits) {
  if (position + digits > text.size()) return std::nullopt;
  uint32_t value = 0;
  for (size_t i = 0; i < digits; ++i) {
    const int digit = DigitValue(text[position + i]);
    if (digit >= 16) return std::nullopt;
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  return value;
}

// \ooo: up to three octal digits from `position` on.
uint32_t OctalAt(absl::string_view text, size_t* position) {
  uint32_t value = 0;
  for (int digits = 0; digits < 3 && *position < text.size() && DigitValue(text[*position]) < 8;
       ++digits, ++*position) {
    value = value * 8 + static_cast<uint32_t>(DigitValue(text[*position]));
  }
  return value;
}

// What \c stands for; 0 when it is no escape of one character.
char SimpleEscape(char c) {
  constexpr absl::string_view kEscapes = R"(abfnrtv\'")", kCharacters = "\a\b\f\n\r\t\v\\'\"";
  const size_t place = kEscapes.find(c);
  return place == absl::string_view::npos ? 0 : kCharacters[place];
}

}  // namespace

size_t FloatBytes(absl::string_view text) {
  size_t end = DigitsEnd(text, 0, 10);
  bool is_float = false;
  if (end + 1 < text.size() && text[end] == '.' && DigitValue(text[end + 1]) < 10) {
    end = DigitsEnd(text, end + 1, 10);
    is_float = true;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    const size_t sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-') ? 1 : 0;
    const size_t exponent_end = DigitsEnd(text, end + 1 + sign, 10);
    if (exponent_end > end + 1 + sign) return exponent_end;
  }
  return is_float ? end : 0;
}

size_t IntegerBytes(absl::string_view text) {
  const int base = BaseOfPrefix(text);
  if (base != 10) {
    const size_t start = text.size() > 2 && text[2] == '_' ? 3 : 2;
    const size_t end = DigitsEnd(text, start, base);
    return end > start ? end : 1;
  }
  return DigitsEnd(text, 0, text[0] == '0' ? 1 : 10);
}

double ParseFloat(absl::string_view text) {
  double value = 0;
  return absl::SimpleAtod(WithoutUnderscores(text), &value) ? value : 0;
}

bool ParseInteger(absl::string_view text, Integer* value) {
  const int base = BaseOfPrefix(text);
  return ParseDigits(base == 10 ? text : text.substr(2), base, value);
}

std::optional<Integer> IntegerOfText(absl::string_view text, int base) {
  text = Stripped(text);
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  if (base != 10 && BaseOfPrefix(text) == base) text.remove_prefix(2);
  Integer value = 0;
  if (text.empty() || text[0] == '_' || DigitsEnd(text, 0, base) != text.size() || !ParseDigits(text, base, &value))
    return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> FloatOfText(absl::string_view text) {
  text = Stripped(text);
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower.empty() || lower.find_first_not_of("0123456789.+-e_infaty") != std::string::npos) return std::nullopt;
  double value = 0;
  if (!absl::SimpleAtod(WithoutUnderscores(lower), &value)) return std::nullopt;
  return value;
}

absl::StatusOr<std::string> Unescaped(absl::string_view text) {
  std::string unescaped;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i++];
    if (c != '\\' || i == text.size()) {
      unescaped.push_back(c);
      continue;
    }
    const char kind = text[i++];
    if (const char simple = SimpleEscape(kind); simple != 0) {
      unescaped.push_back(simple);
    } else if (kind == 'x' || kind == 'u' || kind == 'U') {
      const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
      const std::optional<uint32_t> code_point = HexAt(text, i, digits);
      if (!code_point.has_value() || *code_point > 0x10FFFF) {
        return Invalid("the escape '\\", std::string(1, kind), "' needs ", digits,
                       " hexadecimal digits of a character");
      }
      const bool surrogate = *code_point >= 0xD800 && *code_point < 0xE000;
      AppendUtf8(surrogate ? kReplacementCharacter : *code_point, &unescaped);
      i += digits;
    } else if (kind >= '0' && kind <= '7') {
      --i;
      AppendUtf8(OctalAt(text, &i), &unescaped);
    } else if (kind == 'N') {
      return Invalid("the escape '\\N' is not supported");
    } else if (kind != '\n') {  // a line that goes on is one line
      unescaped.append({'\\', kind});
    }
  }
  return unescaped;
}

std::string IntegerDigits(Integer value, unsigned base) {
  std::string digits;
  unsigned __int128 rest = value < 0 ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  do {
    digits.push_back("0123456789abcdef"[static_cast<size_t>(rest % base)]);
    rest /= base;
  } while (rest != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string IntegerText(Integer value) { return absl::StrCat(value < 0 ? "-" : "", IntegerDigits(value, 10)); }

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const double magnitude = std::fabs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const std::to_chars_result end = std::to_chars(buffer, buffer + sizeof(buffer), value, format);
  std::string text(buffer, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace stagecoach::jinja
