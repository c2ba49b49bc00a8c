#include "stage_worker/kv/sequence_table.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace stagecoach {

struct SequenceTable::Pending {
  // Cleared sets of up to 127 keep their memory: steps with fewer sequences and new blocks take none.
  static constexpr size_t kUsualSize = 100;
  explicit Pending(size_t groups) : taken(groups) {
    freed.reserve(kUsualSize);
    extents.reserve(kUsualSize);
    for (absl::flat_hash_set<BlockId>& blocks : taken) blocks.reserve(kUsualSize);
  }

  struct Extent {
    int64_t rows = 0;
    int64_t blocks = 0;  // in each group
  };
  absl::flat_hash_set<SequenceId> freed;
  absl::flat_hash_map<SequenceId, Extent> extents;  // of sequences that this batch opens or adds rows to
  std::vector<absl::flat_hash_set<BlockId>> taken;  // [groups]

  void Clear() {
    freed.clear();
    extents.clear();
    for (absl::flat_hash_set<BlockId>& blocks : taken) blocks.clear();
  }
};

SequenceTable::SequenceTable(int32_t block_tokens, absl::Span<const int32_t> group_blocks, int64_t context)
    : pending_(std::make_unique<Pending>(group_blocks.size())), block_tokens_(block_tokens), context_(context) {
  CHECK_GT(block_tokens, 0);
  CHECK(!group_blocks.empty());
  for (const int32_t blocks : group_blocks)
    groups_.push_back({.owners = std::vector<Owner>(static_cast<size_t>(blocks))});
}

SequenceTable::~SequenceTable() = default;

absl::Status SequenceTable::Apply(const MicroBatch& batch) {
  RETURN_IF_ERROR(Validate(batch));
  Commit(batch);
  return absl::OkStatus();
}

absl::Status SequenceTable::Validate(const MicroBatch& batch) const {
  pending_->Clear();
  RETURN_IF_ERROR(ValidateFreesAndOpens(batch, pending_.get()));
  for (const SequenceSlice& slice : batch.slices) RETURN_IF_ERROR(ValidateSlice(slice, pending_.get()));
  return absl::OkStatus();
}

absl::Status SequenceTable::ValidateFreesAndOpens(const MicroBatch& batch, Pending* pending) const {
  for (const SequenceId sequence : batch.free) {
    if (!entries_.contains(sequence)) {
      return absl::InvalidArgumentError(
          absl::StrCat("micro-batch ", batch.number, " frees sequence ", sequence, ", which is not open here"));
    }
    if (!pending->freed.insert(sequence).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("micro-batch ", batch.number, " frees sequence ", sequence, " twice"));
    }
  }
  for (const OpenSequence& open : batch.open) {
    const bool known = entries_.contains(open.sequence) && !pending->freed.contains(open.sequence);
    if (known || !pending->extents.try_emplace(open.sequence).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("micro-batch ", batch.number, " opens sequence ", open.sequence, ", which is open already"));
    }
  }
  return absl::OkStatus();
}

absl::Status SequenceTable::ValidateSlice(const SequenceSlice& slice, Pending* pending) const {
  auto extent = pending->extents.find(slice.sequence);
  if (extent == pending->extents.end()) {
    const auto entry = entries_.find(slice.sequence);
    if (entry == entries_.end() || pending->freed.contains(slice.sequence)) {
      return absl::InvalidArgumentError(absl::StrCat("rows for sequence ", slice.sequence, ", which is not open here"));
    }
    const int64_t blocks = static_cast<int64_t>(entry->second.tables.front().size());
    extent = pending->extents.emplace(slice.sequence, Pending::Extent{entry->second.rows, blocks}).first;
  }
  if (slice.count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a slice of sequence ", slice.sequence, " has ", slice.count, " rows, expected at least 1"));
  }
  if (slice.start != extent->second.rows) {
    return absl::InvalidArgumentError(absl::StrCat("a slice of sequence ", slice.sequence, " starts at position ",
                                                   slice.start, ", expected ", extent->second.rows));
  }
  RETURN_IF_ERROR(ValidateNewBlocks(slice, pending));
  if (!slice.new_blocks.empty()) extent->second.blocks += static_cast<int64_t>(slice.new_blocks.front().size());
  extent->second.rows += slice.count;
  if (extent->second.rows > context_) {
    return absl::InvalidArgumentError(absl::StrCat("sequence ", slice.sequence, " would have ", extent->second.rows,
                                                   " rows, the context is ", context_));
  }
  if (extent->second.rows > extent->second.blocks * block_tokens_) {
    return absl::InvalidArgumentError(absl::StrCat("sequence ", slice.sequence, " would have ", extent->second.rows,
                                                   " rows in ", extent->second.blocks, " blocks of ", block_tokens_,
                                                   " tokens"));
  }
  return absl::OkStatus();
}

absl::Status SequenceTable::ValidateNewBlocks(const SequenceSlice& slice, Pending* pending) const {
  if (slice.new_blocks.empty()) return absl::OkStatus();
  if (slice.new_blocks.size() != groups_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("sequence ", slice.sequence, " is given blocks of ",
                                                   slice.new_blocks.size(), " block groups, expected ",
                                                   groups_.size()));
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    const std::vector<BlockId>& blocks = slice.new_blocks[group];
    if (blocks.size() != slice.new_blocks.front().size()) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", slice.sequence, " is given ", blocks.size(),
                                                     " blocks of block group ", group, ", expected ",
                                                     slice.new_blocks.front().size(), " as of group 0"));
    }
    RETURN_IF_ERROR(ValidateBlocks(slice.sequence, group, blocks, pending));
  }
  return absl::OkStatus();
}

absl::Status SequenceTable::ValidateBlocks(SequenceId sequence, size_t group, const std::vector<BlockId>& blocks,
                                           Pending* pending) const {
  const std::vector<Owner>& owners = groups_[group].owners;
  for (const BlockId block : blocks) {
    const auto refused = [&](const auto&... why) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequence ", sequence, " is given block ", block, " of block group ", group, ", ", why...));
    };
    if (block < 0 || static_cast<size_t>(block) >= owners.size()) {
      return refused("the pool has blocks 0 to ", owners.size() - 1);
    }
    const Owner& owner = owners[static_cast<size_t>(block)];
    if (owner.used && !pending->freed.contains(owner.sequence)) {
      return refused("which sequence ", owner.sequence, " uses");
    }
    if (!pending->taken[group].insert(block).second) return refused("which this micro-batch gave away already");
  }
  return absl::OkStatus();
}

void SequenceTable::Commit(const MicroBatch& batch) {
  for (const SequenceId sequence : batch.free) {
    const auto entry = entries_.find(sequence);
    CHECK(entry != entries_.end());
    for (size_t group = 0; group < groups_.size(); ++group) {
      const std::vector<BlockId>& table = entry->second.tables[group];
      for (const BlockId block : table) groups_[group].owners[static_cast<size_t>(block)] = Owner();
      groups_[group].in_use -= static_cast<int32_t>(table.size());
    }
    entries_.erase(entry);
  }
  for (const OpenSequence& open : batch.open) {
    BlockLists& tables = entries_.try_emplace(open.sequence).first->second.tables;
    tables.resize(groups_.size());
    for (size_t group = 0; group < groups_.size(); ++group) {
      const int64_t blocks = static_cast<int64_t>(groups_[group].owners.size());
      const int64_t most = std::min((context_ + block_tokens_ - 1) / block_tokens_, blocks);
      tables[group].reserve(static_cast<size_t>(most));
    }
  }
  for (const SequenceSlice& slice : batch.slices) {
    Entry& entry = entries_.at(slice.sequence);
    for (size_t group = 0; group < slice.new_blocks.size(); ++group) {
      const std::vector<BlockId>& blocks = slice.new_blocks[group];
      for (const BlockId block : blocks)
        groups_[group].owners[static_cast<size_t>(block)] = Owner{true, slice.sequence};
      entry.tables[group].insert(entry.tables[group].end(), blocks.begin(), blocks.end());
      groups_[group].in_use += static_cast<int32_t>(blocks.size());
    }
    entry.rows += slice.count;
  }
}

const SequenceTable::Entry* SequenceTable::Find(SequenceId sequence) const {
  const auto entry = entries_.find(sequence);
  return entry == entries_.end() ? nullptr : &entry->second;
}

}  // namespace stagecoach
