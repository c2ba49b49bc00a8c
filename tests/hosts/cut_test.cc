// Links that are cut in the middle of a generation, for some time or for ever: the answer is the same to the last
// digit.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hosts/support/generation.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using testing::LinesWith;
using testing::SleepFor;
using Words = std::vector<std::string>;

class CutTest : public testing::HostsTest {};

TEST_F(CutTest, AHostWhoseLinkComesBackInTimeGoesOn) {
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

TEST_F(CutTest, ASpareHostTakesThePlaceOfOneThatIsGoneForEver) {
  auto front = Start(kWithASpare, ShortHostTimeout());
  AwaitSteps(front.get(), 10);
  EXPECT_TRUE(Stages(4).empty());
  hosts().Cut(3);
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(HostsOf(answer), Words({"host1", "host2", "host4"}));
  EXPECT_GE(LinesWith(front->err(), "host3 is left out"), 1) << front->err();
  hosts().Heal(3);
  ExpectNothingLeft();
}

TEST_F(CutTest, WithoutASpareTheOthersTakeItsLayers) {
  auto front = Start(kThreeHosts, ShortHostTimeout());
  AwaitSteps(front.get(), 10);
  hosts().Cut(3);
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(HostsOf(answer), Words({"host1", "host2"}));
  EXPECT_GE(LinesWith(front->err(), "host3 is left out"), 1) << front->err();
  hosts().Heal(3);
  ExpectNothingLeft();
}

}  // namespace
}  // namespace stagecoach
