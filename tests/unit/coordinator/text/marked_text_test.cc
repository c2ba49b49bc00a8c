#include "coordinator/text/marked_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TextOrigin kTemplate = TextOrigin::kTemplate;
constexpr TextOrigin kRequest = TextOrigin::kRequest;

MarkedText Greeting() {
  MarkedText text("<user>", kTemplate);
  text.Append("hello", kRequest);
  text.Append("</user>", kTemplate);
  return text;
}

TEST(MarkedText, JoinsNeighboursOfOneOrigin) {
  MarkedText text("ab", kTemplate);
  text.Append("", kRequest);
  text.Append("cd", kTemplate);
  text.Append("e", kRequest);
  EXPECT_EQ(text.text(), "abcde");
  EXPECT_THAT(text.runs(), ElementsAre(MarkedText::Run{4, kTemplate}, MarkedText::Run{5, kRequest}));
}

TEST(MarkedText, HasNoRunsWhenItIsEmpty) {
  EXPECT_THAT(MarkedText("", kRequest).runs(), IsEmpty());
  EXPECT_TRUE(MarkedText().IsTemplate(0, 0));
}

TEST(MarkedText, IsTheTemplatesOnlyWhereNoByteIsTheRequests) {
  const MarkedText text = Greeting();
  EXPECT_TRUE(text.IsTemplate(0, 6));
  EXPECT_FALSE(text.IsTemplate(0, 7));
  EXPECT_FALSE(text.IsTemplate(7, 9));
  EXPECT_FALSE(text.IsTemplate(10, 12));
  EXPECT_TRUE(text.IsTemplate(11, 18));
  EXPECT_TRUE(text.IsTemplate(8, 8));
}

TEST(MarkedText, KeepsTheMarksOfAPart) {
  const MarkedText part = Greeting().Substr(5, 7);
  EXPECT_EQ(part.text(), ">hello<");
  EXPECT_THAT(part.runs(),
              ElementsAre(MarkedText::Run{1, kTemplate}, MarkedText::Run{6, kRequest}, MarkedText::Run{7, kTemplate}));
  EXPECT_EQ(Greeting().Substr(16, 100).text(), "r>");
  EXPECT_EQ(Greeting().Substr(100, 1), MarkedText());
}

TEST(MarkedText, AppendsAnotherTextAndItself) {
  MarkedText text = Greeting().Substr(5, 2);
  text.Append(text);
  EXPECT_EQ(text.text(), ">h>h");
  EXPECT_THAT(text.runs(), ElementsAre(MarkedText::Run{1, kTemplate}, MarkedText::Run{2, kRequest},
                                       MarkedText::Run{3, kTemplate}, MarkedText::Run{4, kRequest}));
}

}  // namespace
}  // namespace stagecoach
