#include "coordinator/schedule/block_manager.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

TEST(BlockManager, AllocatesAllOrNothing) {
  BlockManager manager({5});
  ASSERT_EQ(manager.Allocate({3})->front().size(), 3u);
  const auto refused = manager.Allocate({3});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("wanted 3 KV blocks of block group 0, 2 of 5 are free"));
  EXPECT_EQ(manager.free(0), 2);
  EXPECT_EQ(manager.used(0), 3);
  EXPECT_TRUE(manager.Allocate({2}).ok());
  EXPECT_TRUE(manager.Allocate({0})->front().empty());
  EXPECT_TRUE(manager.CheckIntegrity().ok());
}

TEST(BlockManager, GivesEveryBlockOnce) {
  BlockManager manager({64});
  std::vector<BlockId> blocks = manager.Allocate({40})->front();
  const std::vector<BlockId> more = manager.Allocate({24})->front();
  blocks.insert(blocks.end(), more.begin(), more.end());
  std::sort(blocks.begin(), blocks.end());
  for (BlockId i = 0; i < 64; ++i) EXPECT_EQ(blocks[i], i);
}

TEST(BlockManager, CatchesADoubleFreeAndFreesNothingThen) {
  BlockManager manager({4});
  const std::vector<BlockId> blocks = manager.Allocate({3})->front();
  ASSERT_TRUE(manager.Free({{blocks[0]}}).ok());
  const absl::Status again = manager.Free({{blocks[1], blocks[0], blocks[2]}});
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(again.message()), HasSubstr("freed more often"));
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
    const absl::Status status = manager.Free({{blocks[0], wrong}});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("does not exist"));
    EXPECT_EQ(manager.references(0, blocks[0]), 1);
  }
}

TEST(BlockManager, AReferencedBlockStaysUntilItsLastReferenceGoes) {
  BlockManager manager({2});
  const BlockId block = manager.Allocate({1})->front().front();
  manager.AddReference(0, block);
  EXPECT_EQ(manager.references(0, block), 2);
  ASSERT_TRUE(manager.Free({{block}}).ok());
  EXPECT_EQ(manager.used(0), 1);
  ASSERT_TRUE(manager.Free({{block}}).ok());
  EXPECT_EQ(manager.used(0), 0);
  EXPECT_TRUE(manager.CheckIntegrity().ok());
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
  EXPECT_THAT(std::string(manager.Allocate({1, 2}).status().message()),
              HasSubstr("wanted 2 KV blocks of block group 1, 1 of 3 are free"));
  EXPECT_EQ(manager.free(0), 1);
  const absl::Status wrong = manager.Free({{0, 1}, {2}});
  EXPECT_EQ(wrong.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("block 2 of block group 1 is freed more often"));
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

}  // namespace
}  // namespace stagecoach
