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
  ExpectNothingLeft();
}

TEST_F(AgentTest, AtTheFirstLaunchWithoutASpareTheErrorNamesTheHost) {
  hosts().HangAgent(3);
  const ProgramResult result = Start(kThreeHosts, ShortHostTimeout())->Wait(30);
  EXPECT_EQ(result.exit_code, 4) << result;
  EXPECT_THAT(result.err, HasSubstr("host3"));
  EXPECT_THAT(result.err, HasSubstr("did not answer for"));
  EXPECT_EQ(result.out, "");
  ExpectNothingLeft();
}

TEST_F(AgentTest, AtARelaunchTheOtherHostsTakeTheLayers) {
  auto front = Start(kThreeHosts, ShortHostTimeout());
  AwaitSteps(front.get(), 10);
  hosts().HangAgent(3);
  hosts().Signal(AwaitStage(3), SIGKILL);
  const Json answer = ExpectTheAnswer(front.get(), {"host1", "host2"});
  EXPECT_EQ(answer["timings"]["relaunches"], 1);
  EXPECT_THAT(front->err(), HasSubstr("host3 is left out"));
  ExpectNothingLeft();
}

// The product's option says the same as Open MPI's setting.
TEST_F(AgentTest, TheAgentIsTakenFromTheOptionToo) {
  auto front = Start(kThreeHosts, {"--rsh-agent", hosts().agent()}, {{"OMPI_MCA_plm_rsh_agent", ""}});
  ExpectTheAnswer(front.get());
  ExpectNothingLeft();
}

}  // namespace
}  // namespace stagecoach::testing
