#ifndef STAGECOACH_STAGE_WORKER_KV_SEQUENCE_TABLE_H_
#define STAGECOACH_STAGE_WORKER_KV_SEQUENCE_TABLE_H_

// Which sequences a stage knows, how many rows of each it has stored, and in which blocks of every block group. The
// stage follows the coordinator's stream and decides nothing; it checks that the stream makes sense, so that a
// corrupted frame cannot make one sequence read what was never written, or overwrite another's blocks. Full blocks may
// be in the tables of several sequences; a full block that is in none keeps what it holds until it is given away.

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
  };

  // group_blocks: [groups] blocks of each group's pool, at least one group. `context`: most rows a sequence may have.
  // group_windows: [groups] as in window_blocks.h, or empty.
  SequenceTable(int32_t block_tokens, absl::Span<const int32_t> group_blocks, int64_t context,
                absl::Span<const int64_t> group_windows = {});
  ~SequenceTable();

  // Takes in the micro-batch's frees, then its opens with the blocks they share, then its slices, each with the blocks
  // it releases and its new ones. A sequence may have several slices in one micro-batch. On an error (kInvalidArgument)
  // nothing has changed: a free or slice of an unknown sequence, an open of a known one, a slice that does not start
  // where the last one ended or has no row, blocks of another number of groups or not as many of each, a block out of
  // range, a new one in use by any sequence, a shared one that is not full or was filled at another place of a table,
  // one missing or released that a row sees, places released once that are there again, tables too short for their rows
  // or a sequence longer than the context.
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
  void MarkFilled(const Entry& entry, int64_t begin, int64_t end);

  const std::unique_ptr<Pending> pending_;  // kept for its memory; means something inside Validate only
  const int32_t block_tokens_;
  const int64_t context_;
  const std::vector<int64_t> windows_;  // [groups], or empty
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
