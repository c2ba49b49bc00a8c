// What the tests of hosts stand on: hosts have a /tmp of their own, and yet see a tree that lies there; a process is
// found below another.

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/hosts/support/generation.h"
#include "tests/testing/process_tree.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"

namespace stagecoach {
namespace {

class TreeTest : public testing::HostsTest {};

TEST_F(TreeTest, BelowTmpIsSeenByEveryHostAndIsNoFileOfItsOwn) {
  const testing::TempDir tree;
  ASSERT_EQ(tree.path().rfind("/tmp/", 0), 0u) << tree.path();
  testing::WriteFileOrDie(tree.File("program"), "built");
  testing::EmulatedHosts two(2, {tree.path()});
  for (const int host : {1, 2}) {
    const testing::ProgramResult seen = two.Start(host, "cat", {tree.File("program")})->Wait(10);
    EXPECT_EQ(seen.out, "built") << seen;
    EXPECT_TRUE(two.Files(host).empty());
    const std::string own = "/tmp/of-host" + std::to_string(host);
    EXPECT_EQ(two.Start(host, "touch", {own})->Wait(10).exit_code, 0);
    EXPECT_EQ(two.Files(host), std::vector<std::string>({own}));
  }
}

// The ids of processes end at a number and begin anew, and a child's may be the smaller one.
TEST_F(TreeTest, AProcessIsFoundBeforeItsChildrenWhateverTheirIds) {
  constexpr size_t kProcesses = 8;
  std::vector<std::string> words = {"sleep", "60"};
  std::vector<std::string> expected;
  while (words.size() < 2 * kProcesses) {
    expected.insert(expected.begin(), absl::StrJoin(words, " ") + " ");
    words.insert(words.begin(), {"timeout", "60"});  // which runs the rest as its child
  }
  const int last_id = std::stoi(testing::ReadFileOrDie("/proc/sys/kernel/pid_max"));
  // Where it may not be written, the ids only rarely begin anew among these.
  std::ofstream("/proc/sys/kernel/ns_last_pid") << last_id - static_cast<int>(kProcesses) / 2;
  testing::Subprocess first(words[0], {words.begin() + 1, words.end()});
  testing::AwaitDescendants(first.pid(), "", kProcesses - 1, 10);
  std::vector<std::string> found;
  for (const testing::ProcessInfo& process : testing::Descendants(first.pid())) found.push_back(process.command);
  EXPECT_EQ(found, expected);
  first.Kill(SIGTERM);
  first.Wait(10);
}

}  // namespace
}  // namespace stagecoach
