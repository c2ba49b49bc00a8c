#include "coordinator/cli/chat/chat_screen.h"

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

struct Shown {
  std::string out, messages;

  ChatScreen Screen(ChatScreenOptions options) {
    return ChatScreen(
        options,
        [this](absl::string_view text) {
          absl::StrAppend(&out, text);
          return absl::OkStatus();
        },
        [this](absl::string_view text) { absl::StrAppend(&messages, text); });
  }
};

TEST(ChatScreen, GivesTheTextOfAnswersAloneToAPipe) {
  Shown shown;
  ChatScreen screen = shown.Screen({});
  ASSERT_TRUE(screen.Show(AnswerPart::kReasoning, "hm").ok());
  ASSERT_TRUE(screen.Show(AnswerPart::kContent, "a\x1b[2J\r").ok());
  ASSERT_TRUE(screen.Show(AnswerPart::kContent, "b").ok());
  ASSERT_TRUE(screen.EndAnswer().ok());
  ASSERT_TRUE(screen.EndAnswer().ok());  // of an answer without text
  ASSERT_TRUE(screen.Note("2 tokens").ok());
  ASSERT_TRUE(screen.Say("one\ntwo\n").ok());
  EXPECT_EQ(shown.out, "a\x1b[2J\rb\n");
  EXPECT_EQ(shown.messages, "2 tokens\none\ntwo\n");
}

TEST(ChatScreen, DimsWhatIsNoAnswerAtATerminal) {
  Shown shown;
  ChatScreen screen = shown.Screen({.terminal = true, .dims = true});
  ASSERT_TRUE(screen.Show(AnswerPart::kReasoning, "hm").ok());
  ASSERT_TRUE(screen.Show(AnswerPart::kContent, "yes\n").ok());
  ASSERT_TRUE(screen.EndAnswer().ok());
  ASSERT_TRUE(screen.Note("2 tokens").ok());
  EXPECT_EQ(shown.out, "\x1b[2mhm\x1b[0m\nyes\n\x1b[2m2 tokens\x1b[0m\n");
  EXPECT_EQ(shown.messages, "");
}

TEST(ChatScreen, EndsDimTextWithAnAnswerThatIsReasoningAlone) {
  Shown shown;
  ChatScreen screen = shown.Screen({.terminal = true, .dims = true});
  ASSERT_TRUE(screen.Show(AnswerPart::kReasoning, "hm").ok());
  ASSERT_TRUE(screen.EndAnswer().ok());
  ASSERT_TRUE(screen.Show(AnswerPart::kContent, "yes").ok());
  ASSERT_TRUE(screen.EndAnswer().ok());
  EXPECT_EQ(shown.out, "\x1b[2mhm\x1b[0m\nyes\n");
}

TEST(ChatScreen, LetsNobodyCommandTheTerminal) {
  Shown shown;
  ChatScreen screen = shown.Screen({.terminal = true});
  ASSERT_TRUE(screen.Show(AnswerPart::kContent, "a\x1b").ok());
  ASSERT_TRUE(screen.Show(AnswerPart::kContent, "[2J\xC2").ok());
  ASSERT_TRUE(screen.Show(AnswerPart::kContent, "\x9B").ok());
  ASSERT_TRUE(screen.EndAnswer().ok());
  ASSERT_TRUE(screen.Say("a\x1b[2J").ok());
  ASSERT_TRUE(screen.Note("b\x07").ok());
  EXPECT_EQ(shown.out, "a\u241b[2J\uFFFD\na\u241b[2J\nb\u2407\n");
}

TEST(ChatScreen, LetsNobodyCommandATerminalThatIsTheOutputAlone) {
  Shown shown;
  ChatScreen screen = shown.Screen({.output_terminal = true});
  ASSERT_TRUE(screen.Show(AnswerPart::kContent, "a\x1b[2J\xC2").ok());
  ASSERT_TRUE(screen.EndAnswer().ok());
  ASSERT_TRUE(screen.Say("b\x1b[2J").ok());
  EXPECT_EQ(shown.out, "a\u241b[2J\uFFFD\n");
  EXPECT_EQ(shown.messages, "b\u241b[2J\n");
}

TEST(ChatScreen, SaysNothingUnaskedWhenItIsToBeQuiet) {
  Shown shown;
  ChatScreen screen = shown.Screen({.quiet = true});
  ASSERT_TRUE(screen.Note("2 tokens").ok());
  ASSERT_TRUE(screen.Say("help").ok());
  EXPECT_EQ(shown.messages, "help\n");
}

}  // namespace
}  // namespace stagecoach
