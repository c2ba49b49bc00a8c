#include "coordinator/front/api/token_text.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

bool IsValidUtf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = DecodeUtf8(text, i);
    if (c.code_point == kReplacementCharacter && c.bytes == 1) return false;
    i += c.bytes;
  }
  return true;
}

}  // namespace

int64_t CodePoints(absl::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

std::string TokenText(const Tokenizer& tokenizer, TokenId token) {
  const std::string bytes = tokenizer.TokenBytes(token, /*render_control=*/true);
  if (IsValidUtf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (char byte : bytes) absl::StrAppendFormat(&text, "\\x%02x", static_cast<uint8_t>(byte));
  return text;
}

// A token's text is sought where the last one's ended: the tokens that the vocabulary adds at the ends are not in the
// text, nor is the space that it puts before it.
std::vector<int64_t> PromptOffsets(const Tokenizer& tokenizer, absl::Span<const TokenId> prompt,
                                   absl::string_view text) {
  std::vector<int64_t> offsets;
  size_t at = 0;
  int64_t code_points = 0;
  for (const TokenId token : prompt) {
    offsets.push_back(code_points);
    std::string bytes = tokenizer.TokenBytes(token, /*render_control=*/true);
    if (!absl::StartsWith(text.substr(at), bytes) && !bytes.empty() && bytes[0] == ' ') bytes.erase(0, 1);
    if (!absl::StartsWith(text.substr(at), bytes)) continue;
    code_points += CodePoints(bytes);
    at += bytes.size();
  }
  return offsets;
}

}  // namespace stagecoach
