#include "coordinator/cli/chat/terminal_text.h"

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(TerminalText, LeavesTextAlone) {
  EXPECT_EQ(ForTerminal("a\tb\nGrüße, 世界 🙂"), "a\tb\nGrüße, 世界 🙂");
}

TEST(TerminalText, ShowsControlCharactersInPlaceOfObeyingThem) {
  EXPECT_EQ(ForTerminal("\x1b]0;owned\x07"), "\u241b]0;owned\u2407");
  EXPECT_EQ(ForTerminal("a\x1b[2Jb"), "a\u241b[2Jb");
  EXPECT_EQ(ForTerminal(absl::string_view("\0\x08\x7f", 3)), "\u2400\u2408\u2421");
  EXPECT_EQ(ForTerminal("\xC2\x9B"
                        "31m"),
            "\uFFFD31m");  // U+009B begins a sequence as ESC [ does
  EXPECT_EQ(ForTerminal("\xC2\xA0"), "\xC2\xA0");
}

TEST(TerminalText, LeavesOutCarriageReturns) { EXPECT_EQ(ForTerminal("one\r\ntwo\rthree"), "one\ntwothree"); }

TEST(TerminalText, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(ForTerminal("a\x9B"
                        "31m"),
            "a\uFFFD31m");
  EXPECT_EQ(ForTerminal("a\xE2\x82"), "a\uFFFD");
}

TEST(TerminalText, SaysTheSameHoweverTheTextIsCut) {
  const std::string text =
      "Grüße \x1b[31m\xC2\x9B"
      "x 世\x9B 🙂\r\n";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    TerminalText filter;
    std::string shown = filter.Push(text.substr(0, cut));
    shown += filter.Push(text.substr(cut));
    shown += filter.Flush();
    EXPECT_EQ(shown, ForTerminal(text)) << cut;
  }
}

}  // namespace
}  // namespace stagecoach
