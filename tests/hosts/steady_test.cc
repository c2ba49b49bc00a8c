// Over several hosts a generation works at the first try, short silences do not disturb it, and nothing stays behind.

#include <signal.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hosts/support/generation.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::SleepFor;

constexpr char kThreeHosts[] = "host1 slots=1\nhost2 slots=1\nhost3 slots=1\n";

class SteadyTest : public testing::HostsTest {};

TEST_F(SteadyTest, AGenerationOverThreeHostsWorksAtTheFirstTryAndLeavesNothing) {
  auto front = Start(kThreeHosts);
  AwaitSteps(front.get(), 5);
  for (const int host : {1, 2, 3}) EXPECT_EQ(AwaitStages(host).size(), 1u) << host;
  // Or to find nothing below would say nothing.
  EXPECT_EQ(hosts().Processes(2, "orted").size(), 1u);
  EXPECT_FALSE(hosts().Files(2).empty());
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(answer["timings"]["relaunches"], 0);
  EXPECT_THAT(front->err(), Not(HasSubstr("lost")));
  ExpectNothingLeft();
}

TEST_F(SteadyTest, AFrontKilledForGoodLeavesNothingOnAnyHost) {
  auto front = Start(kThreeHosts);
  AwaitSteps(front.get(), 5);
  for (const int host : {1, 2, 3}) AwaitStages(host);
  kill(hosts().PidOf(*front), SIGKILL);
  EXPECT_EQ(front->Wait(10).exit_code, 128 + SIGKILL);
  ExpectNothingLeft();
}

TEST_F(SteadyTest, SilencesShorterThanTheDeadlineRestartNothing) {
  auto front = Start(kThreeHosts);
  AwaitSteps(front.get(), 10);
  hosts().Cut(3);
  SleepFor(3);
  hosts().Heal(3);
  AwaitSteps(front.get(), 20);
  const pid_t stage = AwaitStages(2).front();
  kill(stage, SIGSTOP);
  SleepFor(3);
  kill(stage, SIGCONT);
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(answer["timings"]["relaunches"], 0);
  ExpectNothingLeft();
}

TEST_F(SteadyTest, AHostWhoseLinkComesBackGoesOn) {
  auto front = Start(kThreeHosts);
  AwaitSteps(front.get(), 10);
  hosts().Cut(3);
  EXPECT_TRUE(front->WaitForOutput("the job was lost", 20)) << front->err();
  EXPECT_THAT(front->err(), HasSubstr("on host3"));
  SleepFor(1);
  hosts().Heal(3);
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_GE(answer["timings"]["relaunches"], 1);
  ExpectNothingLeft();
}

}  // namespace
}  // namespace stagecoach
