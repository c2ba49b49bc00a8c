#include "coordinator/cli/verify_prompts.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

VerifyQuestion QuestionOfWindow(int64_t window, int64_t context) {
  VerifyQuestion question;
  question.context = context;
  question.vocab = 300;
  question.window = window;
  question.block_tokens = 32;
  return question;
}

VerifyAsked AskedOfWindow(int64_t window, int64_t context) {
  return VerifyRequests(QuestionOfWindow(window, context), /*tokenizer=*/nullptr);
}

TEST(VerifyPrompts, AreCutToTheContextAndThatIsKnown) {
  const VerifyAsked whole = AskedOfWindow(0, 4096);
  EXPECT_EQ(whole.requests.size(), 4u);
  EXPECT_EQ(whole.cut_to, 0);
  const VerifyAsked cut = AskedOfWindow(0, 20);
  EXPECT_EQ(cut.cut_to, 4);
  for (const VerifyRequest& request : cut.requests) EXPECT_EQ(request.prompt.size(), 4u);
}

TEST(VerifyPrompts, OneIsLongerThanTheWindowByTwoBlocks) {
  const VerifyAsked asked = AskedOfWindow(512, 8192);
  ASSERT_EQ(asked.requests.size(), 5u);
  EXPECT_TRUE(asked.long_prompt);
  EXPECT_EQ(asked.requests.back().prompt.size(), 512u + 64u);
  EXPECT_THAT(asked.note, IsEmpty());
  EXPECT_EQ(AskedOfWindow(512, 512 + 32 + 16).requests.back().prompt.size(), 512u + 32u);
}

TEST(VerifyPrompts, NoLongOneIsMadeWhereAnotherPromptIsLongEnough) {
  const VerifyAsked asked = AskedOfWindow(64, 8192);
  EXPECT_EQ(asked.requests.size(), 4u);
  EXPECT_FALSE(asked.long_prompt);
  EXPECT_THAT(asked.note, IsEmpty());
}

TEST(VerifyPrompts, ANoteSaysWhyNoneIsLongerThanTheWindow) {
  const VerifyAsked short_context = AskedOfWindow(512, 512 + 32 + 15);
  EXPECT_FALSE(short_context.long_prompt);
  EXPECT_THAT(short_context.note, HasSubstr("that takes a context of 560 tokens, and it is 559"));
  EXPECT_TRUE(AskedOfWindow(4096, 1 << 20).long_prompt);
  const VerifyAsked wide = AskedOfWindow(4097, 1 << 20);
  EXPECT_FALSE(wide.long_prompt);
  EXPECT_THAT(wide.note, HasSubstr("for windows up to 4096"));
}

}  // namespace
}  // namespace stagecoach
