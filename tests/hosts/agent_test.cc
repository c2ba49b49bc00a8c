// A remote shell that never answers for one host: at the first launch, and when a lost job is launched again.

#include <signal.h>

#include "tests/hosts/support/generation.h"

namespace stagecoach::testing {
namespace {

class AgentTest : public HostsTest {};

TEST_F(AgentTest, AtTheFirstLaunchASpareHostTakesThePlace) {
  hosts().HangAgent(3);
  auto front = Start(kWithASpare, ShortHostTimeout());
  ExpectTheAnswer(front.get(), {"host1", "host2", "host4"});
  EXPECT_THAT(front->err(), HasSubstr("host3 is left out"));
}

TEST_F(AgentTest, AtTheFirstLaunchWithoutASpareTheErrorNamesTheHost) {
  hosts().HangAgent(3);
  const ProgramResult result = Start(kThreeHosts, ShortHostTimeout())->Wait(30);
  EXPECT_THAT(result, EndsWithCode(4, HasSubstr("host3")));
  EXPECT_THAT(result.err, HasSubstr("did not answer for"));
  EXPECT_EQ(result.out, "");
}

TEST_F(AgentTest, AtARelaunchTheOtherHostsTakeTheLayers) {
  auto front = StartUntil(10, kThreeHosts, ShortHostTimeout());
  hosts().HangAgent(3);
  hosts().Signal(AwaitStage(3), SIGKILL);
  EXPECT_EQ(ExpectTheAnswer(front.get(), {"host1", "host2"})["timings"]["relaunches"], 1);
  EXPECT_THAT(front->err(), HasSubstr("host3 is left out"));
}

// The product's option says the same as Open MPI's setting.
TEST_F(AgentTest, TheAgentIsTakenFromTheOptionToo) {
  ExpectTheAnswer(Start(kThreeHosts, {"--rsh-agent", hosts().agent()}, {{"OMPI_MCA_plm_rsh_agent", ""}}).get());
}

}  // namespace
}  // namespace stagecoach::testing
