#ifndef STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_

// Who owns which KV block of which block group. One set of ids is valid on every stage: each has a pool with the same
// number of blocks for every group. A block is referenced by one sequence or more, or free, or evictable: a full one
// whose content the prefix cache knows, and which nobody references. Evictable blocks are given away when none is free,
// those first that were released first, and of one sequence the deepest first. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"
#include "coordinator/schedule/prefix_index.h"

namespace stagecoach {

class BlockManager {
 public:
  explicit BlockManager(absl::Span<const int32_t> group_blocks);  // [groups], at least one

  // counts[g] blocks of every group g with reference count 1, or none of any: kResourceExhausted with wanted and
  // available numbers.
  absl::StatusOr<BlockLists> Allocate(absl::Span<const int32_t> counts);
  void AddReference(size_t group, BlockId block);  // of an allocated block
  // Drops one reference of each, blocks[g] being of group g; a block without references is free, or evictable.
  // kFailedPrecondition, and nothing freed, when one is not allocated (a double free) or out of range.
  // `chain`: what Remember and Find said of the sequence's blocks from the first on, as far as it was asked.
  absl::Status Free(const BlockLists& blocks, absl::Span<const PrefixRef> chain = {});

  // The prefix cache. An entry has one block in every group, which lie at the same place in a sequence's tables.
  PrefixRef Find(const PrefixKey& key) const { return prefixes_.Find(key); }
  // Adds a reference to the blocks of entries that are there, and returns them.
  BlockLists Share(absl::Span<const PrefixRef> entries);
  // A block (of each group) that a sequence references has been filled: makes it an entry, unless there is one for the
  // same content; then that is returned, and the block stays what it was. None when the parent is gone.
  PrefixRef Remember(const PrefixKey& key, absl::Span<const BlockId> blocks);
  bool Holds(PrefixRef entry) const { return prefixes_.Holds(entry); }
  bool IsEvictable(PrefixRef entry) const { return prefixes_.InTheRow(entry.block); }  // one that is there
  // Grows whenever an entry comes or goes, or becomes or stops being evictable.
  uint64_t version() const { return version_; }

  size_t groups() const { return groups_.size(); }
  int32_t total(size_t group) const { return static_cast<int32_t>(groups_[group].references.size()); }
  int32_t free(size_t group) const { return static_cast<int32_t>(groups_[group].free.size()); }
  int32_t evictable() const { return prefixes_.row(); }  // in every group
  int32_t available(size_t group) const { return free(group) + evictable(); }
  int32_t used(size_t group) const { return total(group) - available(group); }  // referenced
  int32_t references(size_t group, BlockId block) const { return groups_[group].references[block]; }

  // In every group: free + evictable + referenced == total, no block twice on the free list, none free or evictable
  // with references; the prefix cache's chains are consistent. Looks at every block: for tests.
  absl::Status CheckIntegrity() const;

 private:
  struct Group {
    std::vector<int32_t> references;  // [blocks]
    std::vector<bool> remembered;     // [blocks]: in an entry
    std::vector<BlockId> free;        // a stack: the block freed last is used first, its memory is warm
  };
  absl::Status DropReferences(size_t group, const std::vector<BlockId>& blocks, std::vector<BlockId>& without_owner);
  void ReleaseChain(absl::Span<const PrefixRef> chain);
  void Forget(BlockId entry);
  absl::Status CheckGroup(size_t group) const;

  std::vector<Group> groups_;
  PrefixIndex prefixes_;
  uint64_t version_ = 1;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_
