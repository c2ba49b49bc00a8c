#include "coordinator/guess/suffix_index.h"

#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/guess/naive_match.h"

namespace stagecoach {
namespace {

using testing::ContinuationOf;
using testing::Fields;
using testing::Joined;
using testing::NaiveContinuation;
using testing::RandomText;
using testing::Tokens;

SuffixIndex IndexOf(const Tokens& text) {
  SuffixIndex index;
  for (const TokenId token : text) index.Append(token);
  return index;
}

TokenId Next(const Tokens& text) {
  const SuffixIndex index = IndexOf(text);
  return index.Continued(index.End()).token;
}

TEST(SuffixIndex, FindsTheLongestMatchOfItsEndAfterEveryToken) {
  std::mt19937 random(1);
  for (int i = 0; i < 40; ++i) {
    const Tokens text = RandomText(&random, 160, 1 + i % 6);
    SuffixIndex index;
    Tokens so_far;
    for (const TokenId token : text) {
      index.Append(token);
      so_far.push_back(token);
      ASSERT_EQ(Fields(index.Continued(index.End())), Fields(NaiveContinuation(so_far, so_far)))
          << ::testing::PrintToString(so_far);
    }
  }
}

TEST(SuffixIndex, FindsTheLongestMatchBehindARunOfGuesses) {
  std::mt19937 random(2);
  for (int i = 0; i < 60; ++i) {
    const int alphabet = 2 + i % 5;
    const Tokens text = RandomText(&random, 120, alphabet);
    const SuffixIndex index = IndexOf(text);
    for (int question = 0; question < 20; ++question) {
      Tokens run;
      while (run.size() < 8) {
        // Its own guess, or another that the text may not have.
        const TokenId own = ContinuationOf(index, index.End(), run).token;
        run.push_back(random() % 3 != 0 ? own : static_cast<TokenId>(random() % (alphabet + 1)));
        ASSERT_EQ(Fields(ContinuationOf(index, index.End(), run)), Fields(NaiveContinuation(text, Joined(text, run))))
            << ::testing::PrintToString(text) << ::testing::PrintToString(run);
      }
    }
  }
}

TEST(SuffixIndex, CountsTheFirstOccurrencesOfSequencesThatAreFrequent) {
  std::mt19937 random(3);
  int full = 0;
  for (int i = 0; i < 20; ++i) {
    const int alphabet = 1 + i % 3;
    const Tokens text = RandomText(&random, 400, alphabet);
    const SuffixIndex index = IndexOf(text);
    for (int question = 0; question < 40; ++question) {
      const Tokens sequence = RandomText(&random, random() % 7, alphabet);
      const SuffixIndex::Continuation found = ContinuationOf(index, {}, sequence);
      ASSERT_EQ(Fields(found), Fields(NaiveContinuation(text, sequence)));
      full += found.seen == SuffixIndex::kMostCounted ? 1 : 0;
    }
  }
  EXPECT_GT(full, 200);
}

TEST(SuffixIndex, CrossesNoBorderAndGuessesNone) {
  std::mt19937 random(4);
  for (int i = 0; i < 30; ++i) {
    Tokens text;
    while (text.size() < 150) {
      text.push_back(SuffixIndex::kBorder);
      text = Joined(text, RandomText(&random, random() % 12, 2));
    }
    const SuffixIndex index = IndexOf(text);
    for (int question = 0; question < 40; ++question) {
      const Tokens sequence = RandomText(&random, random() % 15, 2);
      ASSERT_EQ(Fields(ContinuationOf(index, {}, sequence)), Fields(NaiveContinuation(text, sequence)))
          << ::testing::PrintToString(text) << ::testing::PrintToString(sequence);
    }
  }
}

TEST(SuffixIndex, TakesWhatFollowedMostAndOfTwoAsOftenTheLatest) {
  EXPECT_EQ(Next({}), kNoToken);
  EXPECT_EQ(Next({1, 2, 3, 8, 1, 2, 4, 9, 1, 2}), 4);
  EXPECT_EQ(Next({1, 2, 4, 8, 1, 2, 3, 9, 1, 2}), 3);
  EXPECT_EQ(Next({1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2}), 3);
  EXPECT_EQ(Next({1, 2, 3, 7, 1, 2, 4, 8, 1, 2, 4, 9, 1, 2, 3, 6, 1, 2}), 3);
}

TEST(SuffixIndex, PrefersALongerMatchToAFrequentOne) {
  EXPECT_EQ(Next({5, 1, 2, 4, 1, 2, 3, 1, 2, 3, 1, 2, 3, 5, 1, 2}), 4);
}

TEST(SuffixIndex, IsSurerOfLongerAndOfMoreFrequentMatches) {
  const auto confidence = [](int64_t length, int count, int seen) {
    return SuffixIndex::Continuation{.token = 1, .length = length, .count = count, .seen = seen}.Confidence();
  };
  EXPECT_LT(confidence(2, 1, 1), confidence(3, 1, 1));
  EXPECT_LT(confidence(3, 1, 1), confidence(3, 5, 5));
  EXPECT_LT(confidence(3, 1, 2), confidence(3, 1, 1));
  EXPECT_GT(confidence(1, 1, SuffixIndex::kMostCounted), 0);
  EXPECT_LT(confidence(1 << 20, SuffixIndex::kMostCounted, SuffixIndex::kMostCounted), 1);
}

// Texts that make suffix structures slow or large.
std::vector<Tokens> AdversarialTexts(size_t tokens) {
  Tokens equal(tokens, 7), pairs, different, one_in_the_middle(tokens, 7), fibonacci = {1}, before = {0}, blocks;
  for (size_t i = 0; i < tokens; ++i) {
    pairs.push_back(static_cast<TokenId>(i % 2));
    different.push_back(static_cast<TokenId>(i));
  }
  one_in_the_middle[tokens / 2] = 8;
  while (fibonacci.size() < tokens) {
    const Tokens longer = Joined(fibonacci, before);
    before = fibonacci;
    fibonacci = longer;
  }
  for (size_t block = 1; blocks.size() < tokens; ++block) {  // a b, a a b, a a a b, ...
    blocks = Joined(blocks, Joined(Tokens(block, 0), {1}));
  }
  return {equal, pairs, different, one_in_the_middle, fibonacci, blocks};
}

TEST(SuffixIndex, TakesABoundedNumberOfStepsAndBytesATokenWhateverTheText) {
  int number = 0;
  for (const Tokens& text : AdversarialTexts(20'000)) {
    const SuffixIndex index = IndexOf(text);
    EXPECT_LT(index.steps(), index.size() * (2 * SuffixIndex::kMostCounted + 8)) << number;
    EXPECT_LT(index.bytes(), index.size() * 256) << number;
    ++number;
  }
  const SuffixIndex equal = IndexOf(Tokens(100'000, 7));
  EXPECT_LT(equal.steps(), equal.size() * (SuffixIndex::kMostCounted + 3));
  EXPECT_EQ(equal.Continued(equal.End()).token, 7);
}

TEST(SuffixIndex, LosesAMatchThatIsFarBehindInAPeriodicText) {
  const auto length_behind = [](int repeats) {
    const SuffixIndex index = IndexOf(Joined({1, 2, 3}, Tokens(static_cast<size_t>(repeats), 1)));
    return ContinuationOf(index, index.End(), {2}).length;
  };
  EXPECT_EQ(length_behind(SuffixIndex::kMostFalls / 2), 2);
  EXPECT_EQ(length_behind(SuffixIndex::kMostFalls * 2), 1);
}

}  // namespace
}  // namespace stagecoach
