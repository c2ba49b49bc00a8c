#include "coordinator/schedule/block_manager.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/step/step.h"

namespace stagecoach {

namespace {

size_t FirstWithoutWindow(size_t groups, absl::Span<const int64_t> windows) {
  size_t group = 0;
  while (group < groups && WindowOf(windows, group) > 0) ++group;
  CHECK(group < groups || groups == 0);
  return group;
}

}  // namespace

BlockManager::BlockManager(absl::Span<const int32_t> group_blocks, absl::Span<const int64_t> group_windows,
                           int32_t state_slots, int32_t state_blocks)
    : anchor_(FirstWithoutWindow(group_blocks.size(), group_windows)),
      prefixes_(anchor_, group_blocks.empty() ? 0 : group_blocks[anchor_], state_slots > 0),
      slots_(state_slots),
      state_blocks_(std::max(state_blocks, 1)),
      worths_(static_cast<size_t>(state_slots)) {
  for (const int32_t blocks : group_blocks) {
    CHECK_GE(blocks, 0);
    const bool windowed = WindowOf(group_windows, groups_.size()) > 0;
    Group& group = groups_.emplace_back();
    group.windowed = windowed;
    if (windowed) group.passed = group.kept = BlockRow(blocks);
    if (windowed) group.since.assign(blocks, 0);
    group.references.assign(blocks, 0);
    group.entry.assign(blocks, kNoBlock);
    group.free.reserve(blocks);
    for (BlockId block = blocks - 1; block >= 0; --block) group.free.push_back(block);
  }
}

absl::StatusOr<BlockLists> BlockManager::Allocate(absl::Span<const int32_t> counts) {
  CHECK_EQ(counts.size(), groups());
  for (size_t g = 0; g < groups(); ++g) {
    CHECK_GE(counts[g], 0);
    if (counts[g] <= available(g)) continue;
    return absl::ResourceExhaustedError(absl::StrCat("wanted ", counts[g], " KV blocks of block group ", g, ", ",
                                                     available(g), " of ", total(g), " are free"));
  }
  BlockLists blocks(groups());
  for (size_t g = 0; g < groups(); ++g) {
    Group& group = groups_[g];
    while (free(g) < counts[g]) windowed(g) ? EvictWindowed(g) : EvictEntry();
    blocks[g].assign(group.free.rbegin(), group.free.rbegin() + counts[g]);
    group.free.resize(group.free.size() - counts[g]);
    for (const BlockId block : blocks[g]) group.references[block] = 1;
  }
  return blocks;
}

void BlockManager::EvictEntry() {
  if (slots_.total() > 0 && prefixes_.first_serves()) {
    // None where all are in use: then the row goes in its order.
    if (const SlotId last = CheapestSnapshot(Candidates::kLastOfChain); last != kNoSlot) EvictSnapshot(last);
  }
  const BlockId entry = prefixes_.first();
  const absl::InlinedVector<BlockId, 2> evicted(prefixes_.blocks(entry).begin(), prefixes_.blocks(entry).end());
  RemoveEntry(entry);
  for (size_t g = 0; g < groups(); ++g) {
    if (!windowed(g)) groups_[g].free.push_back(evicted[g]);
  }
}

// The entry stays, without this block.
void BlockManager::EvictWindowed(size_t group) {
  Group& from = groups_[group];
  const BlockId passed = from.passed.first(), kept = from.kept.first();
  const bool passed_goes =
      kept == kNoBlock ||
      (passed != kNoBlock && (from.passed.size() > from.kept.size() || from.since[passed] < from.since[kept]));
  const BlockId block = passed_goes ? passed : kept;
  from.RemoveFromEvictionLists(block);
  prefixes_.SetBlock(std::exchange(from.entry[block], kNoBlock), group, kNoBlock);
  from.free.push_back(block);
  ++version_;
}

void BlockManager::AddReference(size_t group, BlockId block) {
  CHECK(group < groups() && block >= 0 && block < total(group));
  CHECK_GT(references(group, block), 0);
  ++groups_[group].references[block];
}

absl::Status BlockManager::Free(const BlockLists& blocks, absl::Span<const PrefixRef> chain) {
  CHECK_EQ(blocks.size(), groups());
  const auto for_each = [&](const auto& visit) {  // until it says false
    for (size_t g = 0; g < groups(); ++g) {
      for (const BlockId block : blocks[g]) {
        if ((block != kNoBlock || !windowed(g)) && !visit(g, block)) return;
      }
    }
  };
  BlockLists without_owner(groups());
  int64_t dropped = 0;
  absl::Status status;
  for_each([&](size_t g, BlockId block) {
    const auto refuse = [&](const auto&... what) {
      status = absl::FailedPreconditionError(absl::StrCat("KV block ", block, what...));
      return false;
    };
    if (block < 0 || block >= total(g)) {
      return refuse(" does not exist, the pool of block group ", g, " has blocks 0 to ", total(g) - 1);
    }
    if (references(g, block) == 0) return refuse(" of block group ", g, " is freed more often than it was allocated");
    if (--groups_[g].references[block] == 0) without_owner[g].push_back(block);
    ++dropped;
    return true;
  });
  if (!status.ok()) {  // all or nothing
    for_each([&](size_t g, BlockId block) {
      if (dropped-- == 0) return false;
      ++groups_[g].references[block];
      return true;
    });
    return status;
  }
  ReleaseChain(chain);
  for (size_t g = 0; g < groups(); ++g) {
    // From the back: a table that is freed and allocated again comes in its old order.
    std::vector<BlockId>& unowned = without_owner[g];
    for (auto block = unowned.rbegin(); block != unowned.rend(); ++block) ReturnBlock(g, *block, groups_[g].kept);
  }
  return absl::OkStatus();
}

void BlockManager::Release(size_t group, BlockId block) {
  CHECK(windowed(group) && block >= 0 && block < total(group));
  CHECK_GT(references(group, block), 0);
  if (--groups_[group].references[block] == 0) ReturnBlock(group, block, groups_[group].passed);
}

// What nobody references, into that row of a group with a window. Without a window, entries have their own row.
void BlockManager::ReturnBlock(size_t group, BlockId block, BlockRow& row) {
  Group& to = groups_[group];
  if (to.entry[block] == kNoBlock) {
    to.free.push_back(block);
  } else if (to.windowed) {
    row.MoveToBack(block);
    to.since[block] = ++evictables_;
    ++version_;
  }
}

// Entries of other sequences' blocks are in the chain where those had the same content first. They are put into the row
// behind what follows them, as if they had been used, so that the row stays in order. Such a one may be gone by now,
// for nothing held it: what follows it cannot be found any more.
void BlockManager::ReleaseChain(absl::Span<const PrefixRef> chain) {
  size_t whole = 0;
  while (whole < chain.size() && Holds(chain[whole])) ++whole;
  for (size_t i = whole; i < chain.size(); ++i) {
    if (Holds(chain[i]) && references(anchor_, chain[i].block) == 0 && !IsEvictable(chain[i], anchor_))
      RemoveEntry(chain[i].block);
  }
  for (size_t i = whole; i > 0; --i) {
    if (references(anchor_, chain[i - 1].block) == 0) prefixes_.MoveToBack(chain[i - 1].block);
  }
  if (!chain.empty()) ++version_;
}

BlockLists BlockManager::Share(absl::Span<const PrefixRef> entries, absl::Span<const int64_t> unseen) {
  BlockLists shared(groups());
  for (std::vector<BlockId>& blocks : shared) blocks.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    CHECK(Holds(entries[i]));
    prefixes_.RemoveFromRow(entries[i].block);
    const absl::Span<const BlockId> blocks = prefixes_.blocks(entries[i].block);
    for (size_t g = 0; g < groups(); ++g) {
      const bool left_out = g < unseen.size() && static_cast<int64_t>(i) < unseen[g];
      shared[g].push_back(left_out ? kNoBlock : blocks[g]);
      if (left_out) continue;
      CHECK(blocks[g] != kNoBlock);
      if (windowed(g)) groups_[g].RemoveFromEvictionLists(blocks[g]);
      ++groups_[g].references[blocks[g]];
    }
  }
  if (!entries.empty()) ++version_;
  return shared;
}

PrefixRef BlockManager::Remember(const PrefixKey& key, absl::Span<const BlockId> blocks) {
  CHECK_EQ(blocks.size(), groups());
  if (key.parent.exists() && !Holds(key.parent)) return {};
  if (const PrefixRef known = Find(key); known.exists()) {
    RestoreLostBlocks(known, blocks);
    return known;
  }
  for (size_t g = 0; g < groups(); ++g) {
    if (blocks[g] == kNoBlock && windowed(g)) continue;
    CHECK(references(g, blocks[g]) > 0 && groups_[g].entry[blocks[g]] == kNoBlock);
    groups_[g].entry[blocks[g]] = blocks[anchor_];
  }
  ++version_;
  return prefixes_.Insert(key, blocks);
}

void BlockManager::Forget(PrefixRef entry) {
  CHECK(Holds(entry) && references(anchor_, entry.block) > 0);
  RemoveEntry(entry.block);
}

// Else an entry that has lost a block would keep it lost for as long as its others are in use.
void BlockManager::RestoreLostBlocks(PrefixRef entry, absl::Span<const BlockId> blocks) {
  for (size_t g = 0; g < groups(); ++g) {
    if (BlockOf(entry, g) != kNoBlock || blocks[g] == kNoBlock || groups_[g].entry[blocks[g]] != kNoBlock) continue;
    CHECK(references(g, blocks[g]) > 0);
    groups_[g].entry[blocks[g]] = entry.block;
    prefixes_.SetBlock(entry.block, g, blocks[g]);
    ++version_;
  }
}

bool BlockManager::IsEvictable(PrefixRef entry, size_t group) const {
  if (!windowed(group)) return prefixes_.IsInRow(entry.block);
  const BlockId block = BlockOf(entry, group);
  return block != kNoBlock && groups_[group].IsEvictable(block);
}

// Its blocks are the caller's, to put where they belong, but for those that are evictable in a group with a window.
void BlockManager::RemoveEntry(BlockId entry) {
  if (const SlotId snapshot = prefixes_.snapshot(entry); snapshot != kNoSlot) RemoveSnapshot(snapshot);
  const absl::Span<const BlockId> blocks = prefixes_.blocks(entry);
  for (size_t g = 0; g < groups(); ++g) {
    if (blocks[g] == kNoBlock) continue;
    Group& group = groups_[g];
    group.entry[blocks[g]] = kNoBlock;
    if (!group.windowed || !group.IsEvictable(blocks[g])) continue;
    group.RemoveFromEvictionLists(blocks[g]);
    group.free.push_back(blocks[g]);
  }
  prefixes_.Remove(entry);
  ++version_;
}

SlotId BlockManager::SlotToWrite(SlotId read) {
  const bool own = read != kNoSlot && slots_.IsOwn(read);
  if (own && slots_.entry(read) == kNoBlock) return read;
  SlotId slot = slots_.Take();
  if (slot == kNoSlot) {
    const SlotId evicted = CheapestSnapshot(Candidates::kSettled);
    // Its own snapshot has the reference until now, and may be the one to go.
    if (own && (evicted == kNoSlot || WorthNow(read) <= WorthNow(evicted))) {
      RemoveSnapshot(read);
      return read;
    }
    if (evicted == kNoSlot) return kNoSlot;
    EvictSnapshot(evicted);
    slot = slots_.Take();
  }
  if (read != kNoSlot) slots_.Drop(read);
  return slot;
}

SlotId BlockManager::SlotForGuess() {
  const SlotId slot = slots_.Take();
  if (slot != kNoSlot) return slot;
  const SlotId evicted = CheapestSnapshot(Candidates::kSettled);
  if (evicted == kNoSlot) return kNoSlot;
  EvictSnapshot(evicted);
  return slots_.Take();
}

void BlockManager::KeepSnapshot(PrefixRef entry, SlotId slot) {
  CHECK_GT(slots_.references(slot), 0);
  if (!Holds(entry) || prefixes_.snapshot(entry.block) != kNoSlot || slots_.entry(slot) != kNoBlock) return;
  prefixes_.SetSnapshot(entry.block, slot);
  slots_.SetEntry(slot, entry.block);
  SetUsed(slot);
  ++version_;
}

void BlockManager::UseSnapshot(PrefixRef entry) {
  CHECK(Holds(entry));
  const SlotId slot = prefixes_.snapshot(entry.block);
  slots_.AddReference(slot);
  SetUsed(slot);
}

void BlockManager::SetUsed(SlotId snapshot) {
  Worth& worth = worths_[static_cast<size_t>(snapshot)];
  worth.used = clock_;
  worth.worth = WorthNow(snapshot);
}

double BlockManager::WorthNow(SlotId snapshot) const {
  const auto blocks = static_cast<double>(prefixes_.BlocksBehindSnapshot(slots_.entry(snapshot)));
  return worths_[static_cast<size_t>(snapshot)].used + blocks / state_blocks_;
}

// Linear in the slots, for evictions are as rare as snapshots: one for many blocks. Where the snapshot before one has
// gone it is worth more than was known: it is found out of the cheapest alone, which may not be that any more.
SlotId BlockManager::CheapestSnapshot(Candidates candidates) {
  const auto is_candidate = [&](SlotId slot) {
    const BlockId entry = slots_.entry(slot);
    if (entry == kNoBlock || slots_.references(slot) > 0) return false;
    if (candidates == Candidates::kSettled) return slots_.settled(slot);
    return prefixes_.snapshots_from(entry) == 1 && prefixes_.IsInRow(entry);
  };
  const auto known = [this](SlotId slot) -> double& { return worths_[static_cast<size_t>(slot)].worth; };
  for (;;) {
    SlotId cheapest = kNoSlot;
    for (SlotId slot = 0; slot < slots_.total(); ++slot) {
      if (is_candidate(slot) && (cheapest == kNoSlot || known(slot) < known(cheapest))) cheapest = slot;
    }
    if (cheapest == kNoSlot || WorthNow(cheapest) <= known(cheapest)) return cheapest;
    known(cheapest) = WorthNow(cheapest);
  }
}

void BlockManager::EvictSnapshot(SlotId slot) {
  clock_ = std::max(clock_, WorthNow(slot));
  RemoveSnapshot(slot);
}

void BlockManager::RemoveSnapshot(SlotId slot) {
  prefixes_.SetSnapshot(slots_.entry(slot), kNoSlot);
  slots_.SetEntry(slot, kNoBlock);
  ++version_;
}

absl::Status BlockManager::CheckIntegrity() const {
  RETURN_IF_ERROR(prefixes_.CheckIntegrity());
  RETURN_IF_ERROR(slots_.CheckIntegrity());
  RETURN_IF_ERROR(CheckSnapshots());
  for (size_t g = 0; g < groups(); ++g) RETURN_IF_ERROR(CheckGroup(g));
  return absl::OkStatus();
}

absl::Status BlockManager::CheckSnapshots() const {
  int32_t of_slots = 0, of_entries = 0;
  for (SlotId slot = 0; slot < slots_.total(); ++slot) {
    const BlockId entry = slots_.entry(slot);
    if (entry == kNoBlock) continue;
    ++of_slots;
    if (prefixes_.Has(entry) && prefixes_.snapshot(entry) == slot) continue;
    return absl::InternalError(
        absl::StrCat("slot ", slot, " is the snapshot of the entry of block ", entry, ", which does not have it"));
  }
  for (BlockId entry = 0; entry < total(anchor_); ++entry) {
    of_entries += prefixes_.Has(entry) && prefixes_.snapshot(entry) != kNoSlot ? 1 : 0;
  }
  if (of_slots == of_entries) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(of_entries, " entries have snapshots, ", of_slots, " slots are ones"));
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
    if (groups_[group].entry[block] != kNoBlock) return violation("block ", block, " is free and in the prefix cache");
    listed[block] = true;
  }
  int32_t evictable_blocks = 0, remembered = 0;
  for (BlockId entry = 0; entry < total(anchor_); ++entry) {
    if (!prefixes_.Has(entry)) continue;
    const BlockId block = prefixes_.blocks(entry)[group];
    if (block == kNoBlock && windowed(group)) continue;
    ++remembered;
    if (groups_[group].entry[block] != entry ||
        (!windowed(group) && references(group, block) != references(anchor_, entry))) {
      return violation("block ", block, " does not fare as block ", entry, " of group ", anchor_,
                       ", which is of the same entry");
    }
    const bool in_row = windowed(group) ? groups_[group].IsEvictable(block) : prefixes_.IsInRow(entry);
    if (in_row != (references(group, block) == 0)) {
      return violation("block ", block, " has ", references(group, block), " references, but is taken for ",
                       in_row ? "evictable" : "referenced");
    }
    if (references(group, block) > 0) continue;
    listed[block] = true;
    ++evictable_blocks;
  }
  int32_t referenced = 0;
  for (BlockId block = 0; block < total(group); ++block) {
    referenced += references(group, block) > 0 ? 1 : 0;
    if (!listed[block] && references(group, block) <= 0) {
      return violation("block ", block, " is neither free nor evictable nor referenced (", references(group, block),
                       ")");
    }
  }
  const std::vector<BlockId>& entries = groups_[group].entry;
  const auto flagged = std::count_if(entries.begin(), entries.end(), [](BlockId entry) { return entry != kNoBlock; });
  if (flagged != remembered || free(group) + evictable_blocks + referenced != total(group) ||
      evictable_blocks != evictable(group)) {
    return violation(free(group), " free, ", evictable_blocks, " evictable (", evictable(group), " counted) and ",
                     referenced, " referenced blocks of ", total(group), "; ", flagged, " of them in ", remembered,
                     " entries");
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
