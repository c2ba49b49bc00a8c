#include "coordinator/cli/chat/chat_screen.h"

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

// A screen, and what it shows of what is given to it.
struct Shown {
  explicit Shown(ChatScreenOptions options)
      : screen(
            options, [this](absl::string_view text) { return absl::StrAppend(&out, text), absl::OkStatus(); },
            [this](absl::string_view text) { absl::StrAppend(&messages, text); }) {}
  void Think(absl::string_view text) { EXPECT_TRUE(screen.Show(AnswerPart::kReasoning, text).ok()); }
  void Answer(absl::string_view text) { EXPECT_TRUE(screen.Show(AnswerPart::kContent, text).ok()); }
  void End() { EXPECT_TRUE(screen.EndAnswer().ok()); }
  void Note(absl::string_view text) { EXPECT_TRUE(screen.Note(text).ok()); }
  void Say(absl::string_view text) { EXPECT_TRUE(screen.Say(text).ok()); }

  std::string out, messages;
  ChatScreen screen;
};

TEST(ChatScreen, GivesTheTextOfAnswersAloneToAPipe) {
  Shown shown({.terminal = false});
  shown.Think("hm");
  shown.Answer("a\x1b[2J\r");
  shown.Answer("b");
  shown.End();
  shown.End();  // of an answer without text
  shown.Note("2 tokens");
  shown.Say("one\ntwo\n");
  EXPECT_EQ(shown.out, "a\x1b[2J\rb\n");
  EXPECT_EQ(shown.messages, "2 tokens\none\ntwo\n");
}

TEST(ChatScreen, DimsWhatIsNoAnswerAtATerminal) {
  Shown shown({.terminal = true, .dims = true});
  shown.Think("hm");
  shown.Answer("yes\n");
  shown.End();
  shown.Note("2 tokens");
  EXPECT_EQ(shown.out, "\x1b[2mhm\x1b[0m\nyes\n\x1b[2m2 tokens\x1b[0m\n");
  EXPECT_EQ(shown.messages, "");
}

TEST(ChatScreen, EndsDimTextWithAnAnswerThatIsReasoningAlone) {
  Shown shown({.terminal = true, .dims = true});
  shown.Think("hm");
  shown.End();
  shown.Answer("yes");
  shown.End();
  EXPECT_EQ(shown.out, "\x1b[2mhm\x1b[0m\nyes\n");
}

TEST(ChatScreen, LetsNobodyCommandTheTerminal) {
  Shown shown({.terminal = true});
  shown.Answer("a\x1b");
  shown.Answer("[2J\xC2");
  shown.Answer("\x9B");
  shown.End();
  shown.Say("a\x1b[2J");
  shown.Note("b\x07");
  EXPECT_EQ(shown.out, "a\u241b[2J\uFFFD\na\u241b[2J\nb\u2407\n");
}

TEST(ChatScreen, LetsNobodyCommandATerminalThatIsTheOutputAlone) {
  Shown shown({.output_terminal = true});
  shown.Answer("a\x1b[2J\xC2");
  shown.End();
  shown.Say("b\x1b[2J");
  EXPECT_EQ(shown.out, "a\u241b[2J\uFFFD\n");
  EXPECT_EQ(shown.messages, "b\u241b[2J\n");
}

TEST(ChatScreen, SaysNothingUnaskedWhenItIsToBeQuiet) {
  Shown shown({.quiet = true});
  shown.Note("2 tokens");
  shown.Say("help");
  EXPECT_EQ(shown.messages, "help\n");
}

}  // namespace
}  // namespace stagecoach
