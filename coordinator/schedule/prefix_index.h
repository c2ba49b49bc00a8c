#ifndef STAGECOACH_COORDINATOR_SCHEDULE_PREFIX_INDEX_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_PREFIX_INDEX_H_

// Which full blocks of tokens are known by their content. An entry is a block that follows another entry, or a salt at
// the beginning of a sequence: K and V of a position depend on the tokens before it alone, so whoever begins with the
// same blocks under the same salt can use what is stored. Model and KV type are those of the job.
//
// An entry is found by a 64-bit hash of the chain up to it; that its parent and its tokens are the wanted ones decides,
// so a collision costs at most that one of the two is not found. An entry is named by its block in one group, the
// anchor, and a number that is never used again, for a block may become another entry. Of groups with a window its
// blocks may be gone while the entry is there.
//
// Entries without references stand in a row, which begins with the one to be given up first: whoever releases a chain
// puts its deepest entry there first and its root last, so no entry leaves before those in the row that follow it. The
// index decides nothing and counts no references; BlockManager does. Not thread-safe.

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
#include "coordinator/request/prefix_ref.h"
#include "coordinator/schedule/block_row.h"

namespace stagecoach {

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
  // `anchor`: the group whose blocks, so many, name the entries.
  PrefixIndex(size_t anchor, int32_t blocks) : anchor_(anchor), entries_(static_cast<size_t>(blocks)), row_(blocks) {}

  PrefixRef Find(const PrefixKey& key) const;  // none: exists() is false
  // `blocks`: one of each group; none of them in an entry. What was found under the hash before is found no more.
  PrefixRef Insert(const PrefixKey& key, absl::Span<const BlockId> blocks);
  void Remove(BlockId block);  // an entry, in the row or not

  bool Holds(PrefixRef entry) const { return Has(entry.block) && entries_[entry.block]->number == entry.number; }
  bool Has(BlockId block) const { return block >= 0 && entries_[block] != nullptr && entries_[block]->number != 0; }
  absl::Span<const BlockId> blocks(BlockId block) const { return entries_[block]->blocks; }  // [groups], or kNoBlock
  void SetBlock(BlockId block, size_t group, BlockId to) { entries_[block]->blocks[group] = to; }  // not the anchor's

  // The row of entries without references.
  void ToTheEnd(BlockId block) { row_.ToTheEnd(block); }  // from wherever it is
  void OutOfTheRow(BlockId block) { row_.Remove(block); }
  bool InTheRow(BlockId block) const { return row_.Has(block); }
  BlockId first() const { return row_.first(); }  // the next to be given up; kNoBlock: none
  int32_t row() const { return row_.size(); }     // how many there are

  int32_t size() const { return size_; }
  // The row is whole; every entry in it has a parent that is there, and that is not before it in the row.
  absl::Status CheckIntegrity() const;

 private:
  struct Entry {
    uint64_t number = 0;  // 0: not an entry now; its memory is kept
    uint64_t hash = 0;
    PrefixRef parent;
    std::string salt;
    std::vector<TokenId> tokens;
    absl::InlinedVector<BlockId, 2> blocks;  // [groups]
  };

  size_t anchor_;
  std::vector<std::unique_ptr<Entry>> entries_;  // [blocks of the anchor's group], made when first needed
  absl::flat_hash_map<uint64_t, BlockId> by_hash_;
  uint64_t next_number_ = 1;
  BlockRow row_;
  int32_t size_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_PREFIX_INDEX_H_
