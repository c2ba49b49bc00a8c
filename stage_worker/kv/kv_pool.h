#ifndef STAGECOACH_STAGE_WORKER_KV_KV_POOL_H_
#define STAGECOACH_STAGE_WORKER_KV_KV_POOL_H_

// The memory behind the block tables: K and V, or K alone, of `blocks` blocks for every layer of this stage, in the
// attention kernel's tiles. The coordinator owns the blocks; see SequenceTable.

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "stage_worker/exec/page_memory.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

struct KvPoolShape {
  int64_t layers = 0;  // of this stage
  int32_t blocks = 0;
  int32_t block_tokens = 0;  // a multiple of kTilePositions
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  KvType type = KvType::kF16;
  bool values = true;  // whether there is V; in latent attention it is the beginning of K
};

// Neither zeroed nor touched before use: no position is read before it was written. Threads may use different tiles.
class KvPool {
 public:
  // kInvalidArgument for a shape out of range (block_tokens not a multiple of 16, a count below 1, a size that
  // overflows, heads that the type cannot store), kResourceExhausted when the system has no such address range.
  static absl::StatusOr<KvPool> Create(const KvPoolShape& shape);

  // Tile `tile` (positions [16 tile, 16 tile + 16) of the block) of one KV head; its layout: KvTileBytes.
  uint8_t* KTile(int64_t layer, BlockId block, int64_t kv_head, int32_t tile) const {
    return memory_.data() + HeadOffset(layer, block, kv_head) + tile * tile_bytes_;
  }
  // Only with values.
  uint8_t* VTile(int64_t layer, BlockId block, int64_t kv_head, int32_t tile) const {
    return KTile(layer, block, kv_head, tile) + tiles_ * tile_bytes_;
  }

  const KvPoolShape& shape() const { return shape_; }
  size_t bytes() const { return memory_.size(); }

 private:
  // [layer][block][kv head]{ K tiles, V tiles if there are values }
  size_t HeadOffset(int64_t layer, BlockId block, int64_t kv_head) const {
    const size_t head = (static_cast<size_t>(layer) * shape_.blocks + block) * shape_.kv_heads + kv_head;
    return head * head_tiles_ * tile_bytes_;
  }

  KvPoolShape shape_;
  size_t tiles_ = 0;       // of one block and head, K or V
  size_t head_tiles_ = 0;  // K and V
  size_t tile_bytes_ = 0;
  PageMemory memory_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KV_KV_POOL_H_
