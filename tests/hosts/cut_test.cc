// Links that are cut in the middle of a generation, for some time or for ever: the answer is the same to the last
// digit.

#include "tests/hosts/support/generation.h"

namespace stagecoach::testing {
namespace {

class CutTest : public HostsTest {};

TEST_F(CutTest, AHostWhoseLinkComesBackInTimeGoesOn) {
  auto front = StartUntil(10, kThreeHosts);
  hosts().Cut(3);
  EXPECT_TRUE(front->WaitForOutput("the job was lost", 20)) << front->err();
  EXPECT_THAT(front->err(), HasSubstr("on host3"));
  SleepFor(1);
  hosts().Heal(3);
  EXPECT_GE(ExpectTheAnswer(front.get(), {"host1", "host2", "host3"})["timings"]["relaunches"], 1);
}

TEST_F(CutTest, ASpareHostTakesThePlaceOfOneThatIsGoneForEver) {
  auto front = StartUntil(10, kWithASpare, ShortHostTimeout());
  EXPECT_TRUE(Stages(4).empty());
  hosts().Cut(3);
  ExpectTheAnswer(front.get(), {"host1", "host2", "host4"});
  EXPECT_THAT(front->err(), HasSubstr("host3 is left out"));
  hosts().Heal(3);
}

TEST_F(CutTest, WithoutASpareTheOthersTakeItsLayers) {
  auto front = StartUntil(10, kThreeHosts, ShortHostTimeout());
  hosts().Cut(3);
  ExpectTheAnswer(front.get(), {"host1", "host2"});
  EXPECT_THAT(front->err(), HasSubstr("host3 is left out"));
  hosts().Heal(3);
}

}  // namespace
}  // namespace stagecoach::testing
