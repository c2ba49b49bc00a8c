#include "coordinator/cli/chat/chat_screen.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
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

constexpr absl::string_view kDim = "\x1b[2m";
constexpr absl::string_view kPlain = "\x1b[0m";

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

bool TerminalDims() {
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org
  return term != nullptr && absl::string_view(term) != "dumb" && (no_color == nullptr || *no_color == '\0');
}

ChatScreen::ChatScreen(ChatScreenOptions options, Output output, Messages messages)
    : options_(options), output_(std::move(output)), messages_(std::move(messages)) {}

// Starts a new line between reasoning and answer.
absl::Status ChatScreen::Switch(AnswerPart part) {
  if (part == part_) return absl::OkStatus();
  part_ = part;
  std::string text = filter_.Flush();
  if (options_.dims && part == AnswerPart::kContent) absl::StrAppend(&text, kPlain);
  if (!at_line_start_) text += '\n';
  at_line_start_ = true;
  if (options_.dims && part == AnswerPart::kReasoning) absl::StrAppend(&text, kDim);
  return output_(text);
}

absl::Status ChatScreen::Show(AnswerPart part, absl::string_view text) {
  if (text.empty()) return absl::OkStatus();
  if (!options_.terminal) {
    if (part == AnswerPart::kReasoning) return absl::OkStatus();
    shown_ = true;
    return output_(options_.output_terminal ? filter_.Push(text) : std::string(text));
  }
  RETURN_IF_ERROR(Switch(part));
  const std::string clean = filter_.Push(text);
  if (clean.empty()) return absl::OkStatus();
  shown_ = true;
  at_line_start_ = clean.back() == '\n';
  return output_(clean);
}

absl::Status ChatScreen::EndAnswer(bool of_nothing_too) {
  const bool shown = std::exchange(shown_, false) || of_nothing_too;
  if (!options_.terminal) return shown ? output_(filter_.Flush() + "\n") : absl::OkStatus();
  std::string text = filter_.Flush();
  at_line_start_ = at_line_start_ && text.empty();
  if (options_.dims && part_ == AnswerPart::kReasoning) absl::StrAppend(&text, kPlain);
  part_ = AnswerPart::kContent;
  if (shown && (!at_line_start_ || of_nothing_too)) text += '\n';
  at_line_start_ = true;
  return text.empty() ? absl::OkStatus() : output_(text);
}

absl::Status ChatScreen::Say(absl::string_view lines) {
  const std::string text = ForTerminal(absl::StrCat(absl::StripSuffix(lines, "\n"), "\n"));
  if (options_.terminal) return output_(text);
  messages_(text);
  return absl::OkStatus();
}

absl::Status ChatScreen::Note(absl::string_view line) {
  if (options_.quiet) return absl::OkStatus();
  const std::string clean = ForTerminal(line);
  if (!options_.terminal) {
    messages_(clean + "\n");
    return absl::OkStatus();
  }
  return output_(options_.dims ? absl::StrCat(kDim, clean, kPlain, "\n") : absl::StrCat(clean, "\n"));
}

absl::Status ChatScreen::NewLine() { return options_.terminal ? output_("\n") : absl::OkStatus(); }

}  // namespace stagecoach
