#include "common/base/shown_text.h"

#include <string>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(ShownText, IsInQuotesAsItIs) {
  EXPECT_EQ(ShownText("qwen3"), "'qwen3'");
  EXPECT_EQ(ShownText(""), "''");
}

TEST(ShownText, GivesNoOrdersAndNoLinesOfItsOwn) {
  EXPECT_EQ(ShownText("a\x1b[2J\nruns here: yes"), "'a\\x1b[2J\\nruns here: yes'");
}

TEST(ShownText, IsNeverLong) {
  EXPECT_EQ(ShownText(std::string(60, 'x')), "'" + std::string(60, 'x') + "'");
  EXPECT_EQ(ShownText(std::string(5000000, 'x')), "'" + std::string(60, 'x') + "...'");
}

TEST(CutText, EndsBetweenTwoCharacters) {
  EXPECT_EQ(CutText(""), "");
  EXPECT_EQ(CutText(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(CutText(std::string(201, 'x')), std::string(200, 'x') + "...");
  EXPECT_EQ(CutText("h\xC3\xA9h\xC3\xA9", 4), "h\xC3\xA9h\xC3\xA9");
  EXPECT_EQ(CutText("h\xC3\xA9h\xC3\xA9", 3), "h\xC3\xA9h...");
  EXPECT_EQ(CutText("h\xC3\xA9h\xC3\xA9", 2), "h\xC3\xA9...");
  EXPECT_EQ(CutText(std::string(5000000, '\x80'), 5).size(), 23u) << "no character begins";
}

}  // namespace
}  // namespace stagecoach
