#include "common/base/line_file.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace stagecoach
