#include "stage_worker/host_guard.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/process_tree.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

class HostGuardTest : public ::testing::Test {
 protected:
  const std::string name_ = "stagecoach.G" + std::to_string(getpid() % 90000 + 10000);
  const std::string directory_ = "/tmp/" + name_;
};

TEST_F(HostGuardTest, PassesOnHowTheCommandEnded) {
  EXPECT_EQ(GuardHost({name_, "true"}), 0);
  EXPECT_EQ(GuardHost({name_, "sh", "-c", "exit 3"}), 3);
  EXPECT_EQ(GuardHost({name_, "sh", "-c", "kill -9 $$"}), 128 + 9);
  EXPECT_EQ(GuardHost({name_, "/no/such/program"}), 127);
}

TEST_F(HostGuardTest, TakesANameAndACommand) {
  EXPECT_EQ(GuardHost({}), 2);
  EXPECT_EQ(GuardHost({name_}), 2);
  EXPECT_EQ(GuardHost({"/tmp", "true"}), 2);
}

TEST_F(HostGuardTest, EndsWhatTheCommandLeavesAndRemovesItsDirectories) {
  const testing::TempDir dir;
  // What it leaves goes on in a session of its own, as ranks of an orted that was killed do.
  const std::string script = "mkdir -m 700 " + directory_ + "; touch " + directory_ + "/file; NAME=" + name_ +
                             " setsid sh -c 'echo $$ >" + dir.File("pid") + "; exec sleep 600' >/dev/null 2>&1 & " +
                             "while ! [ -s " + dir.File("pid") + " ]; do sleep 0.01; done; exit 4";
  EXPECT_EQ(GuardHost({name_, "sh", "-c", script}), 4);
  EXPECT_FALSE(testing::IsAlive(std::stoi(testing::ReadFileOrDie(dir.File("pid")))));
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

}  // namespace
}  // namespace stagecoach
