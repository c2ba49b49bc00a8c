// Over several hosts a generation works at the first try, short silences do not disturb it, and nothing stays behind.

#include <signal.h>

#include "tests/hosts/support/generation.h"

namespace stagecoach::testing {
namespace {

class SteadyTest : public HostsTest {};

TEST_F(SteadyTest, AGenerationOverThreeHostsWorksAtTheFirstTryAndLeavesNothing) {
  auto front = StartUntil(5, kThreeHosts);
  for (const int host : {1, 2, 3}) AwaitStage(host);
  // Or to find nothing below would say nothing.
  EXPECT_EQ(hosts().Processes(2, "orted").size(), 1u);
  EXPECT_FALSE(hosts().Files(2).empty());
  EXPECT_EQ(ExpectTheAnswer(front.get())["timings"]["relaunches"], 0);
  EXPECT_THAT(front->err(), Not(HasSubstr("lost")));
}

TEST_F(SteadyTest, AFrontKilledForGoodLeavesNothingOnAnyHost) {
  auto front = StartUntil(5, kThreeHosts);
  for (const int host : {1, 2, 3}) AwaitStage(host);
  hosts().Signal(hosts().PidOf(*front), SIGKILL);
  EXPECT_EQ(front->Wait(10).exit_code, 128 + SIGKILL);
}

TEST_F(SteadyTest, SilencesShorterThanTheDeadlineRestartNothing) {
  auto front = StartUntil(10, kThreeHosts);
  hosts().Cut(3);
  SleepFor(3);
  hosts().Heal(3);
  AwaitSteps(front.get(), 20);
  const pid_t stage = AwaitStage(2);
  hosts().Signal(stage, SIGSTOP);
  SleepFor(3);
  hosts().Signal(stage, SIGCONT);
  EXPECT_EQ(ExpectTheAnswer(front.get())["timings"]["relaunches"], 0);
}

}  // namespace
}  // namespace stagecoach::testing
