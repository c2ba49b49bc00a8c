#include "stage_worker/kv/kv_pool.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {

absl::StatusOr<KvPool> KvPool::Create(const KvPoolShape& shape) {
  if (shape.layers < 1 || shape.blocks < 1 || shape.kv_heads < 1 || shape.head_dim < 2 || shape.head_dim % 2 != 0 ||
      shape.block_tokens < kTilePositions || shape.block_tokens % kTilePositions != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "KV pool of ", shape.layers, " layers, ", shape.blocks, " blocks of ", shape.block_tokens, " tokens, ",
        shape.kv_heads, " heads of ", shape.head_dim,
        ": expected at least 1 of each, an even head width and a block size that is a multiple of ", kTilePositions));
  }
  if (shape.type == KvType::kQ8_0 && shape.head_dim % kKvGroup != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the KV type q8_0 keeps one scale per ", kKvGroup,
                                                   " dimensions, but this model's heads have ", shape.head_dim,
                                                   "; use f16, bf16 or f32"));
  }
  KvPool pool;
  pool.shape_ = shape;
  pool.tiles_ = static_cast<size_t>(shape.block_tokens / kTilePositions);
  pool.head_tiles_ = pool.tiles_ * (shape.values ? 2 : 1);
  uint64_t bytes = KvTileBytes(shape.type, kKvGroup) / kKvGroup;  // of one dimension: at most 64
  const int64_t factors[] = {shape.head_dim, static_cast<int64_t>(pool.head_tiles_), shape.kv_heads, shape.blocks,
                             shape.layers};
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(factor), &bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("the size of a KV pool of ", shape.layers, " layers and ",
                                                     shape.blocks, " blocks overflows; lower the number of blocks"));
    }
  }
  pool.tile_bytes_ = KvTileBytes(shape.type, shape.head_dim);
  ASSIGN_OR_RETURN(pool.memory_, PageMemory::Allocate(bytes, "the KV pool"));
  return pool;
}

}  // namespace stagecoach
