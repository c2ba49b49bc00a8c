#include "coordinator/request/grammar_ids.h"

#include "absl/strings/str_cat.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

std::vector<GrammarId> Defined(const MicroBatch& batch) {
  std::vector<GrammarId> ids;
  for (const GrammarDefinition& definition : batch.define_grammars) ids.push_back(definition.id);
  return ids;
}

TEST(GrammarIds, EqualProgramsAreOneGrammarWhichIsDefinedOnce) {
  GrammarIds ids;
  GrammarIds::Grammar* const first = ids.Add("a");
  GrammarIds::Grammar* const other = ids.Add("b");
  EXPECT_EQ(ids.Add("a"), first);
  EXPECT_NE(first, other);
  MicroBatch batch;
  const GrammarId id = ids.Open(first, &batch);
  EXPECT_EQ(ids.Open(first, &batch), id);
  EXPECT_THAT(batch.define_grammars, ElementsAre(GrammarDefinition{id, "a"}));
  EXPECT_NE(ids.Open(other, &batch), id);
  EXPECT_EQ(batch.define_grammars.size(), 2u);
  EXPECT_TRUE(ids.CheckIntegrity(3, 3).ok());
  EXPECT_FALSE(ids.CheckIntegrity(3, 2).ok());
}

TEST(GrammarIds, ThoseThatBecameIdleLastStayAndOthersAreDroppedInTheirOrder) {
  GrammarIds ids;
  std::vector<GrammarIds::Grammar*> grammars;
  MicroBatch batch;
  for (int i = 0; i < kMaxIdleGrammars + 3; ++i) {
    grammars.push_back(ids.Add(absl::StrCat("program ", i)));
    ids.Open(grammars.back(), &batch);
  }
  const std::vector<GrammarId> all = Defined(batch);
  batch = {};
  for (GrammarIds::Grammar* const grammar : grammars) ids.Close(grammar);
  ids.Open(grammars[1], &batch);  // follows it again
  ids.DropIdle(&batch);
  EXPECT_TRUE(batch.define_grammars.empty());
  EXPECT_THAT(batch.drop_grammars, ElementsAre(all[0], all[2]));
  EXPECT_TRUE(ids.CheckIntegrity(kMaxIdleGrammars + 3, 1).ok());
  // A new definition of the same program has an id that was never used.
  batch = {};
  EXPECT_GT(ids.Open(grammars[0], &batch), all.back());
  EXPECT_EQ(Defined(batch).size(), 1u);
  ids.DropIdle(&batch);
  EXPECT_TRUE(batch.drop_grammars.empty());
}

TEST(GrammarIds, CountTheBytesOfThoseThatAreFollowed) {
  GrammarIds ids;
  MicroBatch batch;
  GrammarIds::Grammar* const three = ids.Add("abc");
  ids.Add("abc");
  GrammarIds::Grammar* const two = ids.Add("de");
  for (GrammarIds::Grammar* const grammar : {three, three, two}) ids.Open(grammar, &batch);
  EXPECT_EQ(ids.followed_bytes(), 5);
  ids.Close(three);
  EXPECT_EQ(ids.followed_bytes(), 5);
  ids.Close(three);
  EXPECT_EQ(ids.followed_bytes(), 2);
  ids.Open(three, &batch);
  EXPECT_EQ(ids.followed_bytes(), 5);
  EXPECT_TRUE(ids.CheckIntegrity(3, 2).ok());
}

TEST(GrammarIds, IdleOnesStayWithinWhatThoseThatAreFollowedLeave) {
  GrammarIds ids;
  std::vector<GrammarIds::Grammar*> grammars;
  MicroBatch batch;
  constexpr size_t kPart = kMaxFollowedBytes / 4;
  for (const char name : {'a', 'b', 'c', 'd', 'e'}) {
    grammars.push_back(ids.Add(std::string(kPart, name)));
    if (name != 'e') ids.Open(grammars.back(), &batch);
  }
  const std::vector<GrammarId> all = Defined(batch);
  for (size_t i = 0; i < 4; ++i) ids.Close(grammars[i]);
  EXPECT_EQ(ids.idle_bytes(), kMaxFollowedBytes);
  batch = {};
  ids.DropIdle(&batch);
  EXPECT_TRUE(batch.drop_grammars.empty());
  ids.Open(grammars[2], &batch);
  ids.Open(grammars[4], &batch);
  ids.DropIdle(&batch);
  EXPECT_THAT(batch.drop_grammars, ElementsAre(all[0]));
  EXPECT_EQ(ids.followed_bytes() + ids.idle_bytes(), kMaxFollowedBytes);
  EXPECT_TRUE(ids.CheckIntegrity(5, 2).ok());
}

TEST(GrammarIds, NothingIsKeptOfWhatNobodyHasAndTheStageHasNot) {
  GrammarIds ids;
  ids.Remove(ids.Add("never opened"));
  EXPECT_EQ(ids.size(), 0u);
  MicroBatch batch;
  for (int i = 0; i <= kMaxIdleGrammars; ++i) {
    GrammarIds::Grammar* const grammar = ids.Add(absl::StrCat("program ", i));
    ids.Open(grammar, &batch);
    ids.Close(grammar);
    ids.Remove(grammar);
  }
  EXPECT_EQ(ids.size(), static_cast<size_t>(kMaxIdleGrammars) + 1);
  ids.DropIdle(&batch);
  EXPECT_EQ(ids.size(), static_cast<size_t>(kMaxIdleGrammars));
  EXPECT_TRUE(ids.CheckIntegrity(0, 0).ok());
}

}  // namespace
}  // namespace stagecoach
