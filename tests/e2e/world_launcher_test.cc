// What a launcher that is told to end leaves to the ranks of a world that it started: about a second.

#include <signal.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;

TEST(WorldsLauncher, EndsItWithPartialStatistics) {
  Subprocess process("mpirun",
                     WorldArguments({"generate", "-m", DemoModelPath(), "--raw", "-p", kPrompt, "-n", "900",
                                     "--ignore-eos", "-v", "--stage-delay-us", "20000"},
                                    2),
                     AllowRoot());
  ASSERT_TRUE(process.WaitForOutput(" the heaven and the earth", 60));
  process.Kill(SIGTERM);
  const ProgramResult result = process.Wait(30);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_FALSE(result.timed_out);
  EXPECT_THAT(result.err, AllOf(ContainsRegex("decode +[0-9]+ tokens"), ContainsRegex("stage +host"))) << result;
}

TEST(WorldsLauncher, DrainsItWithASignal) {
  const TempDir directory;
  const std::string out = directory.File("out.jsonl"), steps = directory.File("steps.jsonl");
  Subprocess process("mpirun",
                     WorldArguments({"batch", "-m", DemoModelPath(), "-i", "-", "-o", out, "-v", "--stage-delay-us",
                                     "20000", "--step-log", steps},
                                    2),
                     AllowRoot());
  process.Write(BatchInputLine("runs", {{"prompt", kPrompt}, {"max_tokens", 30}, {"ignore_eos", true}}));
  const auto runs = [&] { return std::filesystem::exists(steps) && std::filesystem::file_size(steps) > 0; };
  for (int i = 0; i < 600 && !runs(); ++i) process.WaitForOutput("\x01", 0.1);  // collects output for a moment
  ASSERT_TRUE(runs());
  process.Kill(SIGUSR1);
  ASSERT_TRUE(process.WaitForOutput("1 answered", 60));
  EXPECT_FALSE(process.Wait(30).timed_out);
  EXPECT_EQ(ReadBatchOutput(out).size(), 1u);
}

}  // namespace
}  // namespace stagecoach::testing
