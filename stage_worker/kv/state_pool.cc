#include "stage_worker/kv/state_pool.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {

absl::StatusOr<StatePool> StatePool::Create(absl::Span<const int64_t> layer_floats, int32_t slots) {
  if (layer_floats.empty() || slots < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a pool of ", slots, " state slots for ", layer_floats.size(),
                                                   " recurrent layers, expected at least 1 of each"));
  }
  StatePool pool;
  uint64_t floats = 0;
  bool overflows = false;
  for (const int64_t layer : layer_floats) {
    if (layer < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("a recurrent layer with a state of ", layer, " floats, expected at least 1"));
    }
    pool.first_floats_.push_back(floats);
    overflows |= __builtin_add_overflow(floats, static_cast<uint64_t>(layer), &floats);
  }
  pool.slot_floats_ = floats;
  uint64_t bytes = 0;
  overflows |= __builtin_mul_overflow(floats, static_cast<uint64_t>(slots) * sizeof(float), &bytes);
  if (overflows) {
    return absl::InvalidArgumentError(absl::StrCat("the size of a pool of ", slots, " state slots for ",
                                                   layer_floats.size(),
                                                   " recurrent layers overflows; lower the number of slots"));
  }
  ASSIGN_OR_RETURN(pool.memory_, PageMemory::Allocate(bytes, "the recurrent states"));
  return pool;
}

}  // namespace stagecoach
