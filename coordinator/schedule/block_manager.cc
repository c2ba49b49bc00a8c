#include "coordinator/schedule/block_manager.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace stagecoach {

BlockManager::BlockManager(absl::Span<const int32_t> group_blocks) {
  for (const int32_t blocks : group_blocks) {
    CHECK_GE(blocks, 0);
    Group& group = groups_.emplace_back();
    group.references.assign(blocks, 0);
    group.free.reserve(blocks);
    for (BlockId block = blocks - 1; block >= 0; --block) group.free.push_back(block);
  }
}

absl::StatusOr<BlockLists> BlockManager::Allocate(absl::Span<const int32_t> counts) {
  CHECK_EQ(counts.size(), groups());
  for (size_t g = 0; g < groups(); ++g) {
    CHECK_GE(counts[g], 0);
    if (counts[g] <= free(g)) continue;
    return absl::ResourceExhaustedError(absl::StrCat("wanted ", counts[g], " KV blocks of block group ", g, ", ",
                                                     free(g), " of ", total(g), " are free"));
  }
  BlockLists blocks(groups());
  for (size_t g = 0; g < groups(); ++g) {
    Group& group = groups_[g];
    blocks[g].assign(group.free.rbegin(), group.free.rbegin() + counts[g]);
    group.free.resize(group.free.size() - counts[g]);
    for (const BlockId block : blocks[g]) group.references[block] = 1;
  }
  return blocks;
}

void BlockManager::AddReference(size_t group, BlockId block) {
  CHECK(group < groups() && block >= 0 && block < total(group));
  CHECK_GT(references(group, block), 0);
  ++groups_[group].references[block];
}

absl::Status BlockManager::Free(const BlockLists& blocks) {
  CHECK_EQ(blocks.size(), groups());
  BlockLists without_owner(groups());
  for (size_t g = 0; g < groups(); ++g) {
    absl::Status dropped = DropReferences(g, blocks[g], without_owner[g]);
    if (dropped.ok()) continue;
    for (size_t earlier = 0; earlier < g; ++earlier) {  // all or nothing
      for (const BlockId block : blocks[earlier]) ++groups_[earlier].references[block];
    }
    return dropped;
  }
  for (size_t g = 0; g < groups(); ++g) {
    // From the back: a table that is freed and allocated again comes in its old order.
    groups_[g].free.insert(groups_[g].free.end(), without_owner[g].rbegin(), without_owner[g].rend());
  }
  return absl::OkStatus();
}

// All of them or none. Lists those that have no references any more.
absl::Status BlockManager::DropReferences(size_t group, const std::vector<BlockId>& blocks,
                                          std::vector<BlockId>& without_owner) {
  std::vector<int32_t>& references = groups_[group].references;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const BlockId block = blocks[i];
    const bool known = block >= 0 && block < total(group);
    if (known && references[block] > 0) {
      if (--references[block] == 0) without_owner.push_back(block);
      continue;
    }
    for (size_t j = 0; j < i; ++j) ++references[blocks[j]];
    return absl::FailedPreconditionError(
        known
            ? absl::StrCat("KV block ", block, " of block group ", group, " is freed more often than it was allocated")
            : absl::StrCat("KV block ", block, " does not exist, the pool of block group ", group, " has blocks 0 to ",
                           total(group) - 1));
  }
  return absl::OkStatus();
}

absl::Status BlockManager::CheckIntegrity() const {
  for (size_t g = 0; g < groups(); ++g) RETURN_IF_ERROR(CheckGroup(g));
  return absl::OkStatus();
}

absl::Status BlockManager::CheckGroup(size_t group) const {
  const auto violation = [group](const auto&... detail) {
    return absl::InternalError(absl::StrCat("block group ", group, ": ", detail...));
  };
  std::vector<bool> listed(total(group), false);
  for (const BlockId block : groups_[group].free) {
    if (block < 0 || block >= total(group)) {
      return violation("the free list holds block ", block, " of a pool of ", total(group));
    }
    if (listed[block]) return violation("block ", block, " is twice on the free list");
    if (references(group, block) != 0) {
      return violation("block ", block, " is free with ", references(group, block), " references");
    }
    listed[block] = true;
  }
  for (BlockId block = 0; block < total(group); ++block) {
    if (!listed[block] && references(group, block) <= 0) {
      return violation("block ", block, " is neither free nor referenced (", references(group, block), ")");
    }
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
