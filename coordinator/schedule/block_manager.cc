#include "coordinator/schedule/block_manager.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagecoach {

BlockManager::BlockManager(int32_t blocks) {
  CHECK_GE(blocks, 0);
  references_.assign(blocks, 0);
  free_.reserve(blocks);
  for (BlockId block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

absl::StatusOr<std::vector<BlockId>> BlockManager::Allocate(int32_t count) {
  CHECK_GE(count, 0);
  if (count > free()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("wanted ", count, " KV blocks, ", free(), " of ", total(), " are free"));
  }
  std::vector<BlockId> blocks(free_.rbegin(), free_.rbegin() + count);
  free_.resize(free_.size() - count);
  for (const BlockId block : blocks) references_[block] = 1;
  return blocks;
}

void BlockManager::AddReference(BlockId block) {
  CHECK(block >= 0 && block < total());
  CHECK_GT(references_[block], 0);
  ++references_[block];
}

absl::Status BlockManager::Free(absl::Span<const BlockId> blocks) {
  std::vector<BlockId> without_owner;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const BlockId block = blocks[i];
    const bool known = block >= 0 && block < total();
    if (known && references_[block] > 0) {
      if (--references_[block] == 0) without_owner.push_back(block);
      continue;
    }
    for (size_t j = 0; j < i; ++j) ++references_[blocks[j]];  // all or nothing
    return absl::FailedPreconditionError(
        known ? absl::StrCat("KV block ", block, " is freed more often than it was allocated")
              : absl::StrCat("KV block ", block, " does not exist, the pool has blocks 0 to ", total() - 1));
  }
  // From the back: a table that is freed and allocated again comes in its old order.
  free_.insert(free_.end(), without_owner.rbegin(), without_owner.rend());
  return absl::OkStatus();
}

absl::Status BlockManager::CheckIntegrity() const {
  std::vector<bool> listed(references_.size(), false);
  for (const BlockId block : free_) {
    if (block < 0 || block >= total()) {
      return absl::InternalError(absl::StrCat("free list holds block ", block, " of a pool of ", total()));
    }
    if (listed[block]) return absl::InternalError(absl::StrCat("block ", block, " is twice on the free list"));
    if (references_[block] != 0) {
      return absl::InternalError(absl::StrCat("block ", block, " is free with ", references_[block], " references"));
    }
    listed[block] = true;
  }
  for (BlockId block = 0; block < total(); ++block) {
    if (!listed[block] && references_[block] <= 0) {
      return absl::InternalError(
          absl::StrCat("block ", block, " is neither free nor referenced (", references_[block], ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
