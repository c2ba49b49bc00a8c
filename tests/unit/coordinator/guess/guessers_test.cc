// The guessers that look into texts: of the request, of earlier ones, and predicted.

#include <optional>

#include "coordinator/guess/acceptance.h"
#include "coordinator/guess/prediction_guesser.h"
#include "coordinator/guess/suffix_guesser.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/guess/naive_match.h"

namespace stagecoach {
namespace {

using testing::Joined;
using testing::NaiveContinuation;
using testing::RandomText;
using testing::Tokens;

void AppendAll(Guesser* guesser, const Tokens& tokens) {
  for (const TokenId token : tokens) guesser->Append(token);
}

// With an index of all of the prediction.
PredictionGuesser Predicting(const Tokens& prediction) {
  PredictionGuesser guesser(prediction);
  EXPECT_EQ(guesser.CatchUp(1'000'000), static_cast<int64_t>(prediction.size()));
  return guesser;
}

TokenId TokenOf(const std::optional<Guess>& guess) { return guess ? guess->token : kNoToken; }

TEST(SuffixGuesser, GuessesAsABruteForceDoesAlsoWhenItBeganAgain) {
  std::mt19937 random(7);
  const SuffixGuesser::Limits limits{.least_match = 2, .most_tokens = 60};
  for (int i = 0; i < 20; ++i) {
    SuffixGuesser guesser(limits);
    Tokens indexed;
    for (const TokenId token : RandomText(&random, 200, 3 + i % 5)) {
      if (indexed.size() == 60) indexed.erase(indexed.begin(), indexed.begin() + 30);
      indexed.push_back(token);
      guesser.Append(token);
      ASSERT_LE(guesser.index().size(), limits.most_tokens);
      Tokens run;
      for (int guessed = 0; guessed < 3; ++guessed) {
        const SuffixIndex::Continuation expected = NaiveContinuation(indexed, Joined(indexed, run));
        const std::optional<Guess> guess = guesser.Next(run);
        ASSERT_EQ(TokenOf(guess), expected.length < 2 ? kNoToken : expected.token);
        if (!guess) break;
        ASSERT_EQ(guess->confidence, expected.Confidence());
        run.push_back(guess->token);
      }
    }
  }
}

TEST(SuffixGuesser, BeginsAgainWithoutAnAppendThatTakesLong) {
  std::mt19937 random(10);
  const SuffixGuesser::Limits limits{.most_tokens = 2000};
  SuffixGuesser guesser(limits);
  int began_again = 0;
  for (const TokenId token : RandomText(&random, 10'000, 200)) {
    const int64_t steps = guesser.steps(), tokens = guesser.index().size();
    guesser.Append(token);
    ASSERT_LT(guesser.steps() - steps, limits.most_tokens / 2);
    began_again += guesser.index().size() < tokens ? 1 : 0;
  }
  EXPECT_EQ(began_again, 8);
}

TEST(SuffixGuesser, ForgetsRunsThatDidNotComeTrue) {
  std::mt19937 random(8);
  SuffixGuesser asked({}), left_alone({});
  for (const TokenId token : RandomText(&random, 300, 4)) {
    Tokens run;
    while (run.size() < 6) {
      const std::optional<Guess> guess = asked.Next(run);
      run.push_back(guess && random() % 2 == 0 ? guess->token : static_cast<TokenId>(random() % 6));
    }
    asked.Append(token);
    left_alone.Append(token);
    const std::optional<Guess> guess = asked.Next({}), expected = left_alone.Next({});
    ASSERT_EQ(TokenOf(guess), TokenOf(expected));
    if (guess) {
      ASSERT_EQ(guess->confidence, expected->confidence);
    }
  }
}

TEST(SuffixGuesser, GuessesNothingBehindAMatchThatIsTooShort) {
  SuffixGuesser guesser({.least_match = 3});
  AppendAll(&guesser, {1, 2, 3, 4, 5, 1, 2});
  EXPECT_EQ(TokenOf(guesser.Next({})), kNoToken);
  EXPECT_EQ(TokenOf(guesser.Next(Tokens{3})), 4);
  guesser.Append(3);
  EXPECT_EQ(TokenOf(guesser.Next({})), 4);
  EXPECT_EQ(TokenOf(guesser.Next(Tokens{9})), kNoToken);
}

TEST(SuffixGuesser, TakesALongerMatchOfEarlierRequestsOfItsSalt) {
  SuffixStore store({});
  store.Add("mine", {1, 2, 3, 4, 5, 6});
  store.Add("other", {7, 8, 9});
  SuffixGuesser guesser({.least_match = 2}, &store, "mine");
  EXPECT_EQ(TokenOf(guesser.Next({})), kNoToken);
  AppendAll(&guesser, {7, 8});
  EXPECT_EQ(TokenOf(guesser.Next({})), kNoToken);
  guesser.Append(2);
  EXPECT_EQ(TokenOf(guesser.Next({})), kNoToken);
  EXPECT_EQ(TokenOf(guesser.Next(Tokens{3})), 4);
  EXPECT_EQ(TokenOf(guesser.Next(Tokens{3, 4, 5})), 6);
  AppendAll(&guesser, {3, 7, 9, 2, 3});
  EXPECT_EQ(TokenOf(guesser.Next({})), 7) << "of two as long, its own";
  EXPECT_EQ(TokenOf(guesser.Next(Tokens{4, 1, 2, 3})), 4) << "the longer one";
}

TEST(SuffixGuesser, LeavesEarlierRequestsAloneWhereItsOwnMatchIsLong) {
  const auto guess_behind = [](int64_t own_match) {
    SuffixStore store({});
    SuffixGuesser guesser({}, &store);
    Tokens text;
    for (TokenId token = 1; token <= own_match; ++token) text.push_back(token);
    AppendAll(&guesser, Joined(Joined(Joined({50}, text), {60}), Joined({70}, text)));
    store.Add("", Joined(Joined({70}, text), {61}));
    return TokenOf(guesser.Next({}));
  };
  EXPECT_EQ(guess_behind(SuffixGuesser::kLongMatch - 1), 61);
  EXPECT_EQ(guess_behind(SuffixGuesser::kLongMatch), 60);
}

TEST(PredictionGuesser, FollowsThePredictionFromItsFirstTokenToItsLast) {
  PredictionGuesser guesser = Predicting({1, 2, 3});
  EXPECT_EQ(TokenOf(guesser.Next({})), 1);
  EXPECT_EQ(TokenOf(guesser.Next(Tokens{1, 2})), 3);
  EXPECT_EQ(TokenOf(guesser.Next(Tokens{1, 2, 3})), kNoToken);
  AppendAll(&guesser, {1, 2, 3, 4});
  EXPECT_EQ(TokenOf(guesser.Next({})), kNoToken);
  EXPECT_EQ(guesser.accepted(), 3);
  EXPECT_EQ(guesser.rejected(), 0);
}

TEST(PredictionGuesser, FindsItsPlaceAgainBehindAChange) {
  PredictionGuesser guesser = Predicting({1, 2, 3, 4, 5, 6, 7, 8});
  AppendAll(&guesser, {1, 2, 9});  // 3 was predicted
  EXPECT_EQ(TokenOf(guesser.Next({})), kNoToken);
  guesser.Append(4);
  EXPECT_EQ(TokenOf(guesser.Next({})), kNoToken) << "one token is no match";
  guesser.Append(5);
  EXPECT_EQ(TokenOf(guesser.Next({})), 6);
  AppendAll(&guesser, {6, 7, 8});
  EXPECT_EQ(guesser.accepted(), 2 + 3);
  EXPECT_EQ(guesser.rejected(), 1);
}

TEST(PredictionGuesser, CountsTheSameHoweverOftenItIsAsked) {
  std::mt19937 random(9);
  const Tokens prediction = RandomText(&random, 200, 8);
  PredictionGuesser asked = Predicting(prediction), left_alone = Predicting(prediction);
  for (size_t i = 0; i < prediction.size(); ++i) {
    if (i % 40 == 39) continue;  // left out
    for (size_t length = 0; length < i % 4; ++length) asked.Next(Tokens(length, prediction[i]));
    asked.Append(prediction[i]);
    left_alone.Append(prediction[i]);
  }
  EXPECT_EQ(asked.accepted(), left_alone.accepted());
  EXPECT_EQ(asked.rejected(), left_alone.rejected());
  EXPECT_GT(asked.accepted(), 150);
  EXPECT_GT(asked.rejected(), 0);
}

TEST(PredictionGuesser, CountsTheSameWheneverThePredictionIsIndexed) {
  std::mt19937 random(11);
  const Tokens prediction = RandomText(&random, 300, 30);
  PredictionGuesser early = Predicting(prediction), late(prediction);
  for (size_t i = 0; i < prediction.size(); ++i) {
    const TokenId token = i % 50 == 49 ? 31 : prediction[i];
    early.Append(token);
    late.Append(token);
    ASSERT_LE(late.CatchUp(3), 3);
    if (i < 90) {
      ASSERT_EQ(TokenOf(late.Next({})), kNoToken) << "indexed in part";
    }
    if (i > 200) {
      ASSERT_EQ(TokenOf(late.Next({})), TokenOf(early.Next({}))) << "it has caught up";
    }
  }
  EXPECT_EQ(late.accepted(), early.accepted());
  EXPECT_EQ(late.rejected(), early.rejected());
  EXPECT_GT(early.accepted(), 200);
  EXPECT_EQ(late.CatchUp(3), 0);
}

TEST(PredictionGuesser, GuessesNothingFromAnEmptyPrediction) {
  PredictionGuesser guesser(Tokens{});
  EXPECT_EQ(TokenOf(guesser.Next({})), kNoToken);
  AppendAll(&guesser, {1, 1, 1});
  EXPECT_EQ(TokenOf(guesser.Next(Tokens{1})), kNoToken);
  EXPECT_EQ(guesser.accepted() + guesser.rejected(), 0);
}

TEST(Acceptance, BeginsWithItsPriorAndApproachesWhatItSees) {
  Acceptance acceptance(0.3);
  EXPECT_DOUBLE_EQ(acceptance.Rate(), 0.3);
  EXPECT_DOUBLE_EQ(acceptance.Calibrated(0.8), 0.8);
  for (int i = 0; i < 1000; ++i) acceptance.Observe(0.5, i % 4 != 0);
  EXPECT_NEAR(acceptance.Rate(), 0.75, 0.03);
}

TEST(Acceptance, ForgetsHalfInItsMemory) {
  Acceptance acceptance;
  for (int i = 0; i < 1000; ++i) acceptance.Observe(0.5, true);
  for (int i = 0; i < Acceptance::kMemory; ++i) acceptance.Observe(0.5, false);
  EXPECT_NEAR(acceptance.Rate(), 0.5, 0.01);
  for (int i = 0; i < Acceptance::kMemory; ++i) acceptance.Observe(0.5, false);
  EXPECT_NEAR(acceptance.Rate(), 0.25, 0.01);
}

TEST(Acceptance, StaysWithinItsBounds) {
  for (const bool right : {false, true}) {
    Acceptance acceptance(right ? 2 : -1);
    for (int i = 0; i < 10000; ++i) acceptance.Observe(right ? 0 : 1, right);
    EXPECT_DOUBLE_EQ(acceptance.Rate(), right ? Acceptance::kMost : Acceptance::kLeast);
    for (const double confidence : {0.0, 0.5, 1.0}) {
      EXPECT_GE(acceptance.Calibrated(confidence), Acceptance::kLeast);
      EXPECT_LE(acceptance.Calibrated(confidence), Acceptance::kMost);
    }
  }
}

TEST(Acceptance, HandsOnWhatItHasSeen) {
  Acceptance boastful(0.5, 256);
  for (int i = 0; i < 1000; ++i) boastful.Observe(0.9, i % 3 == 0);
  Acceptance heir = boastful.Heir();
  EXPECT_DOUBLE_EQ(heir.Rate(), boastful.Rate());
  EXPECT_DOUBLE_EQ(heir.Calibrated(0.9), boastful.Calibrated(0.9));
  for (int i = 0; i < 12; ++i) heir.Observe(0.9, true);
  EXPECT_GT(heir.Rate(), 0.75) << "it learns fast";
}

TEST(Acceptance, CorrectsConfidencesThatPromiseTooMuchOrTooLittle) {
  Acceptance boastful, modest;
  for (int i = 0; i < 1000; ++i) {
    boastful.Observe(0.9, i % 2 == 0);
    modest.Observe(0.4, i % 5 != 0);
  }
  EXPECT_NEAR(boastful.Calibrated(0.9), 0.5, 0.03);
  EXPECT_NEAR(boastful.Calibrated(0.45), 0.25, 0.03);
  EXPECT_NEAR(modest.Calibrated(0.4), 0.8, 0.03);
}

}  // namespace
}  // namespace stagecoach
