#include "coordinator/guess/suffix_store.h"

#include <numeric>

#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/guess/naive_match.h"

namespace stagecoach {
namespace {

using testing::Fields;
using testing::Joined;
using testing::NaiveContinuation;
using testing::RandomText;
using testing::Tokens;

// Tokens from `first` on, each another one.
Tokens Counting(TokenId first, size_t tokens) {
  Tokens text(tokens);
  std::iota(text.begin(), text.end(), first);
  return text;
}

TEST(SuffixStore, FindsTheLongestMatchInAllTextsOfASalt) {
  std::mt19937 random(5);
  SuffixStore store({});
  Tokens all;
  for (int i = 0; i < 30; ++i) {
    const Tokens text = RandomText(&random, 1 + random() % 20, 4);
    store.Add("a", text);
    all = Joined(Joined(all, {SuffixIndex::kBorder}), text);
    for (int question = 0; question < 20; ++question) {
      const Tokens tail = RandomText(&random, random() % 20, 4);
      const SuffixIndex::Continuation expected = NaiveContinuation(all, tail);
      ASSERT_EQ(Fields(store.Find("a", tail)), Fields(expected.length > 0 ? expected : SuffixIndex::Continuation()));
    }
  }
}

TEST(SuffixStore, LooksAtTheLastTokensOfALongTailAlone) {
  SuffixStore store({});
  store.Add("a", Counting(0, 100));
  EXPECT_EQ(Fields(store.Find("a", Counting(0, 60))),
            std::make_tuple(60, static_cast<int64_t>(SuffixStore::kWindow), 1, 1));
}

TEST(SuffixStore, KeepsSaltsApart) {
  SuffixStore store({});
  store.Add("a", {1, 2, 3});
  store.Add("b", {1, 2, 4});
  EXPECT_EQ(store.Find("a", Tokens{1, 2}).token, 3);
  EXPECT_EQ(store.Find("b", Tokens{1, 2}).token, 4);
  EXPECT_EQ(store.Find("", Tokens{1, 2}).length, 0);
  EXPECT_EQ(store.Find("ab", Tokens{1, 2}).length, 0);
}

TEST(SuffixStore, DropsTheLeastRecentlyUsedSaltFirst) {
  const int64_t each = 10 + 1 + SuffixStore::kSegmentCharge + 1;  // a border and a salt of one byte
  SuffixStore store({.tokens_per_salt = 40, .tokens = 3 * each});
  for (const char* salt : {"a", "b", "c"}) store.Add(salt, Counting(0, 10));
  EXPECT_EQ(store.tokens(), 3 * each);
  EXPECT_EQ(store.Find("a", Tokens{4}).token, 5);    // a use
  EXPECT_EQ(store.Find("b", Tokens{99}).length, 0);  // none
  store.Add("d", Counting(0, 10));
  EXPECT_EQ(store.Find("b", Tokens{4}).length, 0);
  for (const char* salt : {"c", "a", "d"}) EXPECT_EQ(store.Find(salt, Tokens{4}).token, 5) << salt;
  EXPECT_EQ(store.tokens(), 3 * each);
}

TEST(SuffixStore, DropsTheOldestTextsOfASaltThatHasTooMany) {
  SuffixStore store({.tokens_per_salt = 64, .tokens = 1000});
  for (TokenId first = 0; first < 1000; first += 10) {
    store.Add("a", Counting(first, 10));
    ASSERT_LE(store.tokens(), 64 + 2 * (SuffixStore::kSegmentCharge + 1));
    ASSERT_EQ(store.Find("a", Tokens{first + 8}).token, first + 9);
    // The one before is in the same segment or in the older one.
    if (first >= 10) {
      ASSERT_EQ(store.Find("a", Tokens{first - 2}).token, first - 1);
    }
  }
  EXPECT_EQ(store.Find("a", Tokens{800}).length, 0);
}

TEST(SuffixStore, KeepsTheEndOfATextThatIsLongerThanItself) {
  SuffixStore store({.tokens_per_salt = 64, .tokens = 200});
  store.Add("a", Counting(0, 1000));
  EXPECT_EQ(store.Find("a", Tokens{100}).length, 0);
  EXPECT_EQ(store.Find("a", Tokens{998}).token, 999);
  EXPECT_LE(store.tokens(), 200);
}

TEST(SuffixStore, StaysBoundedWhateverSaltsAndTextsCome) {
  std::mt19937 random(6);
  const SuffixStore::Limits limits{.tokens_per_salt = 256, .tokens = 2000};
  SuffixStore store(limits);
  int found = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string salt(random() % 4 == 0 ? random() % 3000 : 3, static_cast<char>('a' + random() % 10));
    store.Add(salt, RandomText(&random, random() % 100, 30));
    ASSERT_LE(store.tokens(), limits.tokens);
    ASSERT_LT(store.bytes(), limits.tokens * 256);
    found += store.Find(salt, RandomText(&random, 3, 30)).length > 0 ? 1 : 0;
  }
  EXPECT_GT(found, 700);
}

TEST(SuffixStore, KeepsNothingOfAnEmptyText) {
  SuffixStore store({});
  store.Add("a", {});
  EXPECT_EQ(store.tokens(), 0);
  EXPECT_EQ(store.Find("a", Tokens{}).length, 0);
}

}  // namespace
}  // namespace stagecoach
