// What a start asks of the machine around it.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/paths.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// What a program and all that it started asked of the resolver, a question a line.
struct Questions {
  ProgramResult result;
  std::string asked;
};

Questions Trapped(const std::string& program, const Words& arguments) {
  const TempDir directory;
  const std::string file = directory.File("questions.txt");
  WriteFileOrDie(file, "");
  std::vector<std::pair<std::string, std::string>> environment = AllowRoot();
  environment.emplace_back("LD_PRELOAD", BuildPath("tests/e2e/libresolver_trap.so"));
  environment.emplace_back("RESOLVER_TRAP", file);
  Questions questions;
  questions.result = RunProgram(program, arguments, "", 90, environment);
  questions.asked = ReadFileOrDie(file);
  return questions;
}

// A machine whose name server is slow and whose /etc/hosts is empty starts as fast as any other.
TEST(Start, AsksNoNameServerForStagesOnThisMachine) {
  EXPECT_THAT(Trapped("getent", {"ahosts", "localhost"}).asked, HasSubstr("getent asks for localhost"));
  const Questions start = Trapped(CoordinatorProgram(), Generate({"--pp", "2", "-p", "In the beginning", "-n", "4"}));
  EXPECT_EQ(start.result.exit_code, 0) << start.result;
  EXPECT_THAT(start.result.out, StartsWith(" of the Lord"));
  EXPECT_EQ(start.asked, "");
}

TEST(Start, AsksNoNameServerInARankOfAWorld) {
  const Questions start = Trapped("mpirun", WorldArguments(Generate({"-p", "In the beginning", "-n", "4"}), 2));
  EXPECT_EQ(start.result.exit_code, 0) << start.result;
  EXPECT_THAT(start.asked, Not(HasSubstr("coordinator asks")));
  EXPECT_THAT(start.asked, Not(HasSubstr("stage_worker asks")));
}

}  // namespace
}  // namespace stagecoach::testing
