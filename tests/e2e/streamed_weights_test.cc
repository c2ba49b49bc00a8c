// Weights that are streamed, with the real programs: the stages' hosts have no file of the model.

#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/paths.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;

const Words kStory = {"-p", "Once upon a time", "-n", "24", "--temp", "0"};

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
  const ProgramResult expected = Coordinator(Generate(kStory));
  ASSERT_EQ(expected.exit_code, 0) << expected;
  for (const char* stages : {"1", "3"}) {
    const Words words = Generate(Joined(kStory, {"--pp", stages, "--stage-worker", stage}));
    const ProgramResult file = Coordinator(words);
    EXPECT_NE(file.exit_code, 0) << file;
    EXPECT_THAT(file.err, HasSubstr("cannot open")) << "the model is hidden from the stages";
    const ProgramResult stream = Coordinator(Joined(words, {"--weights", "stream"}));
    EXPECT_EQ(stream.exit_code, 0) << stream;
    EXPECT_EQ(stream.out, expected.out);
  }
}

TEST(StreamedWeights, AStageKilledWhileItLoadsIsLaunchedAgainAndTheTextIsTheSame) {
  const TempDir directory;
  const std::string once = directory.File("once"), cache = directory.File("cache");
  // Of all stages that are ever started, the first is killed while it loads.
  const std::string stage =
      Script(directory.File("stage"),
             absl::StrCat("if mkdir ", once, " 2>/dev/null; then exec ", BuildPath("tests/e2e/crashing_stage"),
                          " while-loading; fi\nexec ", StageWorkerProgram(), "\n"));
  const ProgramResult expected = Coordinator(Generate(kStory));
  const ProgramResult result = Coordinator(Generate(
      Joined(kStory, {"--pp", "2", "--weights", "stream", "--weights-cache", cache, "--stage-worker", stage})));
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, expected.out);
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
