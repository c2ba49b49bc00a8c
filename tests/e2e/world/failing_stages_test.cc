// Stages that fail: by a request that crashes them each time, which costs its own answer and nobody else's, and while
// they load; and stages that have no model.

#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

constexpr int kLines = 6, kCrashing = 3;
constexpr int kCrashSeed = 57005;  // of programs/faulty_stage.cc

std::string CrashingLines() {
  std::string input;
  for (int i = 0; i < kLines; ++i) {
    input += BatchInputLine(absl::StrCat("id-", i), {{"prompt", absl::StrCat("Chapter ", i, ". And it came to pass")},
                                                     {"max_tokens", 6 + i},
                                                     {"temperature", 0.8},
                                                     {"seed", i == kCrashing ? kCrashSeed : i}});
  }
  return input;
}

TEST(Crash, TheRequestThatCrashesAStageEachTimeGetsAnErrorAndTheOthersTheirAnswers) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), whole = directory.File("whole.jsonl"),
                    out = directory.File("out.jsonl");
  WriteFileOrDie(in, CrashingLines());
  ASSERT_EQ(Coordinator(Batch(in, whole, {"--pp", "2"})).exit_code, 0);
  const ProgramResult result =
      Coordinator(Batch(in, out, {"--pp", "2", "--stage-worker", BuildPath("tests/e2e/faulty_stage")}), /*input=*/"",
                  /*timeout_s=*/300);
  EXPECT_EQ(result.exit_code, 0) << result;
  std::map<std::string, Json> expected = ReadBatchOutput(whole), lines = ReadBatchOutput(out);
  ASSERT_EQ(lines.size(), static_cast<size_t>(kLines)) << result;
  for (int i = 0; i < kLines; ++i) {
    const std::string id = absl::StrCat("id-", i);
    if (i == kCrashing) continue;
    EXPECT_EQ(lines[id]["response"]["body"]["choices"], expected[id]["response"]["body"]["choices"]) << id;
  }
  const std::string crashed = lines[absl::StrCat("id-", kCrashing)].dump();
  EXPECT_THAT(crashed, AllOf(HasSubstr("computing it ended a stage each time"), HasSubstr("signal 6")));
}

// ---- weights that are streamed: the stages' hosts have no file of the model ----

const Words kStory = {"-p", "Once upon a time", "-n", "24", "--temp", "0"};

// As it is told by stages that have the model.
const std::string& ToldStory() {
  static const std::string* told = new std::string(CoordinatorOut(Generate(kStory)));
  return *told;
}

bool MayHideDirectories() {
  const pid_t child = fork();
  if (child == 0) _exit(unshare(CLONE_NEWNS) == 0 ? 0 : 1);
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0;
}

std::string Script(const std::string& path, const std::string& text) {
  WriteFileOrDie(path, absl::StrCat("#!/bin/sh\n", text));
  EXPECT_EQ(chmod(path.c_str(), 0755), 0);
  return path;
}

// A stage_worker whose host has no model: its directory is empty there.
std::string StageWithoutModel(const TempDir& directory) {
  const std::string models = std::filesystem::path(DemoModelPath()).parent_path().string();
  return Script(directory.File("stage_without_model"),
                absl::StrCat("exec unshare --mount --propagation private sh -c 'mount -t tmpfs none ", models,
                             " && exec ", StageWorkerProgram(), "'\n"));
}

TEST(StreamedWeights, StagesOnHostsWithoutTheModelGiveTheSameText) {
  if (!MayHideDirectories()) GTEST_SKIP() << "NOT RUN: needs the right to mount (root)";
  const TempDir directory;
  const std::string stage = StageWithoutModel(directory);
  for (const char* stages : {"1", "3"}) {
    const Words words = Generate(Joined(kStory, {"--pp", stages, "--stage-worker", stage}));
    const ProgramResult file = Coordinator(words);
    EXPECT_NE(file.exit_code, 0) << file;
    EXPECT_THAT(file.err, HasSubstr("cannot open")) << "the model is hidden from the stages";
    EXPECT_EQ(CoordinatorOut(Joined(words, {"--weights", "stream"})), ToldStory());
  }
}

TEST(StreamedWeights, AStageKilledWhileItLoadsIsLaunchedAgainAndTheTextIsTheSame) {
  const TempDir directory;
  const std::string once = directory.File("once"), cache = directory.File("cache");
  // Of all stages that are ever started, the first is killed while it loads.
  const std::string stage =
      Script(directory.File("stage"),
             absl::StrCat("if mkdir ", once, " 2>/dev/null; then exec ", BuildPath("tests/e2e/faulty_stage"),
                          " while-loading; fi\nexec ", StageWorkerProgram(), "\n"));
  const std::string result = CoordinatorOut(Generate(
      Joined(kStory, {"--pp", "2", "--weights", "stream", "--weights-cache", cache, "--stage-worker", stage})));
  EXPECT_EQ(result, ToldStory());
  EXPECT_TRUE(std::filesystem::exists(once));
  int kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(cache)) {
    ++kept;
    EXPECT_EQ(entry.path().extension(), ".weights") << entry.path() << " was left behind";
  }
  EXPECT_GT(kept, 0);
}

}  // namespace
}  // namespace stagecoach::testing
