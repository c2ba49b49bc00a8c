// The command line: how it is parsed, and the manual pages and the shell completion that are made of the same table.

#include "coordinator/cli/command_line.h"

#include <filesystem>
#include <memory>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/job/job_settings.h"
#include "coordinator/cli/command_table.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/verb.h"
#include "coordinator/launch/program_output.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"

namespace stagecoach {
namespace {

using ::testing::IsSupersetOf;
using Words = std::vector<std::string>;

struct Parsed {
  std::string verb;  // empty: none
  ExitCode exit_code;
  std::string output;
  std::string error;
  bool needs_cluster = false;
};

Parsed Parse(const std::vector<const char*>& arguments) {
  std::vector<const char*> argv = {"coordinator"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  CommandLine line;
  Verb* verb = line.Parse(static_cast<int>(argv.size()), argv.data());
  return {verb == nullptr ? "" : verb->name(), line.exit_code(), line.output(), line.error(),
          verb != nullptr && verb->NeedsCluster()};
}

TEST(CommandLine, ListsEveryVerbInItsHelpButNotTheHiddenOne) {
  for (const std::vector<const char*>& arguments : {std::vector<const char*>{"help"}, {"--help"}, {"-h"}}) {
    const Parsed parsed = Parse(arguments);
    EXPECT_EQ(parsed.exit_code, ExitCode::kOk);
    for (const char* verb : {"generate", "batch", "serve", "perplexity", "bench", "plan", "simulate", "quantize",
                             "inspect", "tokenize", "detokenize", "apply-template", "chat", "help"}) {
      EXPECT_THAT(parsed.output, HasSubstr(verb));
    }
    EXPECT_THAT(parsed.output, Not(HasSubstr("engine ")));
  }
}

TEST(CommandLine, ShowsAVerbsDefaultsAndAnExample) {
  const Parsed parsed = Parse({"generate", "--help"});
  EXPECT_EQ(parsed.exit_code, ExitCode::kOk);
  for (absl::string_view text : absl::StrSplit(
           "-m,--model;-n,--predict N=256;the model's context;--max-num-seqs N=8;--max-num-batched-tokens N=512;"
           "--prefill-chunk N=512;--block-size N=32;--temp;--top-k;--top-p;--min-p;--repeat-penalty;--presence-penalty;"
           "--frequency-penalty;--seed;--stop;--ignore-eos;--system TEXT;--chat-template auto|chatml=auto;"
           "--chat-template-file FILE;--raw;--no-special;--logprobs;--hostfile;--host LIST;--mpirun-args;--dry-run;"
           "--output;--progress;-q,--quiet;-v,--verbose;--trace FILE;--stage-worker;Example: coordinator generate -m",
           ';')) {
    EXPECT_THAT(parsed.output, HasSubstr(std::string(text)));
  }
  const JobSettings settings;
  VisitJobSettings(settings, [&](const JobSetting& setting, auto&&...) {
    const std::string names = std::string(setting.flags).substr(0, std::string(setting.flags).find(",!"));
    EXPECT_EQ(absl::StrContains(parsed.output, names), setting.group != SettingGroup::kHidden) << names;
  });
  EXPECT_EQ(Parse({"help", "generate"}).output, parsed.output);
  EXPECT_EQ(Parse({"help", "trace", "summary"}).output, Parse({"trace", "summary", "--help"}).output);
  EXPECT_THAT(Parse({"help", "trace", "summary"}).output, HasSubstr("--json"));
}

TEST(CommandLine, TokensAreGuessedUnlessTextsAreMadeUpOrNoneAreSampled) {
  const std::string option = "--speculate off|auto|suffix|draft=";
  for (const char* verb : {"generate", "chat", "serve", "batch", "verify"}) {
    EXPECT_THAT(Parse({"help", verb}).output, HasSubstr(option + "auto")) << verb;
  }
  for (const char* verb : {"bench", "perplexity"}) {
    EXPECT_THAT(Parse({"help", verb}).output, HasSubstr(option + "off")) << verb;
  }
}

TEST(CommandLine, EveryVerbHasAnExampleThatParses) {
  for (const std::unique_ptr<Verb>& verb : AllVerbs()) {
    EXPECT_FALSE(std::string(verb->summary()).empty());
    EXPECT_THAT(verb->example(), HasSubstr(std::string("coordinator ") + verb->name()));
    if (verb->hidden()) continue;  // its example is a whole launch
    const std::vector<std::string> words = SplitShellWords(verb->example()).value();
    std::vector<const char*> arguments;
    for (size_t i = 1; i < words.size(); ++i) arguments.push_back(words[i].c_str());
    const Parsed parsed = Parse(arguments);
    EXPECT_EQ(parsed.verb, verb->name()) << parsed.error;
  }
}

TEST(CommandLine, KnowsWhichVerbsNeedACluster) {
  EXPECT_TRUE(Parse({"generate", "-m", "x", "-p", "y"}).needs_cluster);
  EXPECT_FALSE(Parse({"generate", "-m", "x", "-p", "y", "--dry-run"}).needs_cluster);
  EXPECT_TRUE(Parse({"batch", "-m", "x", "-i", "-", "-o", "y"}).needs_cluster);
  EXPECT_TRUE(Parse({"perplexity", "-m", "x", "-f", "y"}).needs_cluster);
  EXPECT_TRUE(Parse({"bench", "-m", "x"}).needs_cluster);
  EXPECT_FALSE(Parse({"quantize", "x", "y", "--type", "q8_0"}).needs_cluster);
  EXPECT_FALSE(Parse({"inspect", "-m", "x"}).needs_cluster);
  EXPECT_FALSE(Parse({"tokenize", "-m", "x"}).needs_cluster);
  EXPECT_FALSE(Parse({"detokenize", "-m", "x", "1", "2"}).needs_cluster);
  EXPECT_FALSE(Parse({"apply-template", "-m", "x", "-p", "y"}).needs_cluster);
}

TEST(CommandLine, RefusesWithTheReasonAndWhereToLook) {
  const Parsed none = Parse({});
  EXPECT_EQ(none.exit_code, ExitCode::kUsage);
  EXPECT_THAT(none.error, AllOf(HasSubstr("no verb"), HasSubstr("generate"), HasSubstr("coordinator help")));

  const Parsed unknown = Parse({"frobnicate"});
  EXPECT_EQ(unknown.exit_code, ExitCode::kUsage);
  EXPECT_THAT(unknown.error, AllOf(HasSubstr("'frobnicate' is no verb"), HasSubstr("perplexity")));

  const Parsed option = Parse({"generate", "-m", "x", "--tmp", "1"});
  EXPECT_EQ(option.exit_code, ExitCode::kUsage);
  EXPECT_THAT(option.error, AllOf(HasSubstr("--tmp"), HasSubstr("coordinator generate --help")));

  EXPECT_THAT(Parse({"generate", "-p", "x"}).error, HasSubstr("--model is required"));
  EXPECT_THAT(Parse({"sweep", "report"}).error,
              HasSubstr("directory is required (see `coordinator sweep report --help`)"));
  EXPECT_THAT(Parse({"help", "frobnicate"}).error, HasSubstr("'frobnicate' is no verb"));
  EXPECT_EQ(Parse({"generate", "-m", "x", "-q", "-v"}).exit_code, ExitCode::kUsage);
}

// A program with verbs, one of them with commands of its own, and things that are hidden.
struct CommandTable : ::testing::Test {
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
