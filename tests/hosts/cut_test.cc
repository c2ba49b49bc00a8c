// Links that are cut in the middle of a generation, for some time or for ever: the answer is the same to the last
// digit.

#include "tests/hosts/support/generation.h"

namespace stagecoach::testing {
namespace {

class CutTest : public HostsTest {};

TEST_F(CutTest, AHostWhoseLinkComesBackInTimeGoesOn) {
  auto front = Start(kThreeHosts);
  AwaitSteps(front.get(), 10);
  hosts().Cut(3);
  EXPECT_TRUE(front->WaitForOutput("the job was lost", 20)) << front->err();
  EXPECT_THAT(front->err(), HasSubstr("on host3"));
  SleepFor(1);
  hosts().Heal(3);
  const Json answer = ExpectTheAnswer(front.get(), {"host1", "host2", "host3"});
  EXPECT_GE(answer["timings"]["relaunches"], 1);
  ExpectNothingLeft();
}

TEST_F(CutTest, ASpareHostTakesThePlaceOfOneThatIsGoneForEver) {
  auto front = Start(kWithASpare, ShortHostTimeout());
  AwaitSteps(front.get(), 10);
  EXPECT_TRUE(Stages(4).empty());
  hosts().Cut(3);
  ExpectTheAnswer(front.get(), {"host1", "host2", "host4"});
  EXPECT_THAT(front->err(), HasSubstr("host3 is left out"));
  hosts().Heal(3);
  ExpectNothingLeft();
}

TEST_F(CutTest, WithoutASpareTheOthersTakeItsLayers) {
  auto front = Start(kThreeHosts, ShortHostTimeout());
  AwaitSteps(front.get(), 10);
  hosts().Cut(3);
  ExpectTheAnswer(front.get(), {"host1", "host2"});
  EXPECT_THAT(front->err(), HasSubstr("host3 is left out"));
  hosts().Heal(3);
  ExpectNothingLeft();
}

}  // namespace
}  // namespace stagecoach::testing
