// What the tests of hosts stand on: hosts have a /tmp of their own, and yet see a tree that lies there; a process is
// found below another.

#include <csignal>
#include <fstream>

#include "absl/strings/str_join.h"
#include "tests/hosts/support/generation.h"

namespace stagecoach::testing {
namespace {

class TreeTest : public HostsTest {};

TEST_F(TreeTest, BelowTmpIsSeenByEveryHostAndIsNoFileOfItsOwn) {
  const TempDir tree;
  ASSERT_EQ(tree.path().rfind("/tmp/", 0), 0u) << tree.path();
  WriteFileOrDie(tree.File("program"), "built");
  EmulatedHosts two(2, {tree.path()});
  for (const int host : {1, 2}) {
    const ProgramResult seen = two.Start(host, "cat", {tree.File("program")})->Wait(10);
    EXPECT_EQ(seen.out, "built") << seen;
    EXPECT_TRUE(two.Files(host).empty());
    const std::string own = "/tmp/of-host" + std::to_string(host);
    EXPECT_EQ(two.Start(host, "touch", {own})->Wait(10).exit_code, 0);
    EXPECT_EQ(two.Files(host), Words({own}));
  }
}

// The ids of processes end at a number and begin anew, and a child's may be the smaller one.
TEST_F(TreeTest, AProcessIsFoundBeforeItsChildrenWhateverTheirIds) {
  constexpr size_t kProcesses = 8;
  Words words = {"sleep", "60"};
  Words expected;
  while (words.size() < 2 * kProcesses) {
    expected.insert(expected.begin(), absl::StrJoin(words, " ") + " ");
    words.insert(words.begin(), {"timeout", "60"});  // which runs the rest as its child
  }
  const int last_id = std::stoi(ReadFileOrDie("/proc/sys/kernel/pid_max"));
  // Where it may not be written, the ids only rarely begin anew among these.
  std::ofstream("/proc/sys/kernel/ns_last_pid") << last_id - static_cast<int>(kProcesses) / 2;
  Subprocess first(words[0], {words.begin() + 1, words.end()});
  AwaitDescendants(first.pid(), "", kProcesses - 1, 10);
  Words found;
  for (const ProcessInfo& process : Descendants(first.pid())) found.push_back(process.command);
  EXPECT_EQ(found, expected);
  first.Kill(SIGTERM);
  first.Wait(10);
}

}  // namespace
}  // namespace stagecoach::testing
