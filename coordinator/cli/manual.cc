// manual: writes the manual pages, of which the build makes those that are installed.

#include "coordinator/cli/manual.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "CLI/App.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/wire/handshake.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/verb.h"
#include "coordinator/cli/verb_endings.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {
namespace {

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

// Of all verbs, with what is said of this one.
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
  const char* name() const override { return "manual"; }
  const char* summary() const override { return "write the manual pages"; }
  const char* example() const override { return "coordinator manual -o build/man"; }
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
      std::ofstream file(path);
      file << ManualRoff(page, kProgramVersion);
      file.close();
      if (!file.good()) return InputFileError(absl::StrCat("cannot write '", path, "'"));
    }
    return absl::OkStatus();
  }

 private:
  CLI::App* app_ = nullptr;
  std::string directory_;
};

}  // namespace

std::vector<ManualPage> ManualPages(const Command& program) {
  std::vector<ManualPage> pages;
  AddPages(program, nullptr, &pages);
  return pages;
}

std::unique_ptr<Verb> MakeManualVerb() { return std::make_unique<ManualVerb>(); }

}  // namespace stagecoach
