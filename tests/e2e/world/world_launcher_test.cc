// What a launcher that is told to end leaves to the ranks of a world that it started: about a second.

#include <signal.h>

#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

TEST(WorldsLauncher, EndsItWithPartialStatistics) {
  Subprocess process(
      "mpirun",
      WorldArguments(
          Joined(WordsOf("generate -m MODEL --raw -n 900 --ignore-eos -v --stage-delay-us 20000"), {"-p", kPrompt}), 2),
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
  ASSERT_TRUE(process.WaitUntil([&] { return LinesIn(steps) > 0; }, 60));
  process.Kill(SIGUSR1);
  ASSERT_TRUE(process.WaitForOutput("1 answered", 60));
  EXPECT_FALSE(process.Wait(30).timed_out);
  EXPECT_EQ(ReadBatchOutput(out).size(), 1u);
}

}  // namespace
}  // namespace stagecoach::testing
