#include "common/base/private_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace stagecoach {
namespace {

class PrivateDirTest : public ::testing::Test {
 protected:
  PrivateDirTest() {
    std::string name = ::testing::TempDir() + "private_dir.XXXXXX";
    parent_ = mkdtemp(name.data());
  }
  ~PrivateDirTest() override { std::filesystem::remove_all(parent_); }
  std::string parent_;
};

TEST_F(PrivateDirTest, IsForItsOwnerAloneAndGoesWithAllItHolds) {
  const absl::StatusOr<std::string> path = MakePrivateDirectory(parent_);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(IsPrivateDirectoryName(*path));
  struct stat info;
  ASSERT_EQ(stat(path->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  std::filesystem::create_directories(*path + "/a/b");
  std::ofstream(*path + "/a/b/file") << "x";
  RemovePrivateDirectories({*path, *path});
  EXPECT_FALSE(std::filesystem::exists(*path));
}

TEST_F(PrivateDirTest, RemovalSparesWhatIsNotOurs) {
  for (const char* name :
       {"stagecoach.abc", "stagecoach.abcdefg", "stagecoach.abc/ef", "other.abcdef", "stagecoach.abcd-f"}) {
    const std::string path = parent_ + "/" + name;
    std::filesystem::create_directories(path);
    RemovePrivateDirectories({path});
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
  }
  const std::string file = parent_ + "/stagecoach.abcdef";
  std::ofstream(file) << "x";
  const std::string link = parent_ + "/stagecoach.bbbbbb";
  std::filesystem::create_directory_symlink(parent_ + "/other.abcdef", link);
  RemovePrivateDirectories({file, link, "", "/", "stagecoach.abcdef", parent_ + "/x/../stagecoach.abcdef"});
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_TRUE(std::filesystem::exists(link));
}

TEST_F(PrivateDirTest, RemovalDoesNotFollowLinksOut) {
  const absl::StatusOr<std::string> path = MakePrivateDirectory(parent_);
  ASSERT_TRUE(path.ok()) << path.status();
  std::ofstream(parent_ + "/outside") << "x";
  std::filesystem::create_symlink(parent_ + "/outside", *path + "/link");
  std::filesystem::create_directory_symlink(parent_, *path + "/up");
  RemovePrivateDirectories({*path});
  EXPECT_FALSE(std::filesystem::exists(*path));
  EXPECT_TRUE(std::filesystem::exists(parent_ + "/outside"));
}

TEST_F(PrivateDirTest, NamesTheParentThatCannotBeUsed) {
  const absl::Status status = MakePrivateDirectory(parent_ + "/absent").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(parent_ + "/absent"), absl::string_view::npos);
}

}  // namespace
}  // namespace stagecoach
