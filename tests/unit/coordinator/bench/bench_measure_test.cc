#include "coordinator/bench/bench_measure.h"

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(DecodeWindow, CountsFromTheLastFirstTokenOn) {
  DecodeWindow window(2, 4);
  window.Note(1, 100, 1, 10);
  window.Note(1, 150, 1, 11);  // beside the other's prompt
  window.Note(2, 200, 1, 10);  // all have started
  window.Note(1, 300, 1, 12);
  window.Note(2, 300, 1, 11);
  window.Note(1, 400, 1, 13);
  window.Note(2, 400, 1, 12);
  EXPECT_FALSE(window.done());  // more of that result may come
  window.Note(1, 500, 1, 14);
  ASSERT_TRUE(window.done());
  EXPECT_EQ(window.sample().us, 200);
  EXPECT_EQ(window.sample().tokens, 4);
  EXPECT_EQ(window.sample().passes, 2);
  EXPECT_EQ(window.sample().positions, 12 + 11 + 13 + 12);
}

TEST(DecodeWindow, LeavesOutTheOtherTokensOfTheResultThatStartsIt) {
  DecodeWindow window(2, 1);
  window.Note(1, 100, 1, 5);
  window.Note(2, 200, 1, 5);
  window.Note(1, 200, 1, 6);
  window.Note(1, 260, 1, 7);
  window.Note(1, 300, 1, 8);
  ASSERT_TRUE(window.done());
  EXPECT_EQ(window.sample().us, 60);
  EXPECT_EQ(window.sample().tokens, 1);
  EXPECT_EQ(window.sample().passes, 1);
}

TEST(DecodeWindow, CountsAResultWholeEvenWhenFewerTokensWereWanted) {
  DecodeWindow window(1, 1);
  window.Note(1, 10, 1, 1);
  window.Note(1, 20, 3, 4);
  window.Note(1, 30, 1, 5);
  ASSERT_TRUE(window.done());
  EXPECT_EQ(window.sample().tokens, 3);
  EXPECT_EQ(window.sample().positions, 4 + 3 + 2);
  window.Note(1, 40, 1, 6);  // nothing is counted any more
  EXPECT_EQ(window.sample().tokens, 3);
}

}  // namespace
}  // namespace stagecoach
