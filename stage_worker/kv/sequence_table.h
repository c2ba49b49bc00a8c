#ifndef STAGECOACH_STAGE_WORKER_KV_SEQUENCE_TABLE_H_
#define STAGECOACH_STAGE_WORKER_KV_SEQUENCE_TABLE_H_

// The sequences that a stage knows: their stored rows, and their blocks in every block group. The stage follows the
// coordinator's stream and decides nothing. It checks the stream, so that a corrupted frame cannot make a sequence read
// unwritten rows or overwrite another's blocks. Full blocks may be shared; a full block in no table keeps its content
// until it is reused.
//
// Guesses
//   Rewind   one known row may start before the rows sent so far; it takes the place of all from there on. These were
//            sent as guesses, and are at most most_guesses: no more of a sequence are in flight.
//   Draft    with cuts_history, rows that are sampled one by one count as guesses, though they are sent as known ones.
//   Blocks   a table never shrinks: rows behind a rewind find blocks there. A block that is written anew stops being
//            full.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"

namespace stagecoach {

// Used by one thread at a time.
class SequenceTable {
 public:
  struct Entry {
    // [groups] of one length: position p lies in tables[g][p / block_tokens]. Of a group with a window that is kNoBlock
    // at the first released[g] places, none of which a row from `rows` on sees.
    BlockLists tables;
    std::vector<int32_t> released;  // [groups]
    int64_t rows = 0;               // positions [0, rows) were stored
    int32_t guesses = 0;            // so many of the last rows were guesses; counted up to most_guesses
  };

  // group_blocks: [groups] blocks of each group's pool, at least one group. `context`: most rows a sequence may have.
  // group_windows: [groups] as of WindowOf, or empty. most_guesses: of a sequence in flight; 0: none are sent.
  SequenceTable(int32_t block_tokens, absl::Span<const int32_t> group_blocks, int64_t context,
                absl::Span<const int64_t> group_windows = {}, int32_t most_guesses = 0, bool cuts_history = false);
  ~SequenceTable();

  // Applies the micro-batch's frees, then its opens with their shared blocks, then its slices (several a sequence are
  // allowed), each with its released and new blocks. kInvalidArgument, with nothing changed:
  //   sequences   a free or slice of an unknown one, an open of a known one, one longer than the context
  //   slices      not starting where the last one ended, but for rewinds; without rows
  //   guesses     of more than one row, not sampled, in a job without guesses, of a sequence that the batch opens or
  //               has other rows of
  //   rewinds     likewise, and of more than one row, not sampled, or guesses; over a row that was no guess; to a row
  //               that sees a released place; over a block that another table holds
  //   blocks      of another number of groups, or different counts a group; more or fewer than the rows need beyond
  //               those that the tables have; out of range; new but in use; shared but not full or filled at another
  //               place; released though a row sees it; back after its release
  absl::Status Apply(const MicroBatch& batch);

  // The checks of Apply alone, and its changes alone (the batch must have passed the checks).
  absl::Status Validate(const MicroBatch& batch) const;
  void Commit(const MicroBatch& batch);

  const Entry* Find(SequenceId sequence) const;  // nullptr when unknown
  size_t size() const { return entries_.size(); }
  int32_t blocks_in_use(size_t group) const { return groups_[group].in_use; }  // each counted once
  int32_t references(size_t group, BlockId block) const {
    return groups_[group].blocks[static_cast<size_t>(block)].references;
  }

 private:
  struct Pending;  // what a batch under validation has changed so far
  struct Extent;   // of a sequence in it
  absl::Status ValidateFreesAndOpens(const MicroBatch& batch, Pending* pending) const;
  absl::Status ValidateShared(const OpenSequence& open, Pending* pending) const;
  absl::Status ValidateSlice(const SequenceSlice& slice, Pending* pending) const;
  absl::Status ValidateStart(const SequenceSlice& slice, bool is_first, Extent* extent, const Pending& pending) const;
  absl::Status ValidateRewind(const SequenceSlice& slice, const Extent& extent, const Pending& pending) const;
  absl::Status ValidateReleases(const SequenceSlice& slice, Extent* extent, Pending* pending) const;
  absl::Status ValidateNewBlocks(const SequenceSlice& slice, Pending* pending) const;
  absl::Status ValidateBlocks(SequenceId sequence, size_t group, const std::vector<BlockId>& blocks,
                              Pending* pending) const;
  std::optional<SequenceId> UserOf(size_t group, BlockId block, const Pending& pending) const;
  void CommitOpen(const OpenSequence& open);
  void CommitSlice(const SequenceSlice& slice);
  void Release(size_t group, int32_t places, Entry& entry);
  void AddReference(size_t group, BlockId block);
  void DropReference(size_t group, BlockId block);
  void MarkBlocks(const Entry& entry, int64_t begin, int64_t end, bool full);

  const std::unique_ptr<Pending> pending_;  // kept for its memory; means something inside Validate only
  const int32_t block_tokens_;
  const int64_t context_;
  const std::vector<int64_t> windows_;  // [groups], or empty
  const int32_t most_guesses_;
  const bool cuts_history_;
  absl::flat_hash_map<SequenceId, Entry> entries_;
  struct Block {
    int32_t references = 0;  // tables that it is in
    int32_t full_at = -1;    // the place in a table at which it was filled; -1: it is not full
  };
  struct Group {
    std::vector<Block> blocks;
    int32_t in_use = 0;
  };
  std::vector<Group> groups_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KV_SEQUENCE_TABLE_H_
