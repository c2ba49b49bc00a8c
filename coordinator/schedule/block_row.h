#ifndef STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_ROW_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_ROW_H_

// Blocks of a pool that stand in a row, the one to be given up first at its beginning. Each operation takes constant
// time and no memory. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/ids.h"

namespace stagecoach {

class BlockRow {
 public:
  explicit BlockRow(int32_t blocks) : places_(static_cast<size_t>(blocks)) {}  // of the pool; none stands in the row

  bool Has(BlockId block) const { return At(block).in_row; }
  BlockId first() const { return first_; }  // kNoBlock: the row is empty
  int32_t size() const { return size_; }

  void ToTheEnd(BlockId block) {  // from wherever it is
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

  // The blocks in their order; fewer or more than size() where the row is not whole. Looks at them all: for tests.
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

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_BLOCK_ROW_H_
