#ifndef STAGECOACH_COORDINATOR_SCHEDULE_PREFIX_INDEX_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_PREFIX_INDEX_H_

// Finds full blocks of tokens by their content. An entry is a block after another entry, or after a salt at the start
// of a sequence: K and V of a position depend only on the tokens up to it, so sequences that begin with the same blocks
// under the same salt can share them. Not thread-safe.
//   Found by   a 64-bit hash of the chain up to it, then parent and tokens are compared: a collision hides one of two.
//   Named by   its block in one group, the anchor, and a number that is never reused, as the block may be. Its blocks
//              in groups with a window may be gone while the entry exists.
//   Evicted    entries without references are in a list in eviction order. Releasing a chain appends its deepest entry
//              first and its root last, so no entry is evicted before those that follow it.
//   Snapshots  of a model with recurrent states, an entry may have the slot of the state that stands behind its last
//              token. A sequence can begin behind such an entry alone: one that no snapshot follows, on it or deeper,
//              serves nobody. Entries that serve nobody are evicted before all others.
// The index neither decides nor counts references; BlockManager does.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "coordinator/request/sequence.h"

namespace stagecoach {

// Blocks of a pool in eviction order, the next at the front. Each operation takes constant time and no memory.
class BlockRow {
 public:
  explicit BlockRow(int32_t blocks) : places_(static_cast<size_t>(blocks)) {}  // of the pool; none stands in the row

  bool Has(BlockId block) const { return At(block).in_row; }
  BlockId first() const { return first_; }  // kNoBlock: the row is empty
  int32_t size() const { return size_; }

  void MoveToBack(BlockId block) {  // from wherever it is
    Remove(block);
    Place& place = At(block);
    place = {.in_row = true, .before = last_, .after = kNoBlock};
    (last_ == kNoBlock ? first_ : At(last_).after) = block;
    last_ = block;
    ++size_;
  }

  void Remove(BlockId block) {  // where it stands in the row
    Place& place = At(block);
    if (!place.in_row) return;
    place.in_row = false;
    (place.before == kNoBlock ? first_ : At(place.before).after) = place.after;
    (place.after == kNoBlock ? last_ : At(place.after).before) = place.before;
    --size_;
  }

  // The blocks in order; a count other than size() shows a broken list. Linear: for tests.
  std::vector<BlockId> List() const {
    std::vector<BlockId> blocks;
    for (BlockId block = first_; block != kNoBlock && blocks.size() <= places_.size(); block = At(block).after) {
      blocks.push_back(block);
    }
    return blocks;
  }

 private:
  struct Place {
    bool in_row = false;
    BlockId before = kNoBlock, after = kNoBlock;
  };
  Place& At(BlockId block) { return places_[static_cast<size_t>(block)]; }
  const Place& At(BlockId block) const { return places_[static_cast<size_t>(block)]; }

  std::vector<Place> places_;  // [blocks]
  BlockId first_ = kNoBlock, last_ = kNoBlock;
  int32_t size_ = 0;
};

// What an entry stands for.
struct PrefixKey {
  uint64_t hash = 0;       // of the chain up to and with these tokens
  PrefixRef parent;        // none: the first block of a sequence
  absl::string_view salt;  // looked at for the first block alone
  absl::Span<const TokenId> tokens;
};

uint64_t PrefixRootHash(absl::string_view salt);
uint64_t PrefixHash(uint64_t parent_hash, absl::Span<const TokenId> tokens);

class PrefixIndex {
 public:
  // `anchor`: the group whose blocks, so many, name the entries. `with_states`: whether entries need snapshots to
  // serve.
  PrefixIndex(size_t anchor, int32_t blocks, bool with_states)
      : anchor_(anchor),
        with_states_(with_states),
        entries_(static_cast<size_t>(blocks)),
        row_(blocks),
        useless_(with_states ? blocks : 0) {}

  PrefixRef Find(const PrefixKey& key) const;  // none: exists() is false
  // `blocks`: one of each group; none of them in an entry. What was found under the hash before is found no more.
  PrefixRef Insert(const PrefixKey& key, absl::Span<const BlockId> blocks);
  void Remove(BlockId block);  // an entry, in the row or not

  bool Holds(PrefixRef entry) const { return Has(entry.block) && entries_[entry.block]->number == entry.number; }
  bool Has(BlockId block) const { return block >= 0 && entries_[block] != nullptr && entries_[block]->number != 0; }
  absl::Span<const BlockId> blocks(BlockId block) const { return entries_[block]->blocks; }  // [groups], or kNoBlock
  void SetBlock(BlockId block, size_t group, BlockId to) { entries_[block]->blocks[group] = to; }  // not the anchor's

  // The row of entries without references: those that serve nobody, then the others.
  void MoveToBack(BlockId block);  // of its part of the row, from wherever it is
  void RemoveFromRow(BlockId block);
  bool IsInRow(BlockId block) const { return row_.Has(block) || (with_states_ && useless_.Has(block)); }
  // The next to be given up; kNoBlock: none.
  BlockId first() const { return useless_.first() == kNoBlock ? row_.first() : useless_.first(); }
  bool first_serves() const { return useless_.first() == kNoBlock; }  // or there is none
  int32_t row() const { return row_.size() + useless_.size(); }       // how many there are

  // Snapshots, where there are states. Setting and removing one is linear in the entry's depth.
  SlotId snapshot(BlockId block) const { return entries_[block]->snapshot; }  // kNoSlot: none
  void SetSnapshot(BlockId block, SlotId slot);  // of an entry that has none; kNoSlot: of one that has one
  // On the entry or deeper.
  int32_t snapshots_from(BlockId block) const { return entries_[block]->snapshots_from; }
  // Blocks of the entry's chain, itself included, behind the last snapshot before it.
  int64_t BlocksBehindSnapshot(BlockId block) const;

  int32_t size() const { return size_; }
  // The row is whole; every entry in it has a parent that is there, and that is not before it in the row. Snapshots are
  // counted as they are, and those that serve nobody are in their part of the row.
  absl::Status CheckIntegrity() const;

 private:
  struct Entry {
    uint64_t number = 0;  // 0: not an entry now; its memory is kept
    uint64_t hash = 0;
    PrefixRef parent;
    std::string salt;
    std::vector<TokenId> tokens;
    absl::InlinedVector<BlockId, 2> blocks;  // [groups]
    SlotId snapshot = kNoSlot;
    int32_t snapshots_from = 0;
  };
  const Entry* ParentOf(const Entry& entry) const {
    return Holds(entry.parent) ? entries_[entry.parent.block].get() : nullptr;
  }
  void AddSnapshots(PrefixRef from, int32_t count);

  size_t anchor_;
  bool with_states_;
  std::vector<std::unique_ptr<Entry>> entries_;  // [blocks of the anchor's group], made when first needed
  absl::flat_hash_map<uint64_t, BlockId> by_hash_;
  uint64_t next_number_ = 1;
  BlockRow row_;
  BlockRow useless_;  // those that serve nobody
  int32_t size_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_PREFIX_INDEX_H_
