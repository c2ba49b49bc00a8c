// Hosts that go, come back or are replaced in the middle of a generation: the answer is the same to the last digit.

#include <signal.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hosts/support/generation.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using testing::LinesWith;
using ::testing::Not;
using testing::SleepFor;
using Words = std::vector<std::string>;

constexpr char kThreeHosts[] = "host1 slots=1\nhost2 slots=1\nhost3 slots=1\n";
constexpr char kWithASpare[] = "host1 slots=1\nhost2 slots=1\nhost3 slots=1\nhost4 slots=1 spare\n";
// How long a relaunch waits for hosts that do not answer.
const Words kShort = {"--host-timeout", "3"};

class LossTest : public testing::HostsTest {};

TEST_F(LossTest, AHostWhoseLinkComesBackInTimeGoesOn) {
  auto front = Start(kThreeHosts);
  AwaitSteps(front.get(), 10);
  hosts().Cut(3);
  EXPECT_TRUE(front->WaitForOutput("the job was lost", 20)) << front->err();
  EXPECT_THAT(front->err(), HasSubstr("on host3"));
  SleepFor(1);
  hosts().Heal(3);
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_GE(answer["timings"]["relaunches"], 1);
  EXPECT_EQ(HostsOf(answer), Words({"host1", "host2", "host3"}));
  ExpectNothingLeft();
}

TEST_F(LossTest, ASpareHostTakesThePlaceOfOneThatIsGoneForEver) {
  auto front = Start(kWithASpare, kShort);
  AwaitSteps(front.get(), 10);
  EXPECT_TRUE(Stages(4).empty());
  hosts().Cut(3);
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(HostsOf(answer), Words({"host1", "host2", "host4"}));
  EXPECT_GE(LinesWith(front->err(), "host3 is left out"), 1) << front->err();
  hosts().Heal(3);
  ExpectNothingLeft();
}

TEST_F(LossTest, WithoutASpareTheOthersTakeItsLayers) {
  auto front = Start(kThreeHosts, kShort);
  AwaitSteps(front.get(), 10);
  hosts().Cut(3);
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(HostsOf(answer), Words({"host1", "host2"}));
  EXPECT_GE(LinesWith(front->err(), "host3 is left out"), 1) << front->err();
  hosts().Heal(3);
  ExpectNothingLeft();
}

TEST_F(LossTest, AKilledHostIsLeftOut) {
  auto front = Start(kThreeHosts, kShort);
  AwaitSteps(front.get(), 10);
  hosts().Kill(2);
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(HostsOf(answer), Words({"host1", "host3"}));
  EXPECT_GE(LinesWith(front->err(), "host2 is left out"), 1) << front->err();
  hosts().Revive(2);
  ExpectNothingLeft();
}

TEST_F(LossTest, AHostThatBootsInTimeIsUsedAgain) {
  auto front = Start(kThreeHosts);
  AwaitSteps(front.get(), 10);
  hosts().Kill(2);
  EXPECT_TRUE(front->WaitForOutput("the job was lost", 20)) << front->err();
  hosts().Revive(2);
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(HostsOf(answer), Words({"host1", "host2", "host3"}));
  ExpectNothingLeft();
}

TEST_F(LossTest, ARankThatIsStoppedForGoodIsLostAndReplacedOnItsHost) {
  auto front = Start(kThreeHosts);
  AwaitSteps(front.get(), 10);
  hosts().Signal(AwaitStage(3), SIGSTOP);
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(answer["timings"]["relaunches"], 1);
  EXPECT_THAT(front->err(), HasSubstr("stage 2 on host3"));
  EXPECT_EQ(HostsOf(answer), Words({"host1", "host2", "host3"}));
  ExpectNothingLeft();
}

// With the host's orted stopped too nobody there ends the old rank, which holds memory.
TEST_F(LossTest, AHostThatComesBackIsUsedAtALaterLaunchAndCleanedBefore) {
  auto front = Start(kWithASpare, kShort);
  AwaitSteps(front.get(), 10);
  const pid_t old = AwaitStage(3);
  for (const testing::ProcessInfo& orted : hosts().Processes(3, "orted")) hosts().Signal(orted.pid, SIGSTOP);
  hosts().Signal(old, SIGSTOP);
  hosts().Cut(3);
  EXPECT_TRUE(front->WaitForOutput("host3 is left out", 30)) << front->err();
  AwaitStage(4);
  hosts().Heal(3);
  SleepFor(0.5);
  EXPECT_TRUE(testing::IsAlive(old));
  EXPECT_EQ(Stages(3).size(), 1u) << "no new one in mid-run";
  hosts().Signal(AwaitStage(4), SIGKILL);
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(answer["timings"]["relaunches"], 2);
  EXPECT_FALSE(testing::IsAlive(old));
  EXPECT_EQ(HostsOf(answer), Words({"host1", "host2", "host3"}));
  EXPECT_THAT(front->err(), HasSubstr("host3 is back"));
  ExpectNothingLeft();
}

}  // namespace
}  // namespace stagecoach
