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
  std::string bytes = tokenizer.TokenBytes(token, /*render_control=*/true);
  return IsValidUtf8(bytes) ? bytes : TokenBytesText(tokenizer, token);
}

std::string TokenBytesText(const Tokenizer& tokenizer, TokenId token) {
  std::string text = "bytes:";
  for (const char byte : tokenizer.TokenBytes(token, /*render_control=*/true)) {
    absl::StrAppendFormat(&text, "\\x%02x", static_cast<uint8_t>(byte));
  }
  return text;
}

// A token's text is sought where the last one's ended: the tokens that the vocabulary adds at the ends are not in the
// text, nor is the space that it puts before it. Tokens that are no UTF-8 stand there as replacement characters. A
// character that several tokens make up counts with its last byte, as in an answer.
std::vector<int64_t> PromptOffsets(const Tokenizer& tokenizer, absl::Span<const TokenId> prompt,
                                   absl::string_view text) {
  constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";
  const auto inside_character = [text](size_t at) { return at < text.size() && CodePoints(text.substr(at, 1)) == 0; };
  std::vector<int64_t> offsets;
  size_t at = 0;
  int64_t code_points = 0;
  for (const TokenId token : prompt) {
    std::string bytes = tokenizer.TokenBytes(token, /*render_control=*/true);
    if (!absl::StartsWith(text.substr(at), bytes) && !bytes.empty() && bytes[0] == ' ') bytes.erase(0, 1);
    size_t replaced = at;
    while (!absl::StartsWith(text.substr(replaced), bytes) && absl::StartsWith(text.substr(replaced), kReplacement)) {
      replaced += kReplacement.size();
    }
    const bool found = absl::StartsWith(text.substr(replaced), bytes);
    if (found) {
      code_points += CodePoints(text.substr(at, replaced - at));
      at = replaced;
    }
    offsets.push_back(code_points - (inside_character(at) ? 1 : 0));
    if (!found) continue;
    code_points += CodePoints(bytes);
    at += bytes.size();
  }
  return offsets;
}

}  // namespace stagecoach
