#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "common/base/counter_rng.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/sample/sampler.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

const SamplingKernels& BestKernels() { return *SelectKernels("auto").value()->sampling; }

OpenSequence Open(std::vector<TokenId> prompt, std::vector<TokenId> output) {
  return {.sequence = 4, .prompt = std::move(prompt), .output = std::move(output)};
}

std::vector<float> Apply(const OpenSequence& open, std::vector<float> logits) {
  const TokenHistory history(open);
  const std::vector<float> raw = logits;
  LogitsRules rules;
  rules.Apply(BestKernels(), history, static_cast<int64_t>(raw.size()), logits.data());
  EXPECT_TRUE(LogitsRules::ChangeAnything(history) || logits == raw);
  // Nothing is left in its memory.
  std::vector<float> again = raw;
  rules.Apply(BestKernels(), history, static_cast<int64_t>(raw.size()), again.data());
  EXPECT_EQ(again, logits);
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

TEST(LogitsRules, MakeEndTokensImpossibleBeforeTheOutputIsAsLongAsItHasToBe) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  OpenSequence open = Open({0, 1, 2, 3, 0, 1}, {2});
  open.sampling.min_new_tokens = 2;
  open.sampling.end_tokens = {1, 3};
  open.sampling.logit_bias = {{3, 1e6f}};
  EXPECT_THAT(Apply(open, {4, 4, 4, 4}), ElementsAre(4, kNever, 4, kNever));
  open.output.push_back(2);
  EXPECT_THAT(Apply(open, {4, 4, 4, 4}), ElementsAre(4, 4, 4, 1e6f + 4));
  open.sampling.end_tokens.clear();
  open.output.clear();
  EXPECT_THAT(Apply(open, {4, 4, 4, 4}), ElementsAre(4, 4, 4, 1e6f + 4));
}

TEST(LogitsRules, ForbidWhatTheGrammarDoesNotAllowAfterAllOthers) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  OpenSequence open = Open({0}, {1});
  open.sampling.logit_bias = {{3, 1e6f}, {2, 2.0f}};
  open.sampling.repeat_penalty = 2;
  open.sampling.repeat_last_n = -1;
  const TokenHistory history(open);
  LogitsRules rules;
  const auto apply = [&](const AllowedTokens& allowed, std::vector<float> logits) {
    rules.Apply(BestKernels(), history, static_cast<int64_t>(logits.size()), logits.data(), &allowed);
    return logits;
  };
  EXPECT_THAT(apply({{0b0110}}, {4, 4, 4, 4}), ElementsAre(kNever, 2, 6, kNever));
  // Also a NaN, and in the last word of a vocabulary that does not fill it.
  std::vector<float> wide(130, 1.0f), expected(130, kNever);
  wide[5] = std::numeric_limits<float>::quiet_NaN();
  expected[129] = 1;
  EXPECT_EQ(apply({{0, 0, 0b10}}, wide), expected);
}

TEST(LogitsRules, LetACompleteTextEndBeforeTheOutputIsAsLongAsItHasToBe) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  OpenSequence open = Open({0}, {1});
  open.sampling.min_new_tokens = 5;
  open.sampling.end_tokens = {2, 3};
  const TokenHistory history(open);
  LogitsRules rules;
  for (const bool complete : {false, true}) {
    const AllowedTokens allowed = {{0b1011}, complete};
    std::vector<float> logits = {4, 4, 4, 4};
    rules.Apply(BestKernels(), history, 4, logits.data(), &allowed);
    EXPECT_THAT(logits, ElementsAre(4, 4, kNever, complete ? 4 : kNever));
  }
}

TEST(LogitsRules, HoldBackNoEndWhereTheGrammarAllowsNothingElse) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  OpenSequence open = Open({0}, {1});
  open.sampling.min_new_tokens = 5;
  open.sampling.end_tokens = {2, 129, 2};
  const TokenHistory history(open);
  LogitsRules rules;
  const auto apply = [&](std::vector<uint64_t> bits) {
    const AllowedTokens allowed = {std::move(bits)};
    std::vector<float> logits(130, 4.0f);
    rules.Apply(BestKernels(), history, 130, logits.data(), &allowed);
    return std::vector<float>{logits[2], logits[128], logits[129]};
  };
  EXPECT_THAT(apply({0b100, 0, 0b10}), ElementsAre(4, kNever, 4));
  EXPECT_THAT(apply({0b100, 0, 0b11}), ElementsAre(kNever, 4, kNever));
}

// Short windows are taken token by token, long ones in one pass over the row, by one object in turn.
TEST(LogitsRules, PenalizeEveryTokenOfAWindowOfAnySizeOnce) {
  constexpr int64_t kVocab = 3001;
  std::vector<float> raw(kVocab);
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<float>(20 * (UniformAt(1, i) - 0.5));
  raw[7] = -std::numeric_limits<float>::infinity();
  raw[8] = -0.0f;
  LogitsRules rules;
  for (const int size : {1, 90, 5000, 93, 94, 95, 2000, 64, 0}) {
    OpenSequence open = Open({}, {});
    for (int i = 0; i < size; ++i) {
      open.prompt.push_back(
          static_cast<TokenId>(UniformAt(static_cast<uint64_t>(size), static_cast<uint64_t>(i)) * kVocab));
    }
    open.prompt.insert(open.prompt.end(), {7, 8, 3000});
    open.sampling.repeat_penalty = 1.3f;
    open.sampling.repeat_last_n = -1;
    std::vector<float> expected = raw, found = raw;
    for (const TokenId token : std::set<TokenId>(open.prompt.begin(), open.prompt.end())) {
      float& logit = expected[static_cast<size_t>(token)];
      logit = logit > 0 ? logit / 1.3f : logit * 1.3f;
    }
    rules.Apply(BestKernels(), TokenHistory(open), kVocab, found.data());
    EXPECT_EQ(std::memcmp(expected.data(), found.data(), kVocab * sizeof(float)), 0) << size;
  }
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
  LogitsRules rules;
  rules.Apply(BestKernels(), appended, 4, a.data());
  rules.Apply(BestKernels(), replayed, 4, b.data());
  EXPECT_EQ(a, b);
  EXPECT_EQ(appended.size(), 5);
  ASSERT_EQ(appended.output_counts().size(), 2u);
  EXPECT_EQ(appended.output_counts()[0].token, 1);
  EXPECT_EQ(appended.output_counts()[0].count, 2);
}

}  // namespace
}  // namespace stagecoach
