#include "coordinator/cli/chat/chat_commands.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/shown_text.h"

namespace stagecoach {
namespace {

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
