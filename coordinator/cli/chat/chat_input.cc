#include "coordinator/cli/chat/chat_input.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/shown_text.h"
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

bool ContinuesOnNextLine(absl::string_view line) {
  const size_t last = line.find_last_not_of('\\');
  const size_t backslashes = line.size() - (last == absl::string_view::npos ? 0 : last + 1);
  return backslashes % 2 == 1;
}

enum class Argument { kNone, kOptional, kNeeded };

struct CommandEntry {
  ChatCommand command;
  const char* name;
  const char* argument;  // as the help shows it
  Argument takes;
  const char* help;
};

constexpr CommandEntry kCommands[] = {
    {ChatCommand::kHelp, "help", "", Argument::kNone, "this list"},
    {ChatCommand::kExit, "exit", "", Argument::kNone, "leave; Ctrl-D does too"},
    {ChatCommand::kClear, "clear", "", Argument::kNone, "forget the conversation; the system message stays"},
    {ChatCommand::kSystem, "system", "[TEXT]", Argument::kOptional,
     "show the system message, or set it; \"\" removes it"},
    {ChatCommand::kUndo, "undo", "", Argument::kNone, "take back the last message and its answer"},
    {ChatCommand::kRegenerate, "regenerate", "", Argument::kNone, "answer the last message anew"},
    {ChatCommand::kThink, "think", "on|off", Argument::kNeeded,
     "whether the model thinks first, where its template asks"},
    {ChatCommand::kSet, "set", "[NAME VALUE]", Argument::kOptional,
     "how tokens are chosen: show it, or change it; VALUE default takes a change back"},
    {ChatCommand::kSave, "save", "FILE", Argument::kNeeded, "write the conversation, as JSON messages"},
    {ChatCommand::kLoad, "load", "FILE", Argument::kNeeded, "read one, in place of this"},
    {ChatCommand::kStats, "stats", "", Argument::kNone, "tokens, speed, context"},
};

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
  inside_ = ContinuesOnNextLine(line);
  if (inside_) line.remove_suffix(1);
  Append(line);
  if (inside_) return std::nullopt;
  return Complete();
}

absl::StatusOr<std::optional<ChatInput>> MessageReader::TakeUnfinished() {
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

absl::StatusOr<ChatCommandCall> ParseChatCommand(absl::string_view text) {
  const size_t end = text.find_first_of(" \t\n");
  const absl::string_view name = text.substr(1, end == absl::string_view::npos ? end : end - 1);
  const absl::string_view argument = end == absl::string_view::npos ? "" : absl::StripAsciiWhitespace(text.substr(end));
  for (const CommandEntry& entry : kCommands) {
    if (name != entry.name) continue;
    if (entry.takes == Argument::kNone && !argument.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("/", name, " takes no argument, found '", CutText(argument), "'"));
    }
    if (entry.takes == Argument::kNeeded && argument.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("/", name, " lacks its argument: /", name, " ", entry.argument));
    }
    return ChatCommandCall{entry.command, std::string(argument)};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no command '/", name,
                   "'; /help lists them, and a message that begins with a slash is written with a blank before it"));
}

std::string ChatCommandHelp() {
  std::string help;
  for (const CommandEntry& entry : kCommands) {
    absl::StrAppendFormat(&help, "  %-20s %s\n", absl::StrCat("/", entry.name, " ", entry.argument), entry.help);
  }
  absl::StrAppend(&help,
                  "A message goes on in the next line where a line ends with \\, and from \"\"\" to \"\"\".\n"
                  "Ctrl-C stops an answer and keeps what came; twice in a row it leaves.\n");
  return help;
}

}  // namespace stagecoach
