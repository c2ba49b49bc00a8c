#include "coordinator/verify/verify_requests.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kVerifyLayers = 3;

VerifyRequest AskedRequest() { return {"prompt 1, greedy", {5, 6, 7}, {}, 2}; }

// Of AskedRequest: two scores, tokens at positions 3 and 4, checksums of rows 0 to 3.
VerifyAnswer WholeAnswer() {
  VerifyAnswer answer;
  answer.prompt_logprobs = {-1.5f, -2.5f};
  answer.tokens = {{.position = 3, .token = 8, .logprob = -0.5f, .top = {{8, -0.5f}, {9, -1.0f}}},
                   {.position = 4, .token = 9, .logprob = -0.25f, .top = {{9, -0.25f}, {2, -3.0f}}}};
  answer.Take({.start = 0, .rows = 3, .values = {10, 11, 12, 20, 21, 22, 30, 31, 32}});
  answer.Take({.start = 3, .rows = 1, .values = {13, 23, 33}});
  return answer;
}

std::optional<AnswerDifference> Difference(const VerifyAnswer& a, const VerifyAnswer& b) {
  const VerifyRequest request = AskedRequest();
  return FirstDifference({&request, 1}, {&a, 1}, {&b, 1});
}

float NextFloat(float value) { return std::nextafter(value, std::numeric_limits<float>::infinity()); }

TEST(VerifyAnswer, TakesChecksumsLayerByLayerAndKeepsThemRowByRow) {
  const VerifyAnswer answer = WholeAnswer();
  EXPECT_THAT(answer.checksums.at(0), ElementsAre(10, 20, 30));
  EXPECT_THAT(answer.checksums.at(2), ElementsAre(12, 22, 32));
  EXPECT_THAT(answer.checksums.at(3), ElementsAre(13, 23, 33));
  EXPECT_EQ(answer.unsteady_row, std::nullopt);
}

TEST(VerifyAnswer, NoticesARowThatIsAnotherOneWhenItIsComputedAgain) {
  VerifyAnswer answer = WholeAnswer();
  answer.Take({.start = 1, .rows = 2, .values = {11, 12, 21, 22, 31, 32}});
  EXPECT_EQ(answer.unsteady_row, std::nullopt);
  answer.Take({.start = 1, .rows = 2, .values = {11, 12, 21, 29, 31, 32}});
  EXPECT_EQ(answer.unsteady_row, 2);
}

TEST(VerifyAnswer, IsWholeOrSaysWhatItLacks) {
  const VerifyRequest request = AskedRequest();
  EXPECT_EQ(CheckAnswer(request, WholeAnswer(), /*kept=*/0, kVerifyLayers), absl::OkStatus());
  VerifyAnswer answer = WholeAnswer();
  answer.tokens.pop_back();
  EXPECT_THAT(std::string(CheckAnswer(request, answer, 0, 0).message()), HasSubstr("has 1 tokens, expected 2"));
  answer = WholeAnswer();
  answer.tokens.erase(answer.tokens.begin());
  EXPECT_EQ(CheckAnswer(request, answer, /*kept=*/1, kVerifyLayers), absl::OkStatus());
  answer.tokens[0].position = 5;
  EXPECT_THAT(std::string(CheckAnswer(request, answer, 1, 0).message()), HasSubstr("position 5, expected 4"));
  answer = WholeAnswer();
  answer.prompt_logprobs.pop_back();
  EXPECT_THAT(std::string(CheckAnswer(request, answer, 0, 0).message()), HasSubstr("has 1 log-probabilities"));
  answer = WholeAnswer();
  answer.checksums.erase(2);
  EXPECT_EQ(CheckAnswer(request, answer, 0, 0), absl::OkStatus());
  EXPECT_THAT(std::string(CheckAnswer(request, answer, 0, kVerifyLayers).message()),
              HasSubstr("0 checksums of position 2, expected 3"));
}

TEST(VerifyComparison, FindsNothingInEqualAnswersAndTheLastBitInOthers) {
  EXPECT_FALSE(Difference(WholeAnswer(), WholeAnswer()).has_value());
  VerifyAnswer other = WholeAnswer();
  other.prompt_logprobs[1] = NextFloat(other.prompt_logprobs[1]);
  auto difference = Difference(WholeAnswer(), other);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->output->position, 2);
  EXPECT_TRUE(difference->output->prompt);
  EXPECT_EQ(difference->output->of, 7);
  EXPECT_EQ(difference->output->logprobs[1], other.prompt_logprobs[1]);
  EXPECT_FALSE(difference->hidden.has_value());

  other = WholeAnswer();
  other.tokens[1].top[1].logprob = NextFloat(other.tokens[1].top[1].logprob);
  difference = Difference(WholeAnswer(), other);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->output->position, 4);
  EXPECT_EQ(difference->output->of, 2);
  EXPECT_FALSE(difference->output->prompt);

  other = WholeAnswer();
  other.tokens[0].token = 1;
  difference = Difference(WholeAnswer(), other);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->output->position, 3);
  EXPECT_THAT(difference->output->tokens, ElementsAre(8, 1));
}

TEST(VerifyComparison, ZeroHasASignAndWhatIsNoNumberIsItself) {
  VerifyAnswer a = WholeAnswer(), b = WholeAnswer();
  a.prompt_logprobs[0] = b.prompt_logprobs[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Difference(a, b).has_value());
  a.prompt_logprobs[0] = 0.0f;
  b.prompt_logprobs[0] = -0.0f;
  EXPECT_TRUE(Difference(a, b).has_value());
}

TEST(VerifyComparison, NamesTheFirstPositionAndOfItTheFirstLayer) {
  VerifyAnswer other = WholeAnswer();
  other.checksums[3] = {0, 0, 0};
  other.checksums[2][1] = other.checksums[2][2] = 99;
  const auto difference = Difference(WholeAnswer(), other);
  ASSERT_TRUE(difference.has_value());
  EXPECT_FALSE(difference->output.has_value());
  ASSERT_TRUE(difference->hidden.has_value());
  EXPECT_EQ(difference->hidden->position, 2);
  EXPECT_EQ(difference->hidden->layer, 1);
}

TEST(VerifyComparison, ComparesWhatBothHaveAfterARestart) {
  VerifyAnswer restarted = WholeAnswer();
  restarted.tokens.erase(restarted.tokens.begin());
  EXPECT_FALSE(Difference(WholeAnswer(), restarted).has_value());
  const VerifyRequest request = AskedRequest();
  const VerifyAnswer whole = WholeAnswer();
  const VerifyCount count = CountCompared({&request, 1}, {&whole, 1}, {&restarted, 1});
  EXPECT_EQ(count.tokens, 1);
  EXPECT_EQ(count.logprobs, 2 + 3);
  EXPECT_EQ(count.checksums, 4 * kVerifyLayers);
  restarted.tokens[0].logprob = NextFloat(restarted.tokens[0].logprob);
  EXPECT_EQ(Difference(whole, restarted)->output->position, 4);
}

TEST(VerifyComparison, SaysWhichRunsAgree) {
  const VerifyRequest request = AskedRequest();
  VerifyAnswer other = WholeAnswer(), third = WholeAnswer();
  other.tokens[1].token = 4;
  third.checksums[0][0] = 1;
  const std::vector<std::vector<VerifyAnswer>> runs = {{WholeAnswer()}, {other}, {WholeAnswer()}, {third}, {other}};
  EXPECT_THAT(AgreeingRuns({&request, 1}, runs), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 4), ElementsAre(3)));
}

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
