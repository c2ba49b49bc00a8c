#ifndef STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_

// Who owns which KV block. One set of ids is valid on every stage: each has a pool with the same number of blocks. Not
// thread-safe.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"

namespace stagecoach {

class BlockManager {
 public:
  explicit BlockManager(int32_t blocks);

  // All `count` blocks with reference count 1, or none: kResourceExhausted with wanted and free numbers.
  absl::StatusOr<std::vector<BlockId>> Allocate(int32_t count);
  void AddReference(BlockId block);  // of an allocated block
  // Drops one reference of each; a block without references is free. kFailedPrecondition, and nothing freed, when one
  // is not allocated (a double free) or out of range.
  absl::Status Free(absl::Span<const BlockId> blocks);

  int32_t total() const { return static_cast<int32_t>(references_.size()); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t used() const { return total() - free(); }
  int32_t references(BlockId block) const { return references_[block]; }

  // free + used == total, no block twice on the free list, none free with references.
  absl::Status CheckIntegrity() const;

 private:
  std::vector<int32_t> references_;  // [blocks]
  std::vector<BlockId> free_;        // a stack: the block freed last is used first, its memory is warm
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_
