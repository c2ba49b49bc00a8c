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

}  // namespace
}  // namespace stagecoach
