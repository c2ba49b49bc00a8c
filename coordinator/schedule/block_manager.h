#ifndef STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_

// Who owns which KV block of which block group. One set of ids is valid on every stage: each has a pool with the same
// number of blocks for every group. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"

namespace stagecoach {

class BlockManager {
 public:
  explicit BlockManager(absl::Span<const int32_t> group_blocks);  // [groups]

  // counts[g] blocks of every group g with reference count 1, or none of any: kResourceExhausted with wanted and free
  // numbers.
  absl::StatusOr<BlockLists> Allocate(absl::Span<const int32_t> counts);
  void AddReference(size_t group, BlockId block);  // of an allocated block
  // Drops one reference of each, blocks[g] being of group g; a block without references is free. kFailedPrecondition,
  // and nothing freed, when one is not allocated (a double free) or out of range.
  absl::Status Free(const BlockLists& blocks);

  size_t groups() const { return groups_.size(); }
  int32_t total(size_t group) const { return static_cast<int32_t>(groups_[group].references.size()); }
  int32_t free(size_t group) const { return static_cast<int32_t>(groups_[group].free.size()); }
  int32_t used(size_t group) const { return total(group) - free(group); }
  int32_t references(size_t group, BlockId block) const { return groups_[group].references[block]; }

  // In every group: free + used == total, no block twice on the free list, none free with references.
  absl::Status CheckIntegrity() const;

 private:
  struct Group {
    std::vector<int32_t> references;  // [blocks]
    std::vector<BlockId> free;        // a stack: the block freed last is used first, its memory is warm
  };
  absl::Status DropReferences(size_t group, const std::vector<BlockId>& blocks, std::vector<BlockId>& without_owner);
  absl::Status CheckGroup(size_t group) const;

  std::vector<Group> groups_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_
