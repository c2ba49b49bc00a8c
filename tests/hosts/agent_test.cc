// A remote shell that never answers for one host: at the first launch, and when a lost job is launched again.

#include <signal.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hosts/support/generation.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using testing::LinesWith;
using testing::ProgramResult;
using Words = std::vector<std::string>;

class AgentTest : public testing::HostsTest {};

TEST_F(AgentTest, AtTheFirstLaunchASpareHostTakesThePlace) {
  hosts().HangAgent(3);
  auto front = Start(kWithASpare, ShortHostTimeout());
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(HostsOf(answer), Words({"host1", "host2", "host4"}));
  EXPECT_GE(LinesWith(front->err(), "host3 is left out"), 1) << front->err();
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
  const nlohmann::json answer = ExpectTheAnswer(front.get());
  EXPECT_EQ(answer["timings"]["relaunches"], 1);
  EXPECT_EQ(HostsOf(answer), Words({"host1", "host2"}));
  EXPECT_GE(LinesWith(front->err(), "host3 is left out"), 1) << front->err();
  ExpectNothingLeft();
}

// The product's option says the same as Open MPI's setting.
TEST_F(AgentTest, TheAgentIsTakenFromTheOptionToo) {
  auto front = Start(kThreeHosts, {"--rsh-agent", hosts().agent()}, {{"OMPI_MCA_plm_rsh_agent", ""}});
  ExpectTheAnswer(front.get());
  ExpectNothingLeft();
}

}  // namespace
}  // namespace stagecoach
