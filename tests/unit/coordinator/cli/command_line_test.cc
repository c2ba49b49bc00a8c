#include "coordinator/cli/command_line.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/job/job_settings.h"
#include "coordinator/launch/program_output.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

TEST(CommandLine, EveryVerbHasAnExampleThatParses) {
  for (const std::unique_ptr<Verb>& verb : AllVerbs()) {
    EXPECT_FALSE(std::string(verb->summary()).empty());
    EXPECT_THAT(verb->example(), HasSubstr(std::string("coordinator ") + verb->name()));
    if (verb->hidden()) continue;  // its example is a whole launch
    const absl::StatusOr<std::vector<std::string>> words = SplitShellWords(verb->example());
    ASSERT_TRUE(words.ok()) << words.status();
    std::vector<const char*> arguments;
    for (size_t i = 1; i < words->size(); ++i) arguments.push_back((*words)[i].c_str());
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

}  // namespace
}  // namespace stagecoach
