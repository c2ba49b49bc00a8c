// The verb manual writes the manual pages; the build installs them.

#include "coordinator/cli/command_table.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "CLI/App.hpp"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/wire/handshake.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/verb.h"

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

std::string PageName(const Command& command) { return absl::StrJoin(command.words, "-"); }

std::string Synopsis(const Command& command) {
  std::vector<std::string> words = command.words;
  if (!command.commands.empty()) words.push_back("COMMAND");
  for (const CommandOption& option : command.options) {
    if (option.required) absl::StrAppend(&words.emplace_back(option.names.front()), " ", option.value);
  }
  words.push_back("[OPTION]...");
  for (const CommandOption& argument : command.arguments) {
    const std::string name = absl::AsciiStrToUpper(argument.names.front());
    words.push_back(argument.required ? name : absl::StrCat("[", name, "]"));
  }
  return absl::StrJoin(words, " ");
}

ManualEntry EntryOf(const CommandOption& option) {
  ManualEntry entry = {option.names, option.value, option.description};
  if (!option.shown_default.empty()) absl::StrAppend(&entry.text, " (default: ", option.shown_default, ")");
  if (option.required) entry.text += " (must be given)";
  return entry;
}

// One section a heading of the help, in its order.
void AddOptionSections(const Command& command, std::vector<ManualSection>* sections) {
  std::vector<ManualSection> groups;
  for (const CommandOption& option : command.options) {
    size_t i = 0;
    while (i < groups.size() && groups[i].title != option.group) ++i;
    if (i == groups.size()) {
      groups.emplace_back().title = option.group;
      groups.back().below = i > 0;
    }
    groups[i].entries.push_back(EntryOf(option));
  }
  for (ManualSection& group : groups) sections->push_back(std::move(group));
}

// The exit codes of all verbs, with this verb's own meanings.
ManualSection ExitStatus(const Command& command) {
  ManualSection section;
  section.title = "Exit status";
  for (const ExitCodeMeaning& entry : kExitCodes) {
    std::string meaning = entry.meaning;
    for (const VerbEnding& ending : kVerbEndings) {
      const bool is_it = command.words.size() > 1 && command.words[1] == ending.verb && ending.code == entry.code;
      if (is_it) absl::StrAppend(&meaning, ". ", ending.verb, ": ", ending.meaning);
    }
    section.entries.push_back({{absl::StrCat(static_cast<int>(entry.code))}, "", std::move(meaning)});
  }
  return section;
}

ManualPage PageOf(const Command& command, const Command* parent) {
  ManualPage page;
  page.name = PageName(command);
  page.summary = command.summary;
  page.synopsis = {Synopsis(command)};
  if (!command.commands.empty()) {
    ManualSection commands;
    commands.title = "Commands";
    for (const Command& below : command.commands) {
      commands.entries.push_back({{below.words.back()}, "", absl::StrCat(below.summary, "; ", PageName(below), "(1)")});
      page.see_also.push_back(PageName(below));
    }
    page.sections.push_back(std::move(commands));
  }
  if (!command.arguments.empty()) {
    ManualSection arguments;
    arguments.title = "Arguments";
    for (const CommandOption& argument : command.arguments) arguments.entries.push_back(EntryOf(argument));
    page.sections.push_back(std::move(arguments));
  }
  AddOptionSections(command, &page.sections);
  page.sections.push_back(ExitStatus(command));
  if (!command.footer.empty()) {
    ManualSection& section = page.sections.emplace_back();
    absl::string_view footer = command.footer;
    const bool example = absl::ConsumePrefix(&footer, kExamplePrefix);
    section.title = example ? "Example" : "Notes";
    if (example) section.commands.push_back(std::string(footer));
    if (!example) section.text = command.footer;
  }
  if (parent != nullptr) page.see_also.insert(page.see_also.begin(), PageName(*parent));
  page.see_also.push_back("stage_worker");
  return page;
}

void AddPages(const Command& command, const Command* parent, std::vector<ManualPage>* pages) {
  pages->push_back(PageOf(command, parent));
  for (const Command& below : command.commands) AddPages(below, &command, pages);
}

class ManualVerb : public Verb {
 public:
  ManualVerb() : Verb("manual", "write the manual pages", "coordinator manual -o build/man") {}
  bool hidden() const override { return true; }
  void AddOptions(CLI::App* app) override {
    app_ = app;
    AddRequiredText(app, "-o,--output", &directory_, "DIR", "where; what is missing of the path is made");
  }

  absl::Status Run(const RunContext&) override {
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    for (const ManualPage& page : ManualPages(DescribeCommand(*app_->get_parent()))) {
      const std::string path = absl::StrCat(directory_, "/", page.name, ".1");
      RETURN_IF_ERROR(WriteWholeFile(path, ManualRoff(page, kProgramVersion)));
    }
    return absl::OkStatus();
  }

 private:
  CLI::App* app_ = nullptr;
  std::string directory_;
};

}  // namespace

Command DescribeCommand(const CLI::App& app) { return Describe(app, {}); }

std::vector<ManualPage> ManualPages(const Command& program) {
  std::vector<ManualPage> pages;
  AddPages(program, nullptr, &pages);
  return pages;
}

std::unique_ptr<Verb> MakeManualVerb() { return std::make_unique<ManualVerb>(); }

}  // namespace stagecoach
