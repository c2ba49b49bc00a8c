#include "coordinator/cli/command_table.h"

#include <algorithm>
#include <utility>

#include "CLI/App.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stagecoach {
namespace {

// "auto|g64" are choices; a word in capitals, as in "FILE|-", stands for something else.
bool AreChoices(const std::vector<std::string>& words) {
  return words.size() > 1 && std::none_of(words.begin(), words.end(), [](const std::string& word) {
           return word.empty() || absl::ascii_isupper(static_cast<unsigned char>(word[0]));
         });
}

CommandOption DescribeOption(const CLI::Option& option) {
  CommandOption described;
  for (const std::string& name : option.get_snames()) described.names.push_back(absl::StrCat("-", name));
  for (const std::string& name : option.get_lnames()) described.names.push_back(absl::StrCat("--", name));
  if (!option.nonpositional()) described.names.push_back(option.get_name(/*positional=*/true));
  described.description = option.get_description();
  described.group = option.get_group();
  described.required = option.get_required();
  if (option.get_items_expected_max() == 0) return described;
  described.value = option.get_type_name();
  described.shown_default = option.get_default_str();
  std::vector<std::string> words = absl::StrSplit(described.value, '|');
  described.kind = ValueKind::kOther;
  if (AreChoices(words)) {
    described.kind = ValueKind::kChoice;
    described.choices = std::move(words);
  } else if (described.value == "FILE" || described.value == "PATH" || described.value == "PROGRAM") {
    described.kind = ValueKind::kFile;
  } else if (described.value == "DIR") {
    described.kind = ValueKind::kDirectory;
  }
  return described;
}

Command Describe(const CLI::App& app, std::vector<std::string> words) {
  Command command;
  words.push_back(app.get_name());
  command.words = std::move(words);
  command.summary = app.get_description();
  command.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    (option->nonpositional() ? command.options : command.arguments).push_back(DescribeOption(*option));
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty() && !sub->get_name().empty())
      command.commands.push_back(Describe(*sub, command.words));
  }
  return command;
}

}  // namespace

Command DescribeCommand(const CLI::App& app) { return Describe(app, {}); }

}  // namespace stagecoach
