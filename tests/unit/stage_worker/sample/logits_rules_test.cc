#include "stage_worker/sample/logits_rules.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OpenSequence Open(std::vector<TokenId> prompt, std::vector<TokenId> output) {
  OpenSequence open;
  open.sequence = 4;
  open.prompt = std::move(prompt);
  open.output = std::move(output);
  return open;
}

std::vector<float> Apply(const OpenSequence& open, std::vector<float> logits) {
  ApplyLogitsRules(TokenHistory(open), logits.data());
  return logits;
}

TEST(LogitsRules, LeaveLogitsAloneByDefault) {
  EXPECT_THAT(Apply(Open({0, 1}, {2, 2}), {1, -1, 2, 3}), ElementsAre(1, -1, 2, 3));
}

TEST(LogitsRules, AddBiasBeforeThePenalties) {
  OpenSequence open = Open({0}, {});
  open.sampling.logit_bias = {{0, -3.0f}, {2, 1.0f}, {2, 0.5f}};
  open.sampling.repeat_penalty = 2;
  // Token 0 is negative after its bias, so the penalty multiplies.
  EXPECT_THAT(Apply(open, {1, 1, 1}), ElementsAre(-4, 1, 2.5));
}

TEST(LogitsRules, DividePositiveAndMultiplyNegativeLogitsOfRepeatedTokensOnce) {
  OpenSequence open = Open({0, 0}, {1, 0});
  open.sampling.repeat_penalty = 2;
  EXPECT_THAT(Apply(open, {4, -4, 4, -4}), ElementsAre(2, -8, 4, -4));
}

TEST(LogitsRules, CountRepetitionOverTheLastTokensOfPromptAndOutput) {
  OpenSequence open = Open({0, 1}, {2});
  open.sampling.repeat_penalty = 2;
  open.sampling.repeat_last_n = 2;
  EXPECT_THAT(Apply(open, {4, 4, 4, 4}), ElementsAre(4, 2, 2, 4));
  open.sampling.repeat_last_n = -1;
  EXPECT_THAT(Apply(open, {4, 4, 4, 4}), ElementsAre(2, 2, 2, 4));
  open.sampling.repeat_last_n = 0;
  EXPECT_THAT(Apply(open, {4, 4, 4, 4}), ElementsAre(4, 4, 4, 4));
}

TEST(LogitsRules, CountPresenceAndFrequencyOverTheOutputOnly) {
  OpenSequence open = Open({0, 0, 0}, {1, 2, 2});
  open.sampling.presence_penalty = 1;
  open.sampling.frequency_penalty = 0.25;
  EXPECT_THAT(Apply(open, {4, 4, 4, 4}), ElementsAre(4, 2.75, 2.5, 4));
}

TEST(LogitsRules, AreTheSameWhetherOutputWasAppendedOrReplayed) {
  OpenSequence open = Open({0, 3}, {});
  open.sampling.presence_penalty = 1;
  open.sampling.frequency_penalty = 0.5;
  open.sampling.repeat_penalty = 1.5;
  TokenHistory appended(open);
  for (const TokenId token : {1, 2, 1}) appended.AppendOutput(token);
  open.output = {1, 2, 1};
  const TokenHistory replayed(open);
  std::vector<float> a = {4, 4, 4, 4}, b = {4, 4, 4, 4};
  ApplyLogitsRules(appended, a.data());
  ApplyLogitsRules(replayed, b.data());
  EXPECT_EQ(a, b);
  EXPECT_EQ(appended.size(), 5);
  EXPECT_EQ(appended.output_counts().at(1), 2);
}

TEST(OpenSequenceCheck, AcceptsDefaultsAndTheEndsOfTheRanges) {
  OpenSequence open = Open({0, 9}, {9});
  EXPECT_TRUE(ValidateOpenSequence(open, 10).ok());
  open.sampling.min_p = 1;
  open.sampling.logprobs = kMaxLogprobs;
  open.sampling.repeat_last_n = -1;
  open.sampling.logit_bias = {{9, -std::numeric_limits<float>::infinity()}};
  EXPECT_TRUE(ValidateOpenSequence(open, 10).ok());
}

TEST(OpenSequenceCheck, NamesTheFieldTheValueAndTheRange) {
  struct Case {
    void (*spoil)(OpenSequence*);
    const char* message;
  };
  const Case cases[] = {
      {[](OpenSequence* o) { o->prompt.clear(); }, "empty prompt"},
      {[](OpenSequence* o) { o->prompt = {10}; }, "the prompt has token 10, the vocabulary has 0 to 9"},
      {[](OpenSequence* o) { o->output = {-1}; }, "the output has token -1"},
      {[](OpenSequence* o) { o->sampling.temperature = -0.5f; }, "temperature is -0.5, expected 0 to"},
      {[](OpenSequence* o) { o->sampling.temperature = std::numeric_limits<float>::quiet_NaN(); },
       "temperature is nan"},
      {[](OpenSequence* o) { o->sampling.top_k = -1; }, "top_k is -1"},
      {[](OpenSequence* o) { o->sampling.top_p = 0; }, "top_p is 0"},
      {[](OpenSequence* o) { o->sampling.top_p = 1.5f; }, "top_p is 1.5"},
      {[](OpenSequence* o) { o->sampling.min_p = 2; }, "min_p is 2, expected 0 to 1"},
      {[](OpenSequence* o) { o->sampling.repeat_penalty = 0; }, "repeat_penalty is 0"},
      {[](OpenSequence* o) { o->sampling.presence_penalty = std::numeric_limits<float>::infinity(); },
       "presence_penalty is inf"},
      {[](OpenSequence* o) { o->sampling.repeat_last_n = -2; }, "repeat_last_n is -2"},
      {[](OpenSequence* o) { o->sampling.logprobs = 129; }, "logprobs is 129, expected -1 to 128"},
      {[](OpenSequence* o) {
         o->sampling.logit_bias = {{10, 1.0f}};
       },
       "logit_bias has token 10"},
      {[](OpenSequence* o) {
         o->sampling.logit_bias = {{1, std::numeric_limits<float>::quiet_NaN()}};
       },
       "logit bias of token 1 is not a number"},
  };
  for (const Case& c : cases) {
    OpenSequence open = Open({0}, {});
    c.spoil(&open);
    const absl::Status status = ValidateOpenSequence(open, 10);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace stagecoach
