#include <random>
#include <string>
#include <vector>

#include "coordinator/text/tokenizer.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

// What comes out when a text is pushed in pieces of `piece_bytes`.
std::string PushInPieces(const std::vector<std::string>& stops, const std::string& text, size_t piece_bytes,
                         bool* stopped) {
  StopMatcher matcher(stops);
  std::string out;
  for (size_t i = 0; i < text.size(); i += piece_bytes) out += matcher.Push(text.substr(i, piece_bytes));
  out += matcher.Flush();
  *stopped = matcher.stopped();
  return out;
}

// The definition, read off the whole text: the match that ends first, of several the longest.
std::string Expected(const std::vector<std::string>& stops, const std::string& text, bool* stopped) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      const bool ends_here =
          !stop.empty() && stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0;
      if (ends_here) longest = std::max(longest, stop.size());
    }
    *stopped = longest > 0;
    if (*stopped) return text.substr(0, end - longest);
  }
  *stopped = false;
  return text;
}

TEST(StopMatcher, FindsAStopStringAcrossPieces) {
  StopMatcher matcher({"</end>"});
  EXPECT_EQ(matcher.Push("text<"), "text");
  EXPECT_EQ(matcher.Push("/en"), "");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.Push("d> more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.Push("and more"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, GivesBackAPrefixThatTurnsOutToBeNoStop) {
  StopMatcher matcher({"\n\nUser:"});
  EXPECT_EQ(matcher.Push("a\n\nUs"), "a");
  EXPECT_EQ(matcher.Push("e it"), "\n\nUse it");
  EXPECT_EQ(matcher.Push("\n"), "");
  EXPECT_EQ(matcher.Flush(), "\n");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, HoldsBackNoMoreThanMayStillMatch) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Push("aaa"), "a");
  EXPECT_EQ(matcher.Push("a"), "a");
  EXPECT_EQ(matcher.Push("b"), "");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, LetsTheMatchThatEndsFirstWin) {
  StopMatcher first_end({"abcd", "bc"});
  EXPECT_EQ(first_end.Push("xabcd"), "xa");
  EXPECT_TRUE(first_end.stopped());
  StopMatcher longest({"bc", "abc"});
  EXPECT_EQ(longest.Push("xabc"), "x");
  EXPECT_TRUE(longest.stopped());
}

TEST(StopMatcher, PassesEverythingWithoutStopStrings) {
  StopMatcher matcher({"", ""});
  EXPECT_EQ(matcher.Push("all of it"), "all of it");
  EXPECT_EQ(matcher.Push(""), "");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, GivesTheSameForEveryWayToCutTheStream) {
  std::mt19937 random(7);
  const auto word = [&random](size_t max_bytes) {
    std::string text(random() % (max_bytes + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  int stops_seen = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<std::string> stops = {word(5), word(7), word(4)};
    const std::string text = word(40);
    bool expected_stop = false;
    const std::string expected = Expected(stops, text, &expected_stop);
    stops_seen += expected_stop ? 1 : 0;
    for (const size_t piece_bytes : {1, 2, 5, 40}) {
      bool stopped = false;
      ASSERT_EQ(PushInPieces(stops, text, piece_bytes, &stopped), expected)
          << ::testing::PrintToString(stops) << " in " << text;
      ASSERT_EQ(stopped, expected_stop);
    }
  }
  EXPECT_GT(stops_seen, 100);
  EXPECT_LT(stops_seen, 2900);
}

}  // namespace
}  // namespace stagecoach
