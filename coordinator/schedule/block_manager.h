#ifndef STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_

// Owns the KV blocks of each block group, and the slots of recurrent states. Ids are valid on every stage: each has
// pools with as many of them. A block is referenced, free, or evictable: full, in the prefix cache, without references.
// Not thread-safe.
//
// Eviction, when no block is free: in order of release, of one sequence the deepest first. In a group with a window
// (common/step/step.h) running sequences release blocks, and an entry of the prefix cache can lose its block
// alone; it still serves sequences whose window lies elsewhere. There, blocks that a window has passed go first while
// they outnumber those kept to the end, the few that the next turn of a conversation needs. Otherwise the oldest goes.
//
// Snapshots, of a model with recurrent states. A sequence begins behind an entry that has one, so blocks serve only as
// far as a snapshot follows them. Both have one order, by what computing them again costs for each byte, and by age:
//   worth      of a snapshot: the clock when it was last used + (blocks of its chain behind the snapshot before it) /
//              (blocks that take as many bytes as a state). K and V have the worth of the snapshot that they lead to.
//   slot       when none is free, the snapshot of the least worth goes
//   block      when none is free, blocks that no snapshot follows go, the oldest first. If there are none, the snapshot
//              of the least worth that is the last of its chain goes, and the blocks that led to it alone with it.
//   clock      the worth of what went last: what is not used loses to what comes
// Source: GreedyDual-Size (Cao and Irani, "Cost-Aware WWW Proxy Caching Algorithms", USITS 1997), where all that is
// evicted has a size and a cost.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"
#include "coordinator/schedule/prefix_index.h"
#include "coordinator/schedule/state_slots.h"

namespace stagecoach {

class BlockManager {
 public:
  // group_blocks: [groups], at least one. group_windows: [groups], or empty; not all of them may have one.
  // state_slots: 0 without recurrent states. state_blocks: blocks that take as many bytes as one state, at least 1.
  explicit BlockManager(absl::Span<const int32_t> group_blocks, absl::Span<const int64_t> group_windows = {},
                        int32_t state_slots = 0, int32_t state_blocks = 1);

  // counts[g] blocks of every group g with reference count 1, or none: kResourceExhausted, wanted and available.
  absl::StatusOr<BlockLists> Allocate(absl::Span<const int32_t> counts);
  void AddReference(size_t group, BlockId block);  // of an allocated block
  // Drops one reference of each, blocks[g] being of group g, places of kNoBlock left out; a block without references is
  // free, or evictable. kFailedPrecondition, and nothing freed, when one is not allocated (a double free) or out of
  // range. `chain`: what Remember and Find said of the sequence's blocks from the first on, as far as it was asked.
  absl::Status Free(const BlockLists& blocks, absl::Span<const PrefixRef> chain = {});
  // The same of one block of a group with a window, whose sequence goes on; it must be allocated.
  void Release(size_t group, BlockId block);

  // The prefix cache. An entry has one block in every group, which lie at the same place in a sequence's tables; of
  // groups with a window it may have none.
  PrefixRef Find(const PrefixKey& key) const { return prefixes_.Find(key); }
  // Of an entry that is there; kNoBlock where it was given away.
  BlockId BlockOf(PrefixRef entry, size_t group) const { return prefixes_.blocks(entry.block)[group]; }
  // Adds a reference to the blocks of entries that are there, and returns them; of group g those of the first
  // unseen[g] entries are left out, and their places hold kNoBlock. Empty: of none. The others must be there.
  BlockLists Share(absl::Span<const PrefixRef> entries, absl::Span<const int64_t> unseen = {});
  // Makes an entry of a filled block (of each group) that a sequence references. If there is one for the content,
  // returns it with the blocks that it had lost restored. None when the parent is gone. Of a group with a window, the
  // sequence may have given its block back: kNoBlock.
  PrefixRef Remember(const PrefixKey& key, absl::Span<const BlockId> blocks);
  void Forget(PrefixRef entry);  // that is there, and whose blocks a sequence references
  bool Holds(PrefixRef entry) const { return prefixes_.Holds(entry); }
  // Of one that is there: whether its block of the group is evictable.
  bool IsEvictable(PrefixRef entry, size_t group) const;
  // Grows with every change of the entries, their blocks, or which of these are evictable.
  uint64_t version() const { return version_; }

  // Slots. References are the caller's: to the one that a sequence's next slice reads.
  void BeginMicroBatch() { slots_.BeginMicroBatch(); }
  // The slot that the next slice writes, of whoever has a reference to `read` (kNoSlot: to none): it has one to the
  // result instead. `read` itself if nobody else needs it. kNoSlot, and nothing changed: not in this micro-batch.
  // Never so for the first who asks in a micro-batch, as long as there are no more sequences than slots.
  SlotId SlotToWrite(SlotId read);
  // A slot with one reference for the state behind a guessed row, never one that is written in place; the snapshot of
  // the least worth goes if none is free. kNoSlot: not in this micro-batch.
  SlotId SlotForGuess();
  void AddSlotReference(SlotId slot) { slots_.AddReference(slot); }
  void DropSlot(SlotId slot) { slots_.Drop(slot); }
  // Makes the slot, to which the caller has a reference, the snapshot of an entry, which now keeps it. Nothing happens
  // when the entry is gone or has one.
  void KeepSnapshot(PrefixRef entry, SlotId slot);
  SlotId SnapshotOf(PrefixRef entry) const { return prefixes_.snapshot(entry.block); }  // of one that is there; or none
  void UseSnapshot(PrefixRef entry);  // adds a reference to that of an entry
  const StateSlots& slots() const { return slots_; }

  size_t groups() const { return groups_.size(); }
  size_t anchor() const { return anchor_; }  // the first group without a window, whose blocks name the entries
  bool windowed(size_t group) const { return groups_[group].windowed; }
  int32_t total(size_t group) const { return static_cast<int32_t>(groups_[group].references.size()); }
  int32_t free(size_t group) const { return static_cast<int32_t>(groups_[group].free.size()); }
  int32_t evictable() const { return prefixes_.row(); }  // in every group without a window
  int32_t evictable(size_t group) const { return windowed(group) ? groups_[group].evictable() : prefixes_.row(); }
  int32_t available(size_t group) const { return free(group) + evictable(group); }
  int32_t used(size_t group) const { return total(group) - available(group); }  // referenced
  int32_t references(size_t group, BlockId block) const { return groups_[group].references[block]; }

  // In every group: free + evictable + referenced == total, no block twice on the free list, none free or evictable
  // with references; the prefix cache's chains are consistent, and slots and entries agree about snapshots. Looks at
  // every block: for tests.
  absl::Status CheckIntegrity() const;

 private:
  struct Group {
    bool windowed = false;
    std::vector<int32_t> references;  // [blocks]
    std::vector<BlockId> entry;       // [blocks] the anchor's block of the entry that it is in; kNoBlock: in none
    std::vector<BlockId> free;        // a stack: the block freed last is used first, its memory is warm
    // With a window: the evictable ones, whose sequences went on beyond them, and whose had them to the end.
    BlockRow passed{0}, kept{0};
    std::vector<uint64_t> since;  // [blocks] when it became evictable, counted in blocks that did

    int32_t evictable() const { return passed.size() + kept.size(); }
    bool IsEvictable(BlockId block) const { return passed.Has(block) || kept.Has(block); }
    void RemoveFromEvictionLists(BlockId block) {
      passed.Remove(block);
      kept.Remove(block);
    }
  };
  void EvictEntry();
  // Of the snapshots without references that may be written now, or that are the last of chains in the eviction row;
  // kNoSlot: none.
  enum class Candidates { kSettled, kLastOfChain };
  SlotId CheapestSnapshot(Candidates candidates);
  void SetUsed(SlotId snapshot);
  double WorthNow(SlotId snapshot) const;
  void EvictSnapshot(SlotId slot);
  void RemoveSnapshot(SlotId slot);
  void EvictWindowed(size_t group);
  void ReturnBlock(size_t group, BlockId block, BlockRow& row);
  void ReleaseChain(absl::Span<const PrefixRef> chain);
  void RemoveEntry(BlockId entry);
  void RestoreLostBlocks(PrefixRef entry, absl::Span<const BlockId> blocks);
  absl::Status CheckGroup(size_t group) const;
  absl::Status CheckSnapshots() const;

  std::vector<Group> groups_;
  size_t anchor_;
  PrefixIndex prefixes_;
  StateSlots slots_;
  const int32_t state_blocks_;
  struct Worth {
    double used = 0;  // the clock when it last was
    double worth = 0;
  };
  std::vector<Worth> worths_;  // [slots] of snapshots
  double clock_ = 0;
  uint64_t version_ = 1, evictables_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_MANAGER_H_
