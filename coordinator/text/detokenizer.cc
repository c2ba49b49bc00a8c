#include <utility>

#include "coordinator/text/tokenizer.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {

std::string Tokenizer::Decode(absl::Span<const TokenId> tokens, bool render_control) const {
  std::string text;
  bool strip_space = strips_leading_space();
  for (const TokenId token : tokens) {
    std::string bytes = TokenBytes(token, render_control);
    // A control token before the text does not hide where the text starts.
    if (strip_space && !TokenBytes(token, /*render_control=*/false).empty()) {
      strip_space = false;
      if (bytes[0] == ' ') bytes.erase(0, 1);
    }
    text += bytes;
  }
  return text;
}

Detokenizer::Detokenizer(const Tokenizer* tokenizer, bool at_text_start, bool render_control)
    : tokenizer_(tokenizer),
      strip_space_(at_text_start && tokenizer->strips_leading_space()),
      render_control_(render_control) {}

std::string Detokenizer::Push(TokenId token) {
  const std::string bytes = tokenizer_->TokenBytes(token, render_control_);
  if (bytes.empty()) return "";
  const bool strip = std::exchange(strip_space_, false) && bytes[0] == ' ';
  pending_.append(bytes, strip ? 1 : 0, std::string::npos);
  std::string text;
  pending_.erase(0, AppendWholeUtf8(pending_, &text));
  return text;
}

std::string Detokenizer::Flush() {
  std::string text;
  if (!pending_.empty()) AppendUtf8(kReplacementCharacter, &text);
  pending_.clear();
  return text;
}

}  // namespace stagecoach
