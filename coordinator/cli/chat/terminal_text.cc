#include "coordinator/cli/chat/terminal_text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

constexpr uint32_t kPictureOfNull = 0x2400;
constexpr uint32_t kPictureOfDelete = 0x2421;

// `text` is valid UTF-8.
std::string WithoutControls(absl::string_view text) {
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const DecodedChar next = DecodeUtf8(text, at);
    const uint32_t c = next.code_point;
    if (c == '\n' || c == '\t' || (c >= 0x20 && c < 0x7F) || c > 0x9F) {
      absl::StrAppend(&shown, text.substr(at, next.bytes));
    } else if (c < 0x20 && c != '\r') {
      AppendUtf8(kPictureOfNull + c, &shown);
    } else if (c != '\r') {
      AppendUtf8(c == 0x7F ? kPictureOfDelete : kReplacementCharacter, &shown);
    }
    at += next.bytes;
  }
  return shown;
}

}  // namespace

std::string TerminalText::Push(absl::string_view text) {
  absl::StrAppend(&waiting_, text);
  std::string whole;
  waiting_.erase(0, AppendWholeUtf8(waiting_, &whole));
  return WithoutControls(whole);
}

std::string TerminalText::Flush() {
  const bool cut = !waiting_.empty();
  waiting_.clear();
  std::string rest;
  if (cut) AppendUtf8(kReplacementCharacter, &rest);
  return rest;
}

std::string ForTerminal(absl::string_view text) {
  TerminalText filter;
  std::string shown = filter.Push(text);
  return shown + filter.Flush();
}

}  // namespace stagecoach
