// Hosts and ranks that are killed or stopped in the middle of a generation, and hosts that come back: the answer is the
// same to the last digit.

#include <signal.h>

#include "tests/hosts/support/generation.h"

namespace stagecoach::testing {
namespace {

class KillTest : public HostsTest {};

TEST_F(KillTest, AKilledHostIsLeftOut) {
  auto front = StartUntil(10, kThreeHosts, ShortHostTimeout());
  hosts().Kill(2);
  ExpectTheAnswer(front.get(), {"host1", "host3"});
  EXPECT_THAT(front->err(), HasSubstr("host2 is left out"));
  hosts().Revive(2);
}

TEST_F(KillTest, AHostThatBootsInTimeIsUsedAgain) {
  auto front = StartUntil(10, kThreeHosts);
  hosts().Kill(2);
  EXPECT_TRUE(front->WaitForOutput("the job was lost", 20)) << front->err();
  hosts().Revive(2);
  ExpectTheAnswer(front.get(), {"host1", "host2", "host3"});
}

TEST_F(KillTest, ARankThatIsStoppedForGoodIsLostAndReplacedOnItsHost) {
  auto front = StartUntil(10, kThreeHosts);
  hosts().Signal(AwaitStage(3), SIGSTOP);
  EXPECT_EQ(ExpectTheAnswer(front.get(), {"host1", "host2", "host3"})["timings"]["relaunches"], 1);
  EXPECT_THAT(front->err(), HasSubstr("stage 2 on host3"));
}

TEST_F(KillTest, WhatIsEndedForOneCoordinatorLeavesTheRanksOfAnother) {
  // Slower than others: it is not to end before the second job is launched beside it.
  auto disturbed = StartUntil(10, kThreeHosts, {"--stage-delay-us", "40000"});
  const pid_t stage = AwaitStage(3);
  auto other = StartUntil(10, kThreeHosts);
  hosts().Signal(stage, SIGKILL);
  const Json first = ExpectTheAnswer(disturbed.get()), second = ExpectTheAnswer(other.get());
  EXPECT_EQ(first["timings"]["relaunches"], 1);
  EXPECT_EQ(second["timings"]["relaunches"], 0);
}

// With the host's orted stopped too nobody there ends the old rank, which holds memory.
TEST_F(KillTest, AHostThatComesBackIsUsedAtALaterLaunchAndCleanedBefore) {
  auto front = StartUntil(10, kWithASpare, ShortHostTimeout());
  const pid_t old = AwaitStage(3);
  for (const ProcessInfo& orted : hosts().Processes(3, "orted")) hosts().Signal(orted.pid, SIGSTOP);
  hosts().Signal(old, SIGSTOP);
  hosts().Cut(3);
  EXPECT_TRUE(front->WaitForOutput("host3 is left out", 30)) << front->err();
  AwaitStage(4);
  hosts().Heal(3);
  SleepFor(0.5);
  EXPECT_TRUE(IsAlive(old));
  EXPECT_EQ(Stages(3).size(), 1u) << "no new one in mid-run";
  hosts().Signal(AwaitStage(4), SIGKILL);
  EXPECT_EQ(ExpectTheAnswer(front.get(), {"host1", "host2", "host3"})["timings"]["relaunches"], 2);
  EXPECT_FALSE(IsAlive(old));
  EXPECT_THAT(front->err(), HasSubstr("host3 is back"));
}

}  // namespace
}  // namespace stagecoach::testing
