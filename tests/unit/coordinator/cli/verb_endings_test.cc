// How every verb ends: the table of exit codes, a case each. What needs no job is run here; what a job's end makes of
// the exit code is the statuses' (the last two).

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/verb.h"
#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

// MODEL stands for a model, GONE for a path at which there is nothing, and NEW for one that can be made.
struct EndingCase {
  std::vector<const char*> words;
  ExitCode code;
};

const EndingCase kCases[] = {
    // A model, an input or an output file that is not there.
    {{"generate", "-m", "GONE", "-p", "x"}, ExitCode::kInputFile},
    {{"generate", "-m", "MODEL", "-f", "GONE"}, ExitCode::kInputFile},
    {{"chat", "-m", "GONE"}, ExitCode::kInputFile},
    {{"batch", "-m", "GONE", "-i", "-", "-o", "NEW"}, ExitCode::kInputFile},
    {{"batch", "-m", "MODEL", "-i", "GONE", "-o", "NEW"}, ExitCode::kInputFile},
    {{"batch", "-m", "MODEL", "-i", "MODEL", "-o", "GONE"}, ExitCode::kInputFile},
    {{"serve", "-m", "GONE", "--port", "0"}, ExitCode::kInputFile},
    {{"serve", "-m", "MODEL", "--port", "0", "--api-key-file", "GONE"}, ExitCode::kInputFile},
    {{"perplexity", "-m", "GONE", "-f", "MODEL"}, ExitCode::kInputFile},
    {{"perplexity", "-m", "MODEL", "-f", "GONE"}, ExitCode::kInputFile},
    {{"verify", "-m", "GONE"}, ExitCode::kInputFile},
    {{"bench", "-m", "GONE"}, ExitCode::kInputFile},
    {{"sweep", "-m", "GONE", "-o", "NEW"}, ExitCode::kInputFile},
    {{"sweep", "report", "GONE"}, ExitCode::kInputFile},
    {{"probe", "-m", "GONE"}, ExitCode::kInputFile},
    {{"plan", "-m", "GONE", "--host", "a"}, ExitCode::kInputFile},
    {{"simulate", "-m", "GONE", "--host", "a"}, ExitCode::kInputFile},
    {{"trace", "summary", "GONE"}, ExitCode::kInputFile},
    {{"inspect", "-m", "GONE"}, ExitCode::kInputFile},
    {{"quantize", "GONE", "NEW", "--type", "q4_0"}, ExitCode::kInputFile},
    {{"tokenize", "-m", "GONE", "-p", "x"}, ExitCode::kInputFile},
    {{"detokenize", "-m", "GONE", "1"}, ExitCode::kInputFile},
    {{"apply-template", "-m", "GONE", "-p", "x"}, ExitCode::kInputFile},
    {{"manual", "-o", "MODEL/below"}, ExitCode::kInputFile},
    // A job that cannot come up.
    {{"generate", "-m", "MODEL", "-p", "x", "--stage-worker", "GONE"}, ExitCode::kLaunch},
    {{"chat", "-m", "MODEL", "--stage-worker", "GONE"}, ExitCode::kLaunch},
    {{"batch", "-m", "MODEL", "-i", "-", "-o", "NEW", "--stage-worker", "GONE"}, ExitCode::kLaunch},
    {{"serve", "-m", "MODEL", "--port", "0", "--stage-worker", "GONE"}, ExitCode::kLaunch},
    {{"perplexity", "-m", "MODEL", "-f", "MODEL", "--stage-worker", "GONE"}, ExitCode::kLaunch},
    {{"verify", "-m", "MODEL", "--stage-worker", "GONE"}, ExitCode::kLaunch},
    {{"bench", "-m", "MODEL", "--stage-worker", "GONE"}, ExitCode::kLaunch},
    {{"probe", "-m", "MODEL", "--stage-worker", "GONE"}, ExitCode::kLaunch},
    {{"doctor", "-m", "MODEL", "--stage-worker", "GONE"}, ExitCode::kLaunch},
    {{"sweep", "-m", "MODEL", "-o", "NEW", "--no-probe", "--stage-worker", "GONE"}, ExitCode::kLaunch},
    {{"engine", "--connect", "GONE"}, ExitCode::kLaunch},
    {{"plan", "-m", "dummy://kimi-k2/f32", "--host", "a"}, ExitCode::kLaunch},
    // What the options say cannot be.
    {{"generate", "-m", "MODEL", "-p", ""}, ExitCode::kUsage},
    {{"plan", "-m", "MODEL", "--host", "a", "--pp", "20"}, ExitCode::kUsage},
    {{"bench", "serve", "--url", "ftp://x"}, ExitCode::kUsage},
    // A server that is not there.
    {{"bench", "serve", "--url", "http://127.0.0.1:1"}, ExitCode::kLostStages},
    // Done.
    {{"completion", "bash"}, ExitCode::kOk},
    {{"manual", "-o", "NEW"}, ExitCode::kOk},
    {{"inspect", "-m", "MODEL"}, ExitCode::kOk},
    {{"tokenize", "-m", "MODEL", "-p", "x"}, ExitCode::kOk},
    {{"detokenize", "-m", "MODEL", "5"}, ExitCode::kOk},
    {{"generate", "-m", "MODEL", "-p", "x", "--dry-run", "--stage-worker", "/bin/true"}, ExitCode::kOk},
};

// What one verb means by a code (kVerbEndings) and no case above shows, for it needs a job that ran: the test that
// does.
const struct {
  const char* verb;
  ExitCode code;
  const char* test;
} kEndingsOfJobs[] = {
    {"batch", ExitCode::kOk, "e2e/batch_test.cc"},
    {"batch", ExitCode::kLostStages, "e2e/wrong_input_test.cc"},
    {"batch", ExitCode::kInterrupted, "e2e/batch_test.cc"},
    {"serve", ExitCode::kOk, "e2e/serve/serve_test.cc"},
    {"serve", ExitCode::kInterrupted, "e2e/serve/serve_test.cc"},
    {"verify", ExitCode::kDifferent, "e2e/verify_test.cc"},
    {"doctor", ExitCode::kOk, "e2e/probe_test.cc"},
};

struct VerbEndings : ::testing::Test {
  // As main runs it.
  ExitCode Run(std::vector<const char*> words, std::string* message) {
    const testing::TempDir directory;
    std::vector<std::string> texts = {"coordinator"};
    for (const char* word : words) {
      texts.push_back(absl::StrReplaceAll(word, {{"MODEL", testing::DemoModelPath()},
                                                 {"GONE", directory.File("gone/gone")},
                                                 {"NEW", directory.File("new")}}));
    }
    std::vector<const char*> argv;
    for (const std::string& text : texts) argv.push_back(text.c_str());
    CommandLine line;
    Verb* verb = line.Parse(static_cast<int>(argv.size()), argv.data());
    *message = line.error();
    if (verb == nullptr) return line.exit_code();
    RunContext context;
    context.program = argv[0];
    const absl::Status status = verb->Run(context);
    *message = std::string(status.message());
    return ExitCodeOf(status);
  }
};

TEST_F(VerbEndings, AreThoseOfTheTable) {
  for (const EndingCase& ending : kCases) {
    std::string message;
    ::testing::internal::CaptureStdout();
    const ExitCode code = Run(ending.words, &message);
    ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(code, ending.code) << absl::StrJoin(ending.words, " ") << ": " << message;
  }
}

TEST_F(VerbEndings, OfHelpAndOfWrongOptionsAreTheSameForAllVerbs) {
  for (const std::unique_ptr<Verb>& verb : AllVerbs()) {
    std::string message;
    EXPECT_EQ(Run({verb->name(), "--help"}, &message), ExitCode::kOk) << verb->name() << message;
    EXPECT_EQ(Run({verb->name(), "--frobnicate"}, &message), ExitCode::kUsage) << verb->name();
  }
}

TEST_F(VerbEndings, HaveACaseForEachVerbAndAnEntryForWhatOneVerbMeans) {
  std::set<std::string> verbs, cases;
  for (const std::unique_ptr<Verb>& verb : AllVerbs()) verbs.insert(verb->name());
  for (const EndingCase& ending : kCases) cases.insert(ending.words.front());
  EXPECT_EQ(cases, verbs);
  for (const VerbEnding& ending : kVerbEndings) {
    EXPECT_TRUE(verbs.contains(ending.verb)) << ending.verb;
    EXPECT_TRUE(std::any_of(std::begin(kExitCodes), std::end(kExitCodes), [&](const ExitCodeMeaning& entry) {
      return entry.code == ending.code;
    })) << ending.verb;
    const auto is_it = [&](absl::string_view verb, ExitCode code) {
      return verb == ending.verb && code == ending.code;
    };
    const auto shown = std::find_if(std::begin(kEndingsOfJobs), std::end(kEndingsOfJobs),
                                    [&](const auto& entry) { return is_it(entry.verb, entry.code); });
    if (shown == std::end(kEndingsOfJobs)) {
      EXPECT_TRUE(std::any_of(std::begin(kCases), std::end(kCases),
                              [&](const EndingCase& entry) { return is_it(entry.words.front(), entry.code); }))
          << ending.verb << " " << static_cast<int>(ending.code);
      continue;
    }
    const std::string test = testing::ReadFileOrDie(testing::SourcePath(absl::StrCat("tests/", shown->test)));
    EXPECT_TRUE(absl::StrContains(test, ending.verb)) << shown->test << " " << ending.verb;
  }
}

// Verbs that README.md leaves to a page of its own.
const std::map<std::string, std::string> kVerbsOfPages = {{"completion", "deploy/docs/operating.md"}};

TEST(ReadmeTable, HasEveryVerbAndNoOther) {
  std::set<std::string> verbs, told;
  for (const std::unique_ptr<Verb>& verb : AllVerbs()) {
    if (!verb->hidden()) verbs.insert(verb->name());
  }
  const std::string readme = testing::ReadFileOrDie(testing::SourcePath("README.md"));
  const size_t begin = readme.find("## Verbs\n"), end = readme.find("\n## ", begin);
  ASSERT_NE(begin, std::string::npos);
  for (const absl::string_view line : absl::StrSplit(readme.substr(begin, end - begin), '\n')) {
    if (!absl::StartsWith(line, "| `")) continue;
    // The first cell has commands in backquotes, each of which begins with its verb.
    const std::vector<std::string> quoted = absl::StrSplit(line.substr(0, line.find(" | ")), '`');
    for (size_t i = 1; i < quoted.size(); i += 2) told.insert(quoted[i].substr(0, quoted[i].find(' ')));
  }
  for (const auto& [verb, page] : kVerbsOfPages) {
    EXPECT_TRUE(told.insert(verb).second) << verb << " is in the table";
    EXPECT_TRUE(
        absl::StrContains(testing::ReadFileOrDie(testing::SourcePath(page)), absl::StrCat("coordinator ", verb)))
        << page << " does not tell of " << verb;
  }
  EXPECT_EQ(told, verbs);
}

// What a status ends the program with: as it is, as what keeps a job from being launched, as what a job reports.
TEST(ExitCodes, OfStatuses) {
  using Code = absl::StatusCode;
  struct {
    Code status;
    ExitCode plain, launch, job;
  } const rows[] = {
      {Code::kOk, ExitCode::kOk, ExitCode::kOk, ExitCode::kOk},
      {Code::kInvalidArgument, ExitCode::kUsage, ExitCode::kUsage, ExitCode::kUsage},
      {Code::kOutOfRange, ExitCode::kUsage, ExitCode::kLaunch, ExitCode::kInputFile},
      {Code::kResourceExhausted, ExitCode::kInputFile, ExitCode::kLaunch, ExitCode::kUsage},
      {Code::kNotFound, ExitCode::kInputFile, ExitCode::kLaunch, ExitCode::kInputFile},
      {Code::kDataLoss, ExitCode::kInputFile, ExitCode::kLaunch, ExitCode::kInputFile},
      {Code::kFailedPrecondition, ExitCode::kLaunch, ExitCode::kLaunch, ExitCode::kLaunch},
      {Code::kInternal, ExitCode::kLaunch, ExitCode::kLaunch, ExitCode::kLaunch},
      {Code::kUnavailable, ExitCode::kLostStages, ExitCode::kLaunch, ExitCode::kLostStages},
      {Code::kCancelled, ExitCode::kInterrupted, ExitCode::kLaunch, ExitCode::kInputFile},
  };
  for (const auto& row : rows) {
    const absl::Status status(row.status, row.status == Code::kOk ? "" : "why");
    EXPECT_EQ(ExitCodeOf(status), row.plain) << status;
    EXPECT_EQ(ExitCodeOf(LaunchFailure(status)), row.launch) << status;
    EXPECT_EQ(ExitCodeOf(JobFailure(status)), row.job) << status;
  }
}

TEST(ExitCodes, ThatWereGivenEarlierStay) {
  for (const ExitCodeMeaning& entry : kExitCodes) {
    if (entry.code == ExitCode::kOk) continue;
    const absl::Status given = WithExitCode(absl::UnknownError("why"), entry.code);
    EXPECT_EQ(ExitCodeOf(given), entry.code);
    EXPECT_EQ(ExitCodeOf(JobFailure(LaunchFailure(WithExitCode(given, ExitCode::kUsage)))), entry.code);
  }
}

}  // namespace
}  // namespace stagecoach
