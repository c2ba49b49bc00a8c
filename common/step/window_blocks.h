#ifndef STAGECOACH_COMMON_STEP_WINDOW_BLOCKS_H_
#define STAGECOACH_COMMON_STEP_WINDOW_BLOCKS_H_

// What a window means for the blocks of a sequence, the same for who plans pools, who schedules, who checks and who
// reads: a row of a group with window W sees its own position and the W - 1 before it; with window 0 all before it.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace stagecoach {

// Of a block group; `windows` is [groups], or empty where no group has one.
inline int64_t WindowOf(absl::Span<const int64_t> windows, size_t group) {
  return group < windows.size() ? windows[group] : 0;
}

// The place in a table of the first block that the row at `position` sees. No row behind it sees an earlier one.
inline int64_t FirstPlaceSeen(int64_t position, int64_t window, int64_t block_tokens) {
  return window == 0 ? 0 : std::max<int64_t>(position - (window - 1), 0) / block_tokens;
}

// Most blocks that `rows` consecutive rows of a sequence see together, their own included: the positions that they see
// can begin at the end of a block. window > 0.
inline int64_t MostBlocksSeen(int64_t rows, int64_t window, int64_t block_tokens) {
  const int64_t positions = window - 1 + rows;
  return (positions - 1 + block_tokens - 1) / block_tokens + 1;
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_STEP_WINDOW_BLOCKS_H_
