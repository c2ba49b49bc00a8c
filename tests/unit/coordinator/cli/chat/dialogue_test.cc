#include "coordinator/cli/chat/dialogue.h"

#include "common/json/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

std::string Compact(const Dialogue& dialogue) { return CompactJson(dialogue.messages()); }

TEST(Dialogue, KeepsTheSystemMessageFirst) {
  Dialogue dialogue;
  dialogue.AddUser("a");
  EXPECT_EQ(dialogue.system(), "");
  dialogue.SetSystem("Be brief.");
  dialogue.SetSystem("Be kind.");
  EXPECT_EQ(dialogue.system(), "Be kind.");
  EXPECT_EQ(Compact(dialogue), R"([{"role":"system","content":"Be kind."},{"role":"user","content":"a"}])");
  dialogue.Clear();
  EXPECT_EQ(Compact(dialogue), R"([{"role":"system","content":"Be kind."}])");
  dialogue.SetSystem("");
  EXPECT_EQ(dialogue.size(), 0u);
}

TEST(Dialogue, TakesBackTheLastMessageWithItsAnswerOrTheAnswerAlone) {
  Dialogue dialogue;
  dialogue.AddUser("a");
  dialogue.AddAnswer("b", "");
  dialogue.AddUser("c");
  dialogue.AddAnswer("d", "I think");
  EXPECT_THAT(Compact(dialogue), HasSubstr(R"({"role":"assistant","content":"d","reasoning_content":"I think"})"));
  dialogue.TakeBackAnswer();
  EXPECT_EQ(dialogue.size(), 3u);
  dialogue.TakeBackMessage();
  EXPECT_EQ(dialogue.size(), 2u);
  dialogue.TakeBackMessage();
  EXPECT_FALSE(dialogue.HasUser());
  dialogue.TakeBackMessage();
  dialogue.TakeBackAnswer();
  EXPECT_EQ(dialogue.size(), 0u);
}

TEST(Dialogue, ReadsWhatItWrote) {
  Dialogue dialogue, other;
  dialogue.SetSystem("Say \"ß\"");
  dialogue.AddUser("two\nlines");
  dialogue.AddAnswer("", "");
  ASSERT_TRUE(other.Load(dialogue.Text()).ok());
  EXPECT_EQ(other.messages(), dialogue.messages());
}

TEST(Dialogue, StaysAsItIsWhenWhatIsLoadedIsNoConversation) {
  Dialogue dialogue;
  dialogue.AddUser("a");
  const std::string before = Compact(dialogue);
  for (const char* text : {"", "[", "[]", "{}", R"(["a"])", R"([{"role":"user"}])", R"([{"content":"a"}])"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(dialogue.Load(text))) << text;
    EXPECT_EQ(Compact(dialogue), before);
  }
  EXPECT_THAT(dialogue.Load(R"([{"role":"user","content":1}])").message(), HasSubstr("messages[0].content"));
}

}  // namespace
}  // namespace stagecoach
