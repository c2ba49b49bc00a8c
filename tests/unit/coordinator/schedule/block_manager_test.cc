// The block manager and its prefix cache: what is found, what is evicted, and in which order.

#include "coordinator/schedule/block_manager.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

TEST(BlockManager, AllocatesAllOrNothing) {
  BlockManager manager({5});
  ASSERT_EQ(manager.Allocate({3})->front().size(), 3u);
  const auto refused = manager.Allocate({3});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("wanted 3 KV blocks of block group 0, 2 of 5 are free"));
  EXPECT_EQ(manager.free(0), 2);
  EXPECT_EQ(manager.used(0), 3);
  EXPECT_TRUE(manager.Allocate({2}).ok());
  EXPECT_TRUE(manager.Allocate({0})->front().empty());
  EXPECT_TRUE(manager.CheckIntegrity().ok());
}

TEST(BlockManager, CatchesADoubleFreeAndFreesNothingThen) {
  BlockManager manager({4});
  const std::vector<BlockId> blocks = manager.Allocate({3})->front();
  ASSERT_TRUE(manager.Free({{blocks[0]}}).ok());
  EXPECT_THAT(manager.Free({{blocks[1], blocks[0], blocks[2]}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("freed more often")));
  EXPECT_EQ(manager.used(0), 2);
  EXPECT_EQ(manager.references(0, blocks[1]), 1);
  EXPECT_EQ(manager.Free({{blocks[1], blocks[1]}}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(manager.references(0, blocks[1]), 1);
  EXPECT_TRUE(manager.CheckIntegrity().ok());
}

TEST(BlockManager, CatchesABlockOutOfRange) {
  BlockManager manager({4});
  const std::vector<BlockId> blocks = manager.Allocate({1})->front();
  for (const BlockId wrong : {-1, 4}) {
    EXPECT_THAT(manager.Free({{blocks[0], wrong}}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("does not exist")));
    EXPECT_EQ(manager.references(0, blocks[0]), 1);
  }
}

TEST(BlockManager, TheBlockFreedLastIsUsedFirst) {
  BlockManager manager({8});
  const std::vector<BlockId> blocks = manager.Allocate({8})->front();
  ASSERT_TRUE(manager.Free({{blocks[2]}}).ok());
  ASSERT_TRUE(manager.Free({{blocks[5], blocks[6]}}).ok());
  EXPECT_EQ(manager.Allocate({3})->front(), (std::vector<BlockId>{blocks[5], blocks[6], blocks[2]}));
}

TEST(BlockManager, AllocatesAndFreesInAllGroupsOrInNone) {
  BlockManager manager({5, 3});
  const BlockLists blocks = *manager.Allocate({4, 2});
  EXPECT_EQ(blocks, (BlockLists{{0, 1, 2, 3}, {0, 1}})) << "every group has ids of its own";
  EXPECT_THAT(manager.Allocate({1, 2}).status().message(),
              HasSubstr("wanted 2 KV blocks of block group 1, 1 of 3 are free"));
  EXPECT_EQ(manager.free(0), 1);
  EXPECT_THAT(manager.Free({{0, 1}, {2}}), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                    HasSubstr("block 2 of block group 1 is freed more often")));
  EXPECT_EQ(manager.references(0, 0), 1);
  ASSERT_TRUE(manager.Free({{0, 1}, {}}).ok());
  EXPECT_EQ(manager.free(0), 3);
  EXPECT_EQ(manager.free(1), 1);
  EXPECT_TRUE(manager.CheckIntegrity().ok());
}

TEST(BlockManager, ABlockNamedTwiceLosesTwoReferencesAndIsFreeOnce) {
  BlockManager manager({2});
  const BlockId block = manager.Allocate({1})->front().front();
  manager.AddReference(0, block);
  ASSERT_TRUE(manager.Free({{block, block}}).ok());
  EXPECT_EQ(manager.free(0), 2);
  EXPECT_TRUE(manager.CheckIntegrity().ok());
}

TEST(BlockManager, CountsLikeAModelThroughRandomHistories) {
  std::mt19937 random(7);
  BlockManager manager({17});
  std::vector<int> references(17, 0);
  for (int step = 0; step < 20000; ++step) {
    const BlockId block = static_cast<BlockId>(random() % 17);
    switch (random() % 3) {
      case 0:
        if (const auto got = manager.Allocate({static_cast<int32_t>(random() % 5)}); got.ok()) {
          for (const BlockId b : got->front()) ASSERT_EQ(references[b]++, 0);
        }
        break;
      case 1:
        if (references[block] > 0) {
          manager.AddReference(0, block);
          ++references[block];
        }
        break;
      default:
        ASSERT_EQ(manager.Free({{block}}).ok(), references[block] > 0);
        references[block] = std::max(references[block] - 1, 0);
    }
    ASSERT_TRUE(manager.CheckIntegrity().ok());
    ASSERT_EQ(manager.free(0), std::count(references.begin(), references.end(), 0));
    ASSERT_EQ(manager.references(0, block), references[block]);
  }
}

constexpr int32_t kSharedBlockTokens = 2;

// A sequence as the scheduler has it: tokens, tables, and a chain.
struct Holder {
  std::vector<TokenId> tokens;
  BlockLists tables;
  std::vector<PrefixRef> chain;

  std::vector<TokenId> Block(size_t i) const {
    const auto begin = tokens.begin() + static_cast<int64_t>(i) * kSharedBlockTokens;
    return {begin, begin + kSharedBlockTokens};
  }
  uint64_t Hash(size_t i) const {
    uint64_t hash = PrefixRootHash("");
    for (size_t b = 0; b <= i; ++b) hash = PrefixHash(hash, Block(b));
    return hash;
  }
};

// Begins with what is known of the tokens.
Holder Begin(BlockManager& manager, const std::vector<TokenId>& tokens) {
  Holder holder{.tokens = tokens, .tables = BlockLists(manager.groups()), .chain = {}};
  for (size_t i = 0; (i + 1) * kSharedBlockTokens <= tokens.size(); ++i) {
    const std::vector<TokenId> block = holder.Block(i);
    const PrefixRef entry = manager.Find({holder.Hash(i), i == 0 ? PrefixRef() : holder.chain.back(), "", block});
    if (!entry.exists()) break;
    holder.chain.push_back(entry);
  }
  holder.tables = manager.Share(holder.chain);
  return holder;
}

// One block more, which is filled; false: there is none.
bool Fill(BlockManager& manager, Holder& holder) {
  const absl::StatusOr<BlockLists> more = manager.Allocate(std::vector<int32_t>(manager.groups(), 1));
  if (!more.ok()) return false;
  std::vector<BlockId> blocks;
  for (size_t group = 0; group < manager.groups(); ++group) {
    holder.tables[group].push_back((*more)[group][0]);
    blocks.push_back((*more)[group][0]);
  }
  const size_t i = holder.chain.size();
  const bool cut = i > 0 && !holder.chain.back().exists();
  const std::vector<TokenId> block = holder.Block(i);
  const PrefixKey key = {holder.Hash(i), i == 0 ? PrefixRef() : holder.chain.back(), "", block};
  holder.chain.push_back(cut ? PrefixRef() : manager.Remember(key, blocks));
  return true;
}

// Computes what is not known of the tokens.
Holder Compute(BlockManager& manager, const std::vector<TokenId>& tokens) {
  Holder holder = Begin(manager, tokens);
  while ((holder.chain.size() + 1) * kSharedBlockTokens <= tokens.size()) EXPECT_TRUE(Fill(manager, holder));
  return holder;
}

void Release(BlockManager& manager, const Holder& holder) {
  ASSERT_TRUE(manager.Free(holder.tables, holder.chain).ok());
  ASSERT_TRUE(manager.CheckIntegrity().ok()) << manager.CheckIntegrity();
}

size_t Known(BlockManager& manager, const std::vector<TokenId>& tokens) {
  const Holder holder = Begin(manager, tokens);
  const size_t blocks = holder.chain.size();
  Release(manager, holder);
  return blocks;
}

TEST(PrefixBlocks, AReleasedChainIsEvictableAndFoundAgain) {
  BlockManager manager({6, 5});
  const Holder first = Compute(manager, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(manager.used(0), 3);
  Release(manager, first);
  EXPECT_EQ(manager.used(0), 0);
  EXPECT_EQ(manager.free(0), 3);
  EXPECT_EQ(manager.free(1), 2);
  EXPECT_EQ(manager.evictable(), 3);
  const Holder second = Begin(manager, {1, 2, 3, 4, 9, 9});
  EXPECT_EQ(second.chain.size(), 2u) << "up to the first block that differs";
  EXPECT_EQ(second.tables[1], (std::vector<BlockId>{first.tables[1][0], first.tables[1][1]}));
  EXPECT_EQ(manager.evictable(), 1);
  EXPECT_EQ(manager.references(1, first.tables[1][0]), 1);
  const Holder third = Begin(manager, {1, 2});
  EXPECT_EQ(manager.references(0, first.tables[0][0]), 2);
  Release(manager, second);
  EXPECT_EQ(manager.used(0), 1);
  Release(manager, third);
  EXPECT_EQ(manager.evictable(), 3);
}

TEST(PrefixBlocks, TheDeepestBlocksOfTheLeastRecentlyUsedAreGivenUpFirstAndOnlyWhenNoneIsFree) {
  BlockManager manager({6});
  const Holder old = Compute(manager, {1, 1, 2, 2});
  const Holder young = Compute(manager, {3, 3, 4, 4});
  Release(manager, old);
  Release(manager, young);
  const std::vector<BlockId> free = manager.Allocate({2})->front();
  for (const BlockId block : free) EXPECT_THAT(old.tables[0], Not(Contains(block)));
  EXPECT_EQ(manager.evictable(), 4);
  EXPECT_EQ(manager.Allocate({1})->front(), (std::vector<BlockId>{old.tables[0][1]}));
  EXPECT_EQ(Known(manager, {1, 1, 2, 2}), 1u) << "its root is used now, and so the younger one";
  EXPECT_EQ(manager.Allocate({2})->front().size(), 2u);
  EXPECT_EQ(Known(manager, {3, 3, 4, 4}), 0u);
  EXPECT_EQ(Known(manager, {1, 1, 2, 2}), 1u);
  EXPECT_EQ(manager.Allocate({2}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PrefixBlocks, AnAllocationThatFailsGivesNothingUp) {
  BlockManager manager({4, 3});
  Release(manager, Compute(manager, {1, 1, 2, 2}));
  EXPECT_EQ(manager.Allocate({1, 4}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Known(manager, {1, 1, 2, 2}), 2u);
  EXPECT_TRUE(manager.Allocate({1, 2}).ok()) << "one entry is given up for the smaller group";
  EXPECT_EQ(Known(manager, {1, 1, 2, 2}), 1u);
  EXPECT_EQ(manager.free(0), 2) << "with its block of the other group";
  EXPECT_TRUE(manager.CheckIntegrity().ok()) << manager.CheckIntegrity();
}

TEST(PrefixBlocks, TheSameContentComputedTwiceIsOneEntry) {
  BlockManager manager({8});
  Holder a = Begin(manager, {1, 1, 2, 2}), b = Begin(manager, {1, 1, 2, 2, 3, 3});
  while (a.chain.size() < 2) ASSERT_TRUE(Fill(manager, a) && Fill(manager, b));
  EXPECT_EQ(a.chain, b.chain);
  EXPECT_NE(a.tables, b.tables);
  Release(manager, a);
  ASSERT_TRUE(Fill(manager, b)) << "it follows an entry of the other's block";
  EXPECT_EQ(Known(manager, {1, 1, 2, 2, 3, 3}), 3u);
  Release(manager, b);
  EXPECT_EQ(manager.evictable(), 3) << "its own two blocks with the same content are free";
  EXPECT_EQ(manager.free(0), 5);
  EXPECT_EQ(manager.Allocate({6})->front().front(), b.tables[0][2]) << "the deepest, though the others are older";
}

TEST(PrefixBlocks, WhatFollowsAnEntryThatIsGoneIsFreedAndNotKept) {
  BlockManager manager({4});
  Holder a = Begin(manager, {1, 1}), b = Begin(manager, {1, 1, 2, 2});
  ASSERT_TRUE(Fill(manager, a) && Fill(manager, b));
  ASSERT_TRUE(Fill(manager, b));
  Release(manager, a);
  EXPECT_TRUE(manager.Allocate({2}).ok()) << "the last free one, and the entry that b relies on";
  EXPECT_EQ(Known(manager, {1, 1, 2, 2}), 0u);
  Release(manager, b);
  EXPECT_EQ(manager.evictable(), 0);
  EXPECT_EQ(manager.free(0), 2);
}

TEST(PrefixBlocks, AHashThatTwoContentsShareMixesNothingUp) {
  BlockManager manager({4});
  const std::vector<BlockId> blocks = manager.Allocate({4})->front();
  const std::vector<TokenId> ones = {1, 1}, twos = {2, 2};
  const PrefixRef one = manager.Remember({7, {}, "", ones}, {blocks[0]});
  EXPECT_FALSE(manager.Find({7, {}, "", twos}).exists());
  EXPECT_FALSE(manager.Find({7, {}, "salt", ones}).exists());
  const PrefixRef two = manager.Remember({7, {}, "", twos}, {blocks[1]});
  EXPECT_EQ(manager.Find({7, {}, "", twos}), two);
  EXPECT_FALSE(manager.Find({7, {}, "", ones}).exists()) << "the later one is found";
  const PrefixRef deeper = manager.Remember({7, two, "", ones}, {blocks[2]});
  EXPECT_EQ(manager.Find({7, two, "", ones}), deeper);
  EXPECT_FALSE(manager.Find({7, one, "", ones}).exists()) << "another parent";
  ASSERT_TRUE(manager.Free({{blocks[0]}}, {one}).ok());
  ASSERT_TRUE(manager.Free({{blocks[1], blocks[2]}}, {two, deeper}).ok());
  EXPECT_TRUE(manager.CheckIntegrity().ok()) << manager.CheckIntegrity();
  EXPECT_TRUE(manager.Allocate({3}).ok());
  EXPECT_TRUE(manager.CheckIntegrity().ok()) << manager.CheckIntegrity();
}

// 10,000 random operations on sequences over few tokens, so that most have something in common. Whatever was last
// written into a block is known to the test, which is what a stage would read.
TEST(PrefixBlocks, ThroughRandomOperationsEveryFoundBlockHoldsWhatWasAskedFor) {
  std::mt19937 random(11);
  BlockManager manager({23, 19});
  std::vector<Holder> holders;
  std::map<std::pair<size_t, BlockId>, std::vector<TokenId>> content;  // of a block: the tokens up to its end
  int64_t found = 0, evicted = 0;
  for (int step = 0; step < 10000; ++step) {
    const int32_t evictable_before = manager.evictable();
    switch (random() % 4) {
      case 0: {
        std::vector<TokenId> tokens(2 * (1 + random() % 6));
        for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
        Holder holder = Begin(manager, tokens);
        found += static_cast<int64_t>(holder.chain.size());
        for (size_t i = 0; i < holder.chain.size(); ++i) {
          const std::vector<TokenId> wanted(tokens.begin(),
                                            tokens.begin() + static_cast<int64_t>(i + 1) * kSharedBlockTokens);
          for (size_t group = 0; group < 2; ++group) {
            ASSERT_EQ((content[{group, holder.tables[group][i]}]), wanted) << "step " << step;
          }
        }
        holders.push_back(std::move(holder));
        break;
      }
      case 1:
        if (!holders.empty()) {
          const size_t which = random() % holders.size();
          Release(manager, holders[which]);
          holders.erase(holders.begin() + static_cast<int64_t>(which));
        }
        break;
      default:
        if (!holders.empty()) {
          Holder& holder = holders[random() % holders.size()];
          const size_t i = holder.chain.size();
          if ((i + 1) * kSharedBlockTokens > holder.tokens.size() || !Fill(manager, holder)) break;
          evicted += evictable_before > manager.evictable() ? 1 : 0;
          for (size_t group = 0; group < 2; ++group) {
            content[{group, holder.tables[group][i]}] = {
                holder.tokens.begin(), holder.tokens.begin() + static_cast<int64_t>(i + 1) * kSharedBlockTokens};
          }
        }
    }
    ASSERT_TRUE(manager.CheckIntegrity().ok()) << "step " << step << ": " << manager.CheckIntegrity();
    std::vector<std::vector<int32_t>> references = {std::vector<int32_t>(23), std::vector<int32_t>(19)};
    for (const Holder& holder : holders) {
      for (size_t group = 0; group < 2; ++group) {
        for (const BlockId block : holder.tables[group]) ++references[group][block];
      }
    }
    for (size_t group = 0; group < 2; ++group) {
      for (BlockId block = 0; block < manager.total(group); ++block) {
        ASSERT_EQ(manager.references(group, block), references[group][block]) << "step " << step;
      }
    }
  }
  EXPECT_GT(found, 1000);
  EXPECT_GT(evicted, 300);
}

}  // namespace
}  // namespace stagecoach
