#include "coordinator/schedule/prefix_index.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/counter_rng.h"

namespace stagecoach {
namespace {

constexpr uint64_t kRoot = 0x9e3779b97f4a7c15ull;

}  // namespace

uint64_t PrefixRootHash(absl::string_view salt) {
  uint64_t hash = MixBits(kRoot + salt.size());
  for (const char byte : salt) hash = MixBits(hash * 31 + static_cast<uint8_t>(byte) + 1);
  return hash;
}

uint64_t PrefixHash(uint64_t parent_hash, absl::Span<const TokenId> tokens) {
  uint64_t hash = MixBits(parent_hash + kRoot);
  for (const TokenId token : tokens) hash = MixBits(hash * 31 + static_cast<uint32_t>(token) + 1);
  return hash;
}

PrefixRef PrefixIndex::Find(const PrefixKey& key) const {
  const auto found = by_hash_.find(key.hash);
  if (found == by_hash_.end()) return {};
  const Entry& entry = *entries_[found->second];
  if (entry.parent != key.parent || (!key.parent.exists() && entry.salt != key.salt)) return {};
  if (!std::equal(entry.tokens.begin(), entry.tokens.end(), key.tokens.begin(), key.tokens.end())) return {};
  return {found->second, entry.number};
}

PrefixRef PrefixIndex::Insert(const PrefixKey& key, absl::Span<const BlockId> blocks) {
  const BlockId block = blocks[anchor_];
  CHECK(!Has(block));
  if (entries_[block] == nullptr) entries_[block] = std::make_unique<Entry>();
  Entry& entry = *entries_[block];
  entry.number = next_number_++;
  entry.hash = key.hash;
  entry.parent = key.parent;
  entry.salt = key.parent.exists() ? std::string() : std::string(key.salt);
  entry.tokens.assign(key.tokens.begin(), key.tokens.end());
  entry.blocks.assign(blocks.begin(), blocks.end());
  entry.snapshot = kNoSlot;
  entry.snapshots_from = 0;
  by_hash_[key.hash] = block;
  ++size_;
  return {block, entry.number};
}

void PrefixIndex::Remove(BlockId block) {
  CHECK(Has(block));
  RemoveFromRow(block);
  Entry& entry = *entries_[block];
  AddSnapshots(entry.parent, -entry.snapshots_from);  // deeper ones cannot be found any more
  const auto found = by_hash_.find(entry.hash);
  if (found != by_hash_.end() && found->second == block) by_hash_.erase(found);
  entry.number = 0;
  --size_;
}

void PrefixIndex::MoveToBack(BlockId block) {
  RemoveFromRow(block);
  const bool serves = !with_states_ || entries_[block]->snapshots_from > 0;
  (serves ? row_ : useless_).MoveToBack(block);
}

void PrefixIndex::RemoveFromRow(BlockId block) {
  row_.Remove(block);
  if (with_states_) useless_.Remove(block);
}

void PrefixIndex::SetSnapshot(BlockId block, SlotId slot) {
  Entry& entry = *entries_[block];
  CHECK(with_states_ && (slot == kNoSlot) != (entry.snapshot == kNoSlot));
  entry.snapshot = slot;
  AddSnapshots({block, entry.number}, slot == kNoSlot ? -1 : 1);
}

// To an entry and all that it follows. Those that begin to serve go to the back of the row, and all above them too, as
// if they had been used: none may be evicted before those that follow it. Those that cease go the other way.
void PrefixIndex::AddSnapshots(PrefixRef from, int32_t count) {
  if (count == 0) return;
  for (PrefixRef ref = from; Holds(ref); ref = entries_[ref.block]->parent) {
    int32_t& snapshots = entries_[ref.block]->snapshots_from;
    snapshots += count;
    CHECK_GE(snapshots, 0);
    if ((count > 0 || snapshots == 0) && IsInRow(ref.block)) MoveToBack(ref.block);
  }
}

int64_t PrefixIndex::BlocksBehindSnapshot(BlockId block) const {
  int64_t blocks = 1;
  const Entry* entry = ParentOf(*entries_[block]);
  for (; entry != nullptr && entry->snapshot == kNoSlot; entry = ParentOf(*entry)) ++blocks;
  return blocks;
}

absl::Status PrefixIndex::CheckIntegrity() const {
  const auto violation = [](BlockId block, const auto&... what) {
    return absl::InternalError(absl::StrCat("the prefix cache's entry of block ", block, " ", what...));
  };
  std::vector<bool> passed(entries_.size(), false);
  int32_t row = 0;
  std::vector<BlockId> in_row = useless_.List();
  for (const BlockId block : row_.List()) in_row.push_back(block);
  for (const BlockId block : in_row) {
    if (!Has(block) || !IsInRow(block) || passed[block]) {
      return violation(block, "is in the row of those without references, but not as it must be");
    }
    passed[block] = true;
    if (with_states_ && useless_.Has(block) != (entries_[block]->snapshots_from == 0)) {
      return violation(block, "has ", entries_[block]->snapshots_from,
                       " snapshots from it on, in the wrong part of the row");
    }
    const PrefixRef parent = entries_[block]->parent;
    if (parent.exists() && !Holds(parent)) return violation(block, "follows one that is gone");
    if (parent.exists() && passed[parent.block]) return violation(block, "would be given up after the one it follows");
    ++row;
  }
  const auto entries = std::count_if(entries_.begin(), entries_.end(),
                                     [](const auto& entry) { return entry != nullptr && entry->number != 0; });
  std::vector<int32_t> snapshots(entries_.size());
  for (BlockId block = 0; block < static_cast<BlockId>(entries_.size()); ++block) {
    if (!Has(block) || entries_[block]->snapshot == kNoSlot) continue;
    ++snapshots[block];
    for (PrefixRef ref = entries_[block]->parent; Holds(ref); ref = entries_[ref.block]->parent) ++snapshots[ref.block];
  }
  for (BlockId block = 0; block < static_cast<BlockId>(entries_.size()); ++block) {
    if (!Has(block) || entries_[block]->snapshots_from == snapshots[block]) continue;
    return violation(block, "counts ", entries_[block]->snapshots_from, " snapshots from it on, there are ",
                     snapshots[block]);
  }
  if (row != this->row() || entries != size_) {
    return absl::InternalError(absl::StrCat("the prefix cache counts ", size_, " entries, ", this->row(),
                                            " of them without references; there are ", entries, " and ", row));
  }
  for (const auto& [hash, block] : by_hash_) {
    if (!Has(block) || entries_[block]->hash != hash) return violation(block, "is found under the wrong hash");
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
