#include "stage_worker/kv/kv_pool.h"

#include <cstring>
#include <limits>
#include <set>
#include <string>

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

KvPoolShape SmallShape() {
  KvPoolShape shape;
  shape.layers = 3;
  shape.blocks = 5;
  shape.block_tokens = 48;
  shape.kv_heads = 2;
  shape.head_dim = 10;
  shape.type = KvType::kF16;
  return shape;
}

TEST(KvPool, GivesEveryTileMemoryOfItsOwn) {
  absl::StatusOr<KvPool> pool = KvPool::Create(SmallShape());
  ASSERT_TRUE(pool.ok());
  const size_t tile_bytes = 16 * 10 * 2;
  EXPECT_EQ(pool->bytes(), 3u * 5 * 2 * 3 * 2 * tile_bytes);
  std::set<uint8_t*> tiles;
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (BlockId block = 0; block < 5; ++block) {
      for (int64_t head = 0; head < 2; ++head) {
        for (int32_t tile = 0; tile < 3; ++tile) {
          tiles.insert(pool->KTile(layer, block, head, tile));
          tiles.insert(pool->VTile(layer, block, head, tile));
        }
      }
    }
  }
  EXPECT_EQ(tiles.size(), 3u * 5 * 2 * 3 * 2);
  uint8_t* previous = nullptr;
  for (uint8_t* tile : tiles) {
    if (previous != nullptr) {
      EXPECT_GE(tile, previous + tile_bytes);
    }
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tile) % 64, 0u);
    previous = tile;
    std::memset(tile, 1, tile_bytes);  // the sanitizer sees a tile outside of the pool
  }
}

TEST(KvPool, SizesTilesByTheStoredType) {
  KvPoolShape shape = SmallShape();
  const size_t f16_bytes = KvPool::Create(shape)->bytes();
  shape.type = KvType::kF32;
  EXPECT_EQ(KvPool::Create(shape)->bytes(), 2 * f16_bytes);
}

TEST(KvPool, KeepsAScaleForEachGroupOfEightBitElements) {
  KvPoolShape shape = SmallShape();
  shape.type = KvType::kQ8_0;
  shape.head_dim = 64;
  EXPECT_EQ(KvPool::Create(shape)->bytes(), 3u * 5 * 2 * 48 * 2 * (64 + 2 * 4));
  shape.head_dim = 80;
  EXPECT_THAT(KvPool::Create(shape).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("heads have 80")));
}

TEST(KvPool, MayHaveKeysAlone) {
  KvPoolShape shape = SmallShape();
  const size_t both_bytes = KvPool::Create(shape)->bytes();
  shape.values = false;
  KvPool pool = KvPool::Create(shape).value();
  EXPECT_EQ(2 * pool.bytes(), both_bytes);
  EXPECT_EQ(pool.KTile(0, 0, 1, 0), pool.KTile(0, 0, 0, 2) + 16 * 10 * 2);
  std::memset(pool.KTile(2, 4, 1, 2), 1, 16 * 10 * 2);  // the last
}

TEST(KvPool, CostsNothingBeforeItIsUsed) {
  KvPoolShape shape = SmallShape();
  shape.blocks = 1 << 24;  // 184 GB, more than any test machine has to spare
  KvPool pool = KvPool::Create(shape).value();
  uint8_t* tile = pool.VTile(2, shape.blocks - 1, 1, 2);
  tile[0] = 7;
  EXPECT_EQ(pool.VTile(2, shape.blocks - 1, 1, 2)[0], 7);
}

TEST(KvPool, RefusesShapesOutOfRange) {
  KvPoolShape shape = SmallShape();
  shape.block_tokens = 24;
  EXPECT_EQ(KvPool::Create(shape).status().code(), absl::StatusCode::kInvalidArgument);
  shape = SmallShape();
  shape.blocks = 0;
  EXPECT_EQ(KvPool::Create(shape).status().code(), absl::StatusCode::kInvalidArgument);
  shape = SmallShape();
  shape.layers = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(std::string(KvPool::Create(shape).status().message()), HasSubstr("overflows"));
  shape.layers = int64_t{1} << 40;
  EXPECT_EQ(KvPool::Create(shape).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace stagecoach
