#include "coordinator/cli/chat/line_history.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cli/chat/chat_input.h"
#include "coordinator/cli/chat/line_source.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using testing::TempDir;

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
}

// An environment variable for as long as this is there; absent: none.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, std::optional<std::string> value) : name_(name) {
    if (const char* before = std::getenv(name); before != nullptr) before_ = before;
    Set(value);
  }
  ~ScopedVariable() { Set(before_); }

 private:
  void Set(const std::optional<std::string>& value) const {
    if (value.has_value()) setenv(name_, value->c_str(), 1);
    if (!value.has_value()) unsetenv(name_);
  }
  const char* const name_;
  std::optional<std::string> before_;
};

TEST(LineHistory, LiesWhereTheEnvironmentSays) {
  const ScopedVariable home("HOME", "/home/me");
  {
    const ScopedVariable state("XDG_STATE_HOME", "/state");
    EXPECT_EQ(LineHistoryPath(), "/state/stagecoach/chat_history");
  }
  for (const std::optional<std::string>& value : {std::optional<std::string>(), {""}, {"relative"}}) {
    const ScopedVariable state("XDG_STATE_HOME", value);
    EXPECT_EQ(LineHistoryPath(), "/home/me/.local/state/stagecoach/chat_history");
  }
  const ScopedVariable state("XDG_STATE_HOME", std::nullopt), no_home("HOME", std::nullopt);
  EXPECT_EQ(LineHistoryPath(), "");
}

TEST(LineHistory, KeepsLinesForTheNextRunAndFromOthers) {
  const TempDir directory;
  const std::string path = directory.File("state/stagecoach/chat_history");
  {
    LineHistory history;
    ASSERT_TRUE(history.Open(path).ok());
    for (const char* line : {"Hello", "Hello", " ", "a\x1b[2J", "Grüße"}) ASSERT_TRUE(history.Add(line).ok());
    EXPECT_THAT(history.lines(), ElementsAre("Hello", "Grüße"));
  }
  EXPECT_EQ(ModeOf(path), 0600);
  EXPECT_EQ(ModeOf(directory.File("state/stagecoach")), 0700);
  LineHistory again, beside;
  ASSERT_TRUE(again.Open(path).ok());
  EXPECT_THAT(again.lines(), ElementsAre("Hello", "Grüße"));
  ASSERT_TRUE(beside.Open(path).ok());
  ASSERT_TRUE(beside.Add("beside").ok());
  ASSERT_TRUE(again.Add("again").ok());
  EXPECT_EQ(testing::ReadFileOrDie(path), "Hello\nGrüße\nbeside\nagain\n");
}

TEST(LineHistory, TakesAFileThatOthersMayReadForItself) {
  const TempDir directory;
  std::filesystem::create_directory(directory.File("stagecoach"));
  const std::string path = directory.File("stagecoach/chat_history");
  testing::WriteFileOrDie(path, "one\n\ntwo");
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  LineHistory history;
  ASSERT_TRUE(history.Open(path).ok());
  EXPECT_EQ(ModeOf(path), 0600);
  EXPECT_THAT(history.lines(), ElementsAre("one", "two"));
}

TEST(LineHistory, StaysShort) {
  const TempDir directory;
  const std::string path = directory.File("stagecoach/chat_history");
  LineHistory first;
  ASSERT_TRUE(first.Open(path).ok());
  std::string text;
  for (int i = 0; text.size() < 2 * LineHistory::kMostFileBytes; ++i) {
    absl::StrAppend(&text, "line ", i, " ", std::string(100, 'x'), "\n");
  }
  testing::WriteFileOrDie(path, text);
  LineHistory history;
  ASSERT_TRUE(history.Open(path).ok());
  EXPECT_EQ(history.lines().size(), LineHistory::kMostLines);
  EXPECT_LT(std::filesystem::file_size(path), LineHistory::kMostFileBytes / 2);
  EXPECT_EQ(ModeOf(path), 0600);
  LineHistory again;
  ASSERT_TRUE(again.Open(path).ok());
  EXPECT_EQ(again.lines().back(), history.lines().back());
}

TEST(LineHistory, SaysOnceWhyItCannotBeKeptAndGoesOnInMemory) {
  const TempDir directory;
  testing::WriteFileOrDie(directory.File("file"), "");
  LineHistory history;
  EXPECT_THAT(history.Open(directory.File("file/chat_history")).message(), HasSubstr("--no-history"));
  EXPECT_TRUE(history.Add("one").ok());
  EXPECT_THAT(history.lines(), ElementsAre("one"));

  LineHistory removed;
  ASSERT_TRUE(removed.Open(directory.File("gone/chat_history")).ok());
  std::filesystem::remove_all(directory.File("gone"));
  EXPECT_THAT(removed.Add("one").message(), HasSubstr("cannot write"));
  EXPECT_TRUE(removed.Add("two").ok());
  std::filesystem::create_directories(directory.File("directory/chat_history"));
  EXPECT_FALSE(LineHistory().Open(directory.File("directory/chat_history")).ok());
}

absl::StatusOr<Awaited> Ready(int) { return Awaited::kReadable; }

// All lines of a pipe that is given `text`.
std::vector<std::string> LinesOf(const std::string& text) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::thread writer([&text, out = ends[1]] {
    for (size_t done = 0; done < text.size();) {
      const ssize_t written = write(out, text.data() + done, text.size() - done);
      if (written <= 0) break;
      done += static_cast<size_t>(written);
    }
    close(out);
  });
  PipedLines lines(ends[0]);
  std::vector<std::string> all;
  while (true) {
    const LineRead read = lines.Read("", Ready).value();
    if (read.kind != LineRead::Kind::kLine) break;
    all.push_back(read.text);
  }
  writer.join();
  close(ends[0]);
  return all;
}

TEST(PipedLines, GivesLinesWithTheirBlanks) {
  EXPECT_THAT(LinesOf("one\n\n two \r\nthree"), ElementsAre("one", "", " two ", "three"));
  EXPECT_THAT(LinesOf(""), ElementsAre());
  EXPECT_THAT(LinesOf("one\n"), ElementsAre("one"));
}

TEST(PipedLines, CutsWhatIsTooLongForAMessageAndGoesOn) {
  const std::vector<std::string> lines = LinesOf(std::string(3 * kMostMessageBytes, 'x') + "\nnext\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_GT(lines[0].size(), kMostMessageBytes);
  EXPECT_LT(lines[0].size(), 2 * kMostMessageBytes);
  EXPECT_EQ(lines[1], "next");
}

TEST(PipedLines, ReadsOnlyWhenToldThatItCan) {
  PipedLines lines(-1);
  const LineRead read = lines.Read("", [](int) { return Awaited::kSignal; }).value();
  EXPECT_EQ(read.kind, LineRead::Kind::kSignal);
  EXPECT_EQ(
      lines.Read("", [](int) -> absl::StatusOr<Awaited> { return absl::UnavailableError("lost"); }).status().message(),
      "lost");
  EXPECT_FALSE(lines.Read("", Ready).ok());
}

}  // namespace
}  // namespace stagecoach
