#include "stage_worker/kv/sequence_table.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/step/step.h"

namespace stagecoach {
namespace {

absl::Status Refused(const auto&... why) { return absl::InvalidArgumentError(absl::StrCat(why...)); }

}  // namespace

struct SequenceTable::Extent {
  int64_t rows = 0;
  int64_t first_row = 0;                     // of the batch's slices: none of their rows sees less than this one
  int64_t blocks = 0;                        // in each group
  const Entry* entry = nullptr;              // of a sequence that was open before,
  const OpenSequence* open = nullptr;        // or of one that the batch opens
  absl::InlinedVector<int32_t, 4> released;  // [groups]

  // At a place that is not released: the block that was there before the batch's slices; kNoBlock: none.
  BlockId BlockAt(size_t group, int64_t place) const {
    if (entry != nullptr) {
      const std::vector<BlockId>& table = entry->tables[group];
      return place < static_cast<int64_t>(table.size()) ? table[static_cast<size_t>(place)] : kNoBlock;
    }
    if (open->shared_blocks.empty()) return kNoBlock;
    const std::vector<BlockId>& shared = open->shared_blocks[group];
    const int64_t at = place - first_shared[group];
    return at < static_cast<int64_t>(shared.size()) ? shared[static_cast<size_t>(at)] : kNoBlock;
  }
  absl::InlinedVector<int32_t, 4> first_shared;  // [groups] places that the open left empty
};

struct SequenceTable::Pending {
  // Cleared sets of up to 127 keep their memory: steps with fewer sequences and new blocks take none.
  static constexpr size_t kUsualSize = 100;
  explicit Pending(absl::Span<const int32_t> group_blocks)
      : taken(group_blocks.size()), change(group_blocks.size()), changed(group_blocks.size()) {
    freed.reserve(kUsualSize);
    extents.reserve(kUsualSize);
    for (absl::flat_hash_set<BlockId>& blocks : taken) blocks.reserve(kUsualSize);
    for (size_t group = 0; group < group_blocks.size(); ++group) {
      change[group].assign(static_cast<size_t>(group_blocks[group]), 0);
      changed[group].reserve(kUsualSize);
    }
  }

  absl::flat_hash_set<SequenceId> freed;
  absl::flat_hash_map<SequenceId, Extent> extents;  // of sequences that this batch opens or adds rows to
  std::vector<absl::flat_hash_set<BlockId>> taken;  // [groups]
  std::vector<std::vector<int32_t>> change;         // [groups][blocks] of references, by frees and opens
  std::vector<std::vector<BlockId>> changed;        // [groups] whose change may not be 0

  void Change(size_t group, BlockId block, int32_t by) {
    change[group][static_cast<size_t>(block)] += by;
    changed[group].push_back(block);
  }

  void Clear() {
    freed.clear();
    extents.clear();
    for (absl::flat_hash_set<BlockId>& blocks : taken) blocks.clear();
    for (size_t group = 0; group < changed.size(); ++group) {
      for (const BlockId block : changed[group]) change[group][static_cast<size_t>(block)] = 0;
      changed[group].clear();
    }
  }
};

SequenceTable::SequenceTable(int32_t block_tokens, absl::Span<const int32_t> group_blocks, int64_t context,
                             absl::Span<const int64_t> group_windows, int32_t most_guesses, bool cuts_history)
    : pending_(std::make_unique<Pending>(group_blocks)),
      block_tokens_(block_tokens),
      context_(context),
      windows_(group_windows.begin(), group_windows.end()),
      most_guesses_(most_guesses),
      cuts_history_(cuts_history) {
  CHECK_GT(block_tokens, 0);
  CHECK(!group_blocks.empty());
  for (const int32_t blocks : group_blocks)
    groups_.push_back({.blocks = std::vector<Block>(static_cast<size_t>(blocks))});
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
    const auto entry = entries_.find(sequence);
    if (entry == entries_.end()) {
      return Refused("micro-batch ", batch.number, " frees sequence ", sequence, ", which is not open here");
    }
    if (!pending->freed.insert(sequence).second) {
      return Refused("micro-batch ", batch.number, " frees sequence ", sequence, " twice");
    }
    for (size_t group = 0; group < groups_.size(); ++group) {
      for (const BlockId block : entry->second.tables[group]) {
        if (block != kNoBlock) pending->Change(group, block, -1);
      }
    }
  }
  for (const OpenSequence& open : batch.open) {
    const bool known = entries_.contains(open.sequence) && !pending->freed.contains(open.sequence);
    if (known || !pending->extents.try_emplace(open.sequence).second) {
      return Refused("micro-batch ", batch.number, " opens sequence ", open.sequence, ", which is open already");
    }
    RETURN_IF_ERROR(ValidateShared(open, pending));
  }
  return absl::OkStatus();
}

absl::Status SequenceTable::ValidateShared(const OpenSequence& open, Pending* pending) const {
  const auto refused = [&open](const auto&... why) {
    return Refused("sequence ", open.sequence, " is opened with ", why...);
  };
  const size_t groups = open.shared_rows == 0 ? 0 : groups_.size();
  if (open.shared_blocks.size() != groups) {
    return refused("shared blocks of ", open.shared_blocks.size(), " block groups, expected ", groups);
  }
  const int64_t count = open.shared_rows / block_tokens_;
  if (open.shared_rows < 0 || open.shared_rows % block_tokens_ != 0 || open.shared_rows >= context_) {
    return refused(open.shared_rows, " shared rows, expected a multiple of ", block_tokens_, " below ", context_);
  }
  Extent& extent = pending->extents[open.sequence];
  extent.rows = extent.first_row = open.shared_rows;
  extent.blocks = count;
  extent.open = &open;
  extent.released.assign(groups_.size(), 0);
  for (size_t group = 0; group < groups; ++group) {
    const std::vector<BlockId>& blocks = open.shared_blocks[group];
    const int64_t first = count - static_cast<int64_t>(blocks.size());
    const int64_t unseen = FirstPlaceSeen(open.shared_rows, WindowOf(windows_, group), block_tokens_);
    if (first < 0 || first > unseen) {
      return refused(blocks.size(), " shared blocks of block group ", group, ", expected ",
                     unseen > 0 ? absl::StrCat(count - unseen, " to ") : "", count);
    }
    extent.released[group] = static_cast<int32_t>(first);
    for (int64_t place = first; place < count; ++place) {
      const BlockId block = blocks[static_cast<size_t>(place - first)];
      const std::vector<Block>& pool = groups_[group].blocks;
      if (block < 0 || static_cast<size_t>(block) >= pool.size()) {
        return refused("shared block ", block, " of block group ", group, ", the pool has blocks 0 to ",
                       pool.size() - 1);
      }
      const int32_t full_at = pool[static_cast<size_t>(block)].full_at;
      if (full_at < 0) return refused("shared block ", block, " of block group ", group, ", which is not full");
      if (full_at != place) {
        return refused("shared block ", block, " of block group ", group, " at place ", place,
                       " of its table, but it was filled at place ", full_at);
      }
      pending->Change(group, block, 1);
    }
  }
  extent.first_shared = extent.released;
  return absl::OkStatus();
}

absl::Status SequenceTable::ValidateSlice(const SequenceSlice& slice, Pending* pending) const {
  auto extent = pending->extents.find(slice.sequence);
  const bool is_first = extent == pending->extents.end();  // of a sequence that was open before
  if (is_first) {
    const auto entry = entries_.find(slice.sequence);
    if (entry == entries_.end() || pending->freed.contains(slice.sequence)) {
      return Refused("rows for sequence ", slice.sequence, ", which is not open here");
    }
    extent = pending->extents.try_emplace(slice.sequence).first;
    extent->second.rows = extent->second.first_row = entry->second.rows;
    extent->second.blocks = static_cast<int64_t>(entry->second.tables.front().size());
    extent->second.entry = &entry->second;
    extent->second.released.assign(entry->second.released.begin(), entry->second.released.end());
  }
  if (slice.count < 1) {
    return Refused("a slice of sequence ", slice.sequence, " has ", slice.count, " rows, expected at least 1");
  }
  RETURN_IF_ERROR(ValidateStart(slice, is_first, &extent->second, *pending));
  RETURN_IF_ERROR(ValidateReleases(slice, &extent->second, pending));
  RETURN_IF_ERROR(ValidateNewBlocks(slice, pending));
  const int64_t had = extent->second.blocks;
  if (!slice.new_blocks.empty()) extent->second.blocks += static_cast<int64_t>(slice.new_blocks.front().size());
  extent->second.rows += slice.count;
  if (extent->second.rows > context_) {
    return Refused("sequence ", slice.sequence, " would have ", extent->second.rows, " rows, the context is ",
                   context_);
  }
  const int64_t blocks = std::max(had, (extent->second.rows + block_tokens_ - 1) / block_tokens_);
  if (extent->second.blocks != blocks) {
    return Refused("sequence ", slice.sequence, " would have ", extent->second.rows, " rows in ", extent->second.blocks,
                   " blocks of ", block_tokens_, " tokens, expected ", blocks, " blocks");
  }
  return absl::OkStatus();
}

// is_first: of this sequence in the micro-batch, which does not open it.
absl::Status SequenceTable::ValidateStart(const SequenceSlice& slice, bool is_first, Extent* extent,
                                          const Pending& pending) const {
  const bool is_one = is_first && slice.count == 1 && slice.sample;
  if (slice.guess && !(is_one && most_guesses_ > 0)) {
    return Refused("a guess of sequence ", slice.sequence, " at position ", slice.start, " has ", slice.count, " rows",
                   slice.sample ? "" : " and is not sampled",
                   most_guesses_ == 0 ? ", and the job has no guesses"
                                      : ", expected one sampled row alone, of a sequence that was open before");
  }
  const int64_t least = extent->rows - (is_one && !slice.guess ? extent->entry->guesses : 0);
  if (slice.start < least || slice.start > extent->rows) {
    return Refused("a slice of sequence ", slice.sequence, " starts at position ", slice.start, ", expected ",
                   least < extent->rows ? absl::StrCat(least, " to ") : "", extent->rows);
  }
  if (slice.start == extent->rows) return absl::OkStatus();
  RETURN_IF_ERROR(ValidateRewind(slice, *extent, pending));
  extent->rows = extent->first_row = slice.start;
  return absl::OkStatus();
}

absl::Status SequenceTable::ValidateRewind(const SequenceSlice& slice, const Extent& extent,
                                           const Pending& pending) const {
  for (size_t group = 0; group < groups_.size(); ++group) {
    const auto refused = [&](const auto&... why) {
      return Refused("a slice of sequence ", slice.sequence, " goes back to position ", slice.start, ", ", why...);
    };
    const int64_t seen = FirstPlaceSeen(slice.start, WindowOf(windows_, group), block_tokens_);
    if (extent.released[group] > seen) {
      return refused("which sees place ", seen, " of block group ", group, ", but ", extent.released[group],
                     " places were released");
    }
    for (int64_t place = slice.start / block_tokens_; place * block_tokens_ < extent.rows; ++place) {
      const auto block = static_cast<size_t>(extent.BlockAt(group, place));
      if (groups_[group].blocks[block].references + pending.change[group][block] == 1) continue;
      return refused("but another sequence has its block ", block, " of block group ", group);
    }
  }
  return absl::OkStatus();
}

absl::Status SequenceTable::ValidateReleases(const SequenceSlice& slice, Extent* extent, Pending* pending) const {
  if (slice.released_blocks.empty()) return absl::OkStatus();
  if (absl::Status status = CheckReleasedBlocks(slice, groups_.size(), windows_, block_tokens_); !status.ok()) {
    return Refused("a slice of sequence ", slice.sequence, ": ", status.message());
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    int32_t& released = extent->released[group];
    const auto refused = [&](const auto&... why) {
      return Refused("a slice of sequence ", slice.sequence, " has ", slice.released_blocks[group],
                     " released places of block group ", group, ", ", why...);
    };
    if (slice.released_blocks[group] < released) return refused("which had ", released, " already");
    const int64_t unseen = FirstPlaceSeen(extent->first_row, WindowOf(windows_, group), block_tokens_);
    if (slice.released_blocks[group] > unseen) {
      return refused("expected at most ", unseen, ": rows of this micro-batch see the others");
    }
    for (; released < slice.released_blocks[group]; ++released) {
      const BlockId block = extent->BlockAt(group, released);
      if (block == kNoBlock) return refused("but this micro-batch brings the block of place ", released);
      pending->Change(group, block, -1);
    }
  }
  return absl::OkStatus();
}

absl::Status SequenceTable::ValidateNewBlocks(const SequenceSlice& slice, Pending* pending) const {
  if (slice.new_blocks.empty()) return absl::OkStatus();
  if (slice.new_blocks.size() != groups_.size()) {
    return Refused("sequence ", slice.sequence, " is given blocks of ", slice.new_blocks.size(),
                   " block groups, expected ", groups_.size());
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    const std::vector<BlockId>& blocks = slice.new_blocks[group];
    if (blocks.size() != slice.new_blocks.front().size()) {
      return Refused("sequence ", slice.sequence, " is given ", blocks.size(), " blocks of block group ", group,
                     ", expected ", slice.new_blocks.front().size(), " as of group 0");
    }
    RETURN_IF_ERROR(ValidateBlocks(slice.sequence, group, blocks, pending));
  }
  return absl::OkStatus();
}

absl::Status SequenceTable::ValidateBlocks(SequenceId sequence, size_t group, const std::vector<BlockId>& blocks,
                                           Pending* pending) const {
  const std::vector<Block>& pool = groups_[group].blocks;
  for (const BlockId block : blocks) {
    const auto refused = [&](const auto&... why) {
      return Refused("sequence ", sequence, " is given block ", block, " of block group ", group, ", ", why...);
    };
    if (block < 0 || static_cast<size_t>(block) >= pool.size()) {
      return refused("the pool has blocks 0 to ", pool.size() - 1);
    }
    const auto at = static_cast<size_t>(block);
    if (const int32_t users = pool[at].references + pending->change[group][at]; users > 1) {
      return refused("which ", users, " sequences use");
    } else if (users == 1) {
      const std::optional<SequenceId> user = UserOf(group, block, *pending);
      return user.has_value() ? refused("which sequence ", *user, " uses") : refused("which this micro-batch shares");
    }
    if (!pending->taken[group].insert(block).second) return refused("which this micro-batch gave away already");
  }
  return absl::OkStatus();
}

// The one sequence that has the block; none: one that the micro-batch opens. Looks at all of them: for messages.
std::optional<SequenceId> SequenceTable::UserOf(size_t group, BlockId block, const Pending& pending) const {
  for (const auto& [sequence, entry] : entries_) {
    const std::vector<BlockId>& table = entry.tables[group];
    if (!pending.freed.contains(sequence) && std::find(table.begin(), table.end(), block) != table.end())
      return sequence;
  }
  return std::nullopt;
}

void SequenceTable::AddReference(size_t group, BlockId block) {
  if (groups_[group].blocks[static_cast<size_t>(block)].references++ == 0) ++groups_[group].in_use;
}

void SequenceTable::DropReference(size_t group, BlockId block) {
  if (--groups_[group].blocks[static_cast<size_t>(block)].references == 0) --groups_[group].in_use;
}

// The blocks that rows up to `end` fill, where there were `begin` rows before: they are full, or are so no more.
void SequenceTable::MarkBlocks(const Entry& entry, int64_t begin, int64_t end, bool full) {
  for (int64_t place = begin / block_tokens_; place < end / block_tokens_; ++place) {
    for (size_t group = 0; group < groups_.size(); ++group) {
      // A row fills it, so that it is there.
      const auto block = static_cast<size_t>(entry.tables[group][static_cast<size_t>(place)]);
      groups_[group].blocks[block].full_at = full ? static_cast<int32_t>(place) : -1;
    }
  }
}

void SequenceTable::Commit(const MicroBatch& batch) {
  for (const SequenceId sequence : batch.free) {
    const auto entry = entries_.find(sequence);
    CHECK(entry != entries_.end());
    for (size_t group = 0; group < groups_.size(); ++group) {
      for (const BlockId block : entry->second.tables[group]) {
        if (block != kNoBlock) DropReference(group, block);
      }
    }
    entries_.erase(entry);
  }
  for (const OpenSequence& open : batch.open) CommitOpen(open);
  for (const SequenceSlice& slice : batch.slices) CommitSlice(slice);
}

void SequenceTable::CommitOpen(const OpenSequence& open) {
  Entry& entry = entries_.try_emplace(open.sequence).first->second;
  entry.rows = open.shared_rows;
  entry.released.assign(groups_.size(), 0);
  entry.tables.resize(groups_.size());
  int64_t most = (context_ + block_tokens_ - 1) / block_tokens_;
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (WindowOf(windows_, group) > 0) continue;  // its places outnumber its blocks
    most = std::min(most, static_cast<int64_t>(groups_[group].blocks.size()));
  }
  for (std::vector<BlockId>& table : entry.tables) table.reserve(static_cast<size_t>(most));
  const int64_t count = open.shared_rows / block_tokens_;
  for (size_t group = 0; group < open.shared_blocks.size(); ++group) {
    const std::vector<BlockId>& shared = open.shared_blocks[group];
    std::vector<BlockId>& table = entry.tables[group];
    entry.released[group] = static_cast<int32_t>(count - static_cast<int64_t>(shared.size()));
    table.assign(static_cast<size_t>(entry.released[group]), kNoBlock);
    table.insert(table.end(), shared.begin(), shared.end());
    for (const BlockId block : shared) AddReference(group, block);
  }
}

void SequenceTable::CommitSlice(const SequenceSlice& slice) {
  Entry& entry = entries_.at(slice.sequence);
  for (size_t group = 0; group < slice.released_blocks.size(); ++group) {
    Release(group, slice.released_blocks[group], entry);
  }
  for (size_t group = 0; group < slice.new_blocks.size(); ++group) {
    const std::vector<BlockId>& blocks = slice.new_blocks[group];
    for (const BlockId block : blocks) {
      groups_[group].blocks[static_cast<size_t>(block)].full_at = -1;
      AddReference(group, block);
    }
    entry.tables[group].insert(entry.tables[group].end(), blocks.begin(), blocks.end());
  }
  const bool goes_back = slice.start < entry.rows;
  MarkBlocks(entry, slice.start, entry.rows, false);  // of a rewind
  entry.rows = int64_t{slice.start} + slice.count;
  MarkBlocks(entry, slice.start, entry.rows, true);
  const bool may_prove_wrong = slice.guess || (cuts_history_ && !goes_back && slice.count == 1 && slice.sample);
  entry.guesses = may_prove_wrong ? std::min(entry.guesses + 1, most_guesses_) : 0;
}

// So many places at the beginning of the table are empty from now on.
void SequenceTable::Release(size_t group, int32_t places, Entry& entry) {
  for (int32_t& place = entry.released[group]; place < places; ++place) {
    DropReference(group, std::exchange(entry.tables[group][static_cast<size_t>(place)], kNoBlock));
  }
}

const SequenceTable::Entry* SequenceTable::Find(SequenceId sequence) const {
  const auto entry = entries_.find(sequence);
  return entry == entries_.end() ? nullptr : &entry->second;
}

}  // namespace stagecoach
