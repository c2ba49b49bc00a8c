// Hosts have a /tmp of their own, and yet see a tree that lies there.

#include <string>

#include "gtest/gtest.h"
#include "tests/hosts/support/generation.h"
#include "tests/testing/shared_data.h"

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

}  // namespace
}  // namespace stagecoach
