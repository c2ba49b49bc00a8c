#include "coordinator/cli/chat/message_reader.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kFence = "\"\"\"";

// Where the text stops being UTF-8; its size when it does not.
size_t FirstBrokenByte(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const DecodedChar next = DecodeUtf8(text, at);
    if (next.code_point == kReplacementCharacter && next.bytes == 1) break;
    at += next.bytes;
  }
  return at;
}

bool GoesOn(absl::string_view line) {
  const size_t last = line.find_last_not_of('\\');
  const size_t backslashes = line.size() - (last == absl::string_view::npos ? 0 : last + 1);
  return backslashes % 2 == 1;
}

}  // namespace

void MessageReader::Append(absl::string_view text) {
  if (!first_line_) text_ += '\n';
  first_line_ = false;
  if (text_.size() + text.size() > kMostMessageBytes) {
    too_long_ = true;
    text_.clear();
  }
  if (!too_long_) absl::StrAppend(&text_, text);
}

absl::StatusOr<std::optional<ChatInput>> MessageReader::Take(absl::string_view line) {
  if (fenced_) {
    const bool last = absl::ConsumeSuffix(&line, kFence);
    if (!last || !line.empty()) Append(line);
    if (!last) return std::nullopt;
    return Complete();
  }
  if (!inside_ && absl::ConsumePrefix(&line, kFence)) {
    inside_ = fenced_ = true;
    if (line.empty()) return std::nullopt;
    return Take(line);
  }
  inside_ = GoesOn(line);
  if (inside_) line.remove_suffix(1);
  Append(line);
  if (inside_) return std::nullopt;
  return Complete();
}

absl::StatusOr<std::optional<ChatInput>> MessageReader::TakeRest() {
  if (!inside_) return std::nullopt;
  return Complete();
}

absl::StatusOr<std::optional<ChatInput>> MessageReader::Complete() {
  const MessageReader taken = std::exchange(*this, MessageReader());
  if (taken.too_long_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message has more than ", kMostMessageBytes >> 20, " MiB and is left out"));
  }
  if (const size_t broken = FirstBrokenByte(taken.text_); broken < taken.text_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message is left out: it is no UTF-8 text from its byte ", broken, " on"));
  }
  if (taken.text_.find_first_not_of(" \t\r\n") == std::string::npos) return std::nullopt;
  ChatInput input;
  input.command = !taken.fenced_ && absl::StartsWith(taken.text_, "/");
  input.text = taken.text_;
  return input;
}

}  // namespace stagecoach
