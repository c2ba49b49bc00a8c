#include "coordinator/text/utf8.h"

#include <algorithm>

namespace stagecoach {
namespace {

uint8_t ByteAt(absl::string_view text, size_t position) { return static_cast<uint8_t>(text[position]); }

// The length a lead byte announces; 0 for a byte that cannot lead.
size_t LengthOf(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;  // continuation bytes, and leads of overlong forms
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// Whether `byte` may follow the lead byte directly. All later bytes are any of 0x80 to 0xBF.
bool MaySecond(uint8_t lead, uint8_t byte) {
  if (lead == 0xE0) return byte >= 0xA0 && byte <= 0xBF;  // overlong
  if (lead == 0xED) return byte >= 0x80 && byte <= 0x9F;  // surrogates
  if (lead == 0xF0) return byte >= 0x90 && byte <= 0xBF;  // overlong
  if (lead == 0xF4) return byte >= 0x80 && byte <= 0x8F;  // beyond U+10FFFF
  return (byte & 0xC0) == 0x80;
}

// How many bytes at `position` agree with the sequence the lead byte announces; at least 1 for a valid lead, else 0.
size_t ValidPrefix(absl::string_view text, size_t position) {
  const uint8_t lead = ByteAt(text, position);
  const size_t length = LengthOf(lead);
  size_t valid = length == 0 ? 0 : 1;
  while (valid < length && position + valid < text.size()) {
    const uint8_t byte = ByteAt(text, position + valid);
    if (valid == 1 ? !MaySecond(lead, byte) : (byte & 0xC0) != 0x80) break;
    ++valid;
  }
  return valid;
}

}  // namespace

DecodedChar DecodeUtf8(absl::string_view text, size_t position) {
  const uint8_t lead = ByteAt(text, position);
  if (lead < 0x80) return {lead, 1};
  const size_t length = LengthOf(lead);
  if (length == 0 || ValidPrefix(text, position) < length) return {kReplacementCharacter, 1};
  uint32_t code_point = lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (ByteAt(text, position + i) & 0x3F);
  return {code_point, length};
}

size_t AppendWholeUtf8(absl::string_view text, std::string* out) {
  size_t position = 0;
  while (position < text.size()) {
    const size_t length = LengthOf(ByteAt(text, position));
    const size_t valid = ValidPrefix(text, position);
    if (length > 0 && valid == length) {
      out->append(text.data() + position, length);
      position += length;
    } else if (valid > 0 && position + valid == text.size()) {
      break;
    } else {
      AppendUtf8(kReplacementCharacter, out);
      position += valid > 0 ? valid : 1;
    }
  }
  return position;
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  const auto byte = [out](uint32_t value) { out->push_back(static_cast<char>(static_cast<uint8_t>(value))); };
  if (code_point < 0x80) {
    byte(code_point);
  } else if (code_point < 0x800) {
    byte(0xC0 | code_point >> 6);
    byte(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    byte(0xE0 | code_point >> 12);
    byte(0x80 | (code_point >> 6 & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  } else {
    byte(0xF0 | code_point >> 18);
    byte(0x80 | (code_point >> 12 & 0x3F));
    byte(0x80 | (code_point >> 6 & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  }
}

int64_t CodePoints(absl::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char byte) { return !IsContinuation(byte); });
}

}  // namespace stagecoach
