// Manual pages and shell completion are made from what the command line is parsed by.

#include "coordinator/cli/command_table.h"

#include <filesystem>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/verb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"

namespace stagecoach {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using Words = std::vector<std::string>;

// A program with verbs, one of them with commands of its own, and things that are hidden.
class CommandTable : public ::testing::Test {
 protected:
  CommandTable() {
    app_.name("coordinator");
    CLI::App* run = app_.add_subcommand("run", "run something");
    run->footer(absl::StrCat(kExamplePrefix, "coordinator run -m x"));
    AddRequiredText(run, "-m,--model", &text_, "FILE", "the model");
    AddText(run, "--cache", &text_, "DIR", "where it's kept: [here]");
    AddChoice(run, "--policy", &policy_, {"fair", "fast"}, "which first");
    AddInteger(run, "-n,--predict", &number_, {0, 9}, "tokens", "7");
    AddFlag(run, "--dry-run", &flag_, "print only");
    AddFlag(run, "--secret", &flag_, "for tests")->group("");
    CLI::App* trace = app_.add_subcommand("trace", "about traces");
    CLI::App* summary = trace->add_subcommand("summary", "sum one up");
    AddChoice(summary, "--form", &policy_, {"md", "csv"}, "of the result");
    AddWords(summary, "trace", &words_, "FILE", "the traces");
    CLI::App* report = trace->add_subcommand("report", "show one");
    AddFlag(report, "--open", &flag_, "in a browser");
    report->add_option("directory", text_, "where it is")->type_name("DIR")->required();
    app_.add_subcommand("hidden", "not for users")->group("");
  }

  Command Table() { return DescribeCommand(app_); }

  // What bash offers for the last word.
  Words Completed(const Words& words) {
    const testing::TempDir directory;
    testing::WriteFileOrDie(directory.File("script"), CompletionScript(Shell::kBash, Table()));
    testing::WriteFileOrDie(directory.File("model.gguf"), "");
    std::filesystem::create_directory(directory.File("results"));
    const testing::ProgramResult result = testing::RunProgram(
        "bash", {"-c", absl::StrCat("source ", directory.File("script"), " && cd ", directory.path(),
                                    " && COMP_WORDS=('", absl::StrJoin(words, "' '"), "') COMP_CWORD=",
                                    words.size() - 1, " && _coordinator && printf '%s\\n' \"${COMPREPLY[@]}\"")});
    EXPECT_EQ(result.exit_code, 0) << result;
    return absl::StrSplit(result.out, '\n', absl::SkipEmpty());
  }

  CLI::App app_;
  std::string text_, policy_ = "fair";
  int64_t number_ = 7;
  bool flag_ = false;
  Words words_;
};

TEST_F(CommandTable, TellsEachOptionsKindOfValue) {
  const Command table = Table();
  ASSERT_EQ(table.commands.size(), 2u) << "without the hidden one";
  const Command& run = table.commands[0];
  EXPECT_THAT(run.words, ElementsAre("coordinator", "run"));
  std::vector<ValueKind> kinds;
  for (const CommandOption& option : run.options) kinds.push_back(option.kind);
  EXPECT_THAT(kinds, ElementsAre(ValueKind::kNone, ValueKind::kFile, ValueKind::kDirectory, ValueKind::kChoice,
                                 ValueKind::kOther, ValueKind::kNone));
  EXPECT_TRUE(run.options[1].required);
  EXPECT_THAT(run.options[3].choices, ElementsAre("fair", "fast"));
  EXPECT_EQ(run.options[4].shown_default, "7");
  EXPECT_EQ(table.commands[1].commands[0].arguments[0].names[0], "trace");
}

TEST_F(CommandTable, EveryCommandHasAManualPage) {
  const std::vector<ManualPage> pages = ManualPages(Table());
  Words names;
  for (const ManualPage& page : pages) names.push_back(page.name);
  EXPECT_THAT(names, ElementsAre("coordinator", "coordinator-run", "coordinator-trace", "coordinator-trace-summary",
                                 "coordinator-trace-report"));
  EXPECT_THAT(pages[1].synopsis, ElementsAre("coordinator run -m FILE [OPTION]..."));
  const std::string page = ManualRoff(pages[1], "1");
  EXPECT_THAT(page, HasSubstr("\\fB\\-n\\fR, \\fB\\-\\-predict\\fR \\fIN\\fR\ntokens (default: 7)\n"));
  EXPECT_THAT(page, HasSubstr("the model (must be given)"));
  EXPECT_THAT(page, HasSubstr(".SH \"EXAMPLE\"\n.nf\n.RS 4\n\\&coordinator run \\-m x\n"));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
}

TEST_F(CommandTable, BashCompletesVerbsOptionsAndValues) {
  EXPECT_THAT(Completed({"coordinator", ""}), ElementsAre("run", "trace"));
  EXPECT_THAT(Completed({"coordinator", "r"}), ElementsAre("run"));
  EXPECT_THAT(Completed({"coordinator", "run", ""}), IsSupersetOf({"-m", "--model", "--policy", "--dry-run"}));
  EXPECT_THAT(Completed({"coordinator", "run", "--p"}), ElementsAre("--policy", "--predict"));
  EXPECT_THAT(Completed({"coordinator", "run", "-m", "x", "--policy", "fa"}), ElementsAre("fair", "fast"));
  EXPECT_THAT(Completed({"coordinator", "run", "--policy", "=", "fas"}), ElementsAre("fast"));
  EXPECT_THAT(Completed({"coordinator", "run", "--policy", "="}), ElementsAre("fair", "fast"));
  EXPECT_THAT(Completed({"coordinator", "run", "-m", "mod"}), ElementsAre("model.gguf"));
  EXPECT_THAT(Completed({"coordinator", "run", "--cache", "mod"}), ElementsAre()) << "it is no directory";
  EXPECT_THAT(Completed({"coordinator", "run", "-n", ""}), ElementsAre()) << "nobody knows the number";
}

TEST_F(CommandTable, BashCompletesWhatStandsBelowAVerb) {
  EXPECT_THAT(Completed({"coordinator", "trace", ""}), ElementsAre("summary", "report"));
  EXPECT_THAT(Completed({"coordinator", "trace", "summary", "--form", ""}), ElementsAre("md", "csv"));
  EXPECT_THAT(Completed({"coordinator", "trace", "summary", "mod"}), Contains("model.gguf"));
  EXPECT_THAT(Completed({"coordinator", "trace", "summary", "--f"}), ElementsAre("--form"));
  EXPECT_THAT(Completed({"coordinator", "trace", "report", ""}), ElementsAre("results")) << "no file is a directory";
  EXPECT_THAT(Completed({"coordinator", "trace", "report", "--"}), Contains("--open"));
}

}  // namespace
}  // namespace stagecoach
