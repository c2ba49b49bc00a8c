#include "common/base/whole_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ReadFileOrDie;

int FilesIn(const std::string& directory) {
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++files;
  return files;
}

TEST(WholeFile, ReplacesWhatWasThereAndKeepsItsMode) {
  const testing::TempDir directory;
  const std::string path = directory.File("profile.json");
  ASSERT_TRUE(WriteWholeFile(path, "first").ok());
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(WriteWholeFile(path, "second").ok());
  EXPECT_EQ(ReadFileOrDie(path), "second");
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_EQ(FilesIn(directory.path()), 1);
}

TEST(WholeFile, WritesWhereALinkLeads) {
  const testing::TempDir directory;
  testing::WriteFileOrDie(directory.File("real"), "old");
  std::filesystem::create_symlink(directory.File("real"), directory.File("link"));
  ASSERT_TRUE(WriteWholeFile(directory.File("link"), "new").ok());
  EXPECT_EQ(ReadFileOrDie(directory.File("real")), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(directory.File("link")));
}

TEST(WholeFile, KeepsTheOldTextWhenTheNewOneDoesNotFit) {
  const testing::TempDir directory;
  const std::string path = directory.File("profile.json");
  ASSERT_TRUE(WriteWholeFile(path, "old").ok());
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = WriteWholeFile(path, std::string(1000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("cannot write '" + path + "': "), HasSubstr("too large")));
  EXPECT_EQ(ReadFileOrDie(path), "old");
  EXPECT_EQ(FilesIn(directory.path()), 1);
}

TEST(WholeFile, WritesADeviceAsItIs) {
  EXPECT_TRUE(CheckWholeFile("/dev/null").ok());
  EXPECT_TRUE(WriteWholeFile("/dev/null", "text").ok());
  struct stat info = {};
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  EXPECT_THAT(std::string(WriteWholeFile("/dev/full", "text").message()), HasSubstr("No space left on device"));
}

TEST(WholeFile, TellsBeforehandWhatCannotBeWrittenAndLeavesNothing) {
  const testing::TempDir directory;
  EXPECT_TRUE(CheckWholeFile(directory.File("fresh")).ok());
  EXPECT_EQ(FilesIn(directory.path()), 0);
  EXPECT_THAT(std::string(CheckWholeFile(directory.path()).message()), HasSubstr("Is a directory"));
  EXPECT_THAT(std::string(CheckWholeFile("/nowhere/x").message()),
              HasSubstr("cannot write '/nowhere/x': No such file"));
  EXPECT_THAT(std::string(CheckWholeFile("").message()), HasSubstr("cannot write '': No such file"));
}

}  // namespace
}  // namespace stagecoach
