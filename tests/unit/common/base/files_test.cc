#include "common/base/files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "common/host/private_dir.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using testing::ReadFileOrDie;

// The lines, or "error: ..." as the last of them. One without its newline ends with "...".
std::vector<std::string> LinesOf(const std::string& path, size_t longest) {
  LineFile file(path, longest);
  std::vector<std::string> lines;
  while (true) {
    const auto line = file.Next();
    if (!line.ok()) {
      EXPECT_EQ(file.Next().status(), line.status()) << "it stays so";
      lines.push_back("error: " + std::string(line.status().message()));
      return lines;
    }
    if (!line->has_value()) return lines;
    lines.push_back(std::string(**line) + (file.whole() ? "" : "..."));
    EXPECT_EQ(file.number(), static_cast<int64_t>(lines.size()));
  }
}

std::vector<std::string> LinesIn(const std::string& text, size_t longest = 100) {
  const testing::TempDir directory;
  testing::WriteFileOrDie(directory.File("text"), text);
  return LinesOf(directory.File("text"), longest);
}

TEST(LineFile, GivesEveryLineAndTellsWhichLacksItsNewline) {
  EXPECT_THAT(LinesIn(""), IsEmpty());
  EXPECT_THAT(LinesIn("\n"), ElementsAre(""));
  EXPECT_THAT(LinesIn("a\n\nb\r\nc"), ElementsAre("a", "", "b\r", "c..."));
  EXPECT_THAT(LinesIn("a\n"), ElementsAre("a"));
}

TEST(LineFile, GivesLinesThatLieAcrossWhatIsReadAtOnce) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 4000; ++i) {
    expected.push_back(std::string(static_cast<size_t>(i % 997), 'x'));
    text += expected.back() + "\n";
  }
  EXPECT_EQ(LinesIn(text, 996), expected);
}

TEST(LineFile, EndsWithTheFirstLineThatIsTooLong) {
  EXPECT_THAT(LinesIn("abc\nabcd\nabc\n", 3), ElementsAre("abc", "error: line 2 is longer than 3 bytes"));
  EXPECT_THAT(LinesIn("abc\nabcd", 3), ElementsAre("abc", "error: line 2 is longer than 3 bytes"));
  EXPECT_THAT(LinesOf("/dev/zero", 1 << 20), ElementsAre("error: line 1 is longer than 1048576 bytes"));
}

TEST(LineFile, SaysWhyAFileCannotBeRead) {
  EXPECT_THAT(LinesOf("/nowhere/x", 10), ElementsAre("error: cannot read '/nowhere/x': No such file or directory"));
  EXPECT_THAT(LinesOf("/", 10), ElementsAre("error: cannot read '/': Is a directory"));
}

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
  EXPECT_THAT(status.message(), AllOf(HasSubstr("cannot write '" + path + "': "), HasSubstr("too large")));
  EXPECT_EQ(ReadFileOrDie(path), "old");
  EXPECT_EQ(FilesIn(directory.path()), 1);
}

TEST(WholeFile, LeavesNothingWhereTheNewOneCannotTakeItsPlace) {
  const testing::TempDir directory;
  const std::string path = directory.File("points.csv");
  {
    WholeFile file(path);
    file.Add("x");
    std::filesystem::create_directory(path);
    EXPECT_FALSE(file.Finish().ok());
  }
  EXPECT_EQ(FilesIn(directory.path()), 1);
}

TEST(WholeFile, LeavesFilesThatHaveTheNameOfTheNewOne) {
  const testing::TempDir directory;
  const std::string path = directory.File("a.json");
  testing::WriteFileOrDie(path + ".new", "a user's");
  std::filesystem::create_symlink(directory.File("elsewhere"), path + ".new1");
  ASSERT_TRUE(WriteWholeFile(path, "text").ok());
  EXPECT_TRUE(CheckWholeFile(path).ok());
  EXPECT_EQ(ReadFileOrDie(path), "text");
  EXPECT_EQ(ReadFileOrDie(path + ".new"), "a user's");
  EXPECT_TRUE(std::filesystem::is_symlink(path + ".new1"));
  EXPECT_EQ(FilesIn(directory.path()), 3);
}

TEST(WholeFile, IsWrittenInPlaceWhereItsDirectoryTakesNoFiles) {
  const testing::TempDir directory;
  const std::string path = directory.File("conversation.json");
  testing::WriteFileOrDie(path, "an older and longer text");
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  ASSERT_EQ(chmod(directory.path().c_str(), 0555), 0);
  const bool root = geteuid() == 0;  // whom no mode keeps out
  if (root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const bool reached = faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
  absl::Status check, written, fresh;
  std::string checked;
  if (reached) {
    check = CheckWholeFile(path);
    checked = ReadFileOrDie(path);
    written = WriteWholeFile(path, "new");
    fresh = WriteWholeFile(directory.File("fresh"), "x");
  }
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  ASSERT_EQ(chmod(directory.path().c_str(), 0755), 0);
  if (!reached) GTEST_SKIP() << "other users do not reach " << directory.path();
  EXPECT_TRUE(check.ok()) << check;
  EXPECT_EQ(checked, "an older and longer text");
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_EQ(ReadFileOrDie(path), "new");
  EXPECT_THAT(fresh.message(), HasSubstr("Permission denied"));
  EXPECT_EQ(FilesIn(directory.path()), 1);
}

TEST(WholeFile, ThatIsNotFinishedChangesNothing) {
  const testing::TempDir directory;
  const std::string path = directory.File("trace");
  testing::WriteFileOrDie(path, "old");
  {
    WholeFile file(path);
    file.Add(std::string(3 << 20, 'x'));
    ASSERT_TRUE(file.status().ok());
  }
  EXPECT_EQ(ReadFileOrDie(path), "old");
  EXPECT_EQ(FilesIn(directory.path()), 1);
}

TEST(WholeFile, WritesADeviceAsItIs) {
  EXPECT_TRUE(CheckWholeFile("/dev/null").ok());
  EXPECT_TRUE(WriteWholeFile("/dev/null", "text").ok());
  struct stat info = {};
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  EXPECT_THAT(WriteWholeFile("/dev/full", "text").message(), HasSubstr("No space left on device"));
}

TEST(WholeFile, TellsBeforehandWhatCannotBeWrittenAndLeavesNothing) {
  const testing::TempDir directory;
  EXPECT_TRUE(CheckWholeFile(directory.File("fresh")).ok());
  EXPECT_EQ(FilesIn(directory.path()), 0);
  EXPECT_THAT(CheckWholeFile(directory.path()).message(), HasSubstr("Is a directory"));
  EXPECT_THAT(CheckWholeFile("/nowhere/x").message(), HasSubstr("cannot write '/nowhere/x': No such file"));
  EXPECT_THAT(CheckWholeFile("").message(), HasSubstr("cannot write '': No such file"));
}

class PrivateDirTest : public ::testing::Test {
 protected:
  const testing::TempDir dir_;
  const std::string parent_ = dir_.path();
};

TEST_F(PrivateDirTest, IsForItsOwnerAloneAndGoesWithAllItHolds) {
  const std::string path = MakePrivateDirectory(parent_).value();
  EXPECT_TRUE(IsPrivateDirectoryName(path));
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  std::filesystem::create_directories(path + "/a/b");
  std::ofstream(path + "/a/b/file") << "x";
  RemovePrivateDirectories({path, path});
  EXPECT_FALSE(std::filesystem::exists(path));
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
  const std::string path = MakePrivateDirectory(parent_).value();
  std::ofstream(parent_ + "/outside") << "x";
  std::filesystem::create_symlink(parent_ + "/outside", path + "/link");
  std::filesystem::create_directory_symlink(parent_, path + "/up");
  RemovePrivateDirectories({path});
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::exists(parent_ + "/outside"));
}

TEST_F(PrivateDirTest, NamesTheParentThatCannotBeUsed) {
  const absl::Status status = MakePrivateDirectory(parent_ + "/absent").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(parent_ + "/absent"), absl::string_view::npos);
}

}  // namespace
}  // namespace stagecoach
