#ifndef STAGECOACH_COMMON_BASE_LAST_THAT_FITS_H_
#define STAGECOACH_COMMON_BASE_LAST_THAT_FITS_H_

#include <cstdint>

namespace stagecoach {

// Of the numbers above `low` up to `high`, the last one before `fits` no longer holds; `low` where it holds of none, or
// there are none. By halving: `fits` holds up to some number and of none behind it.
template <typename Fits>
int64_t LastThatFits(int64_t low, int64_t high, const Fits& fits) {
  while (low < high) {
    const int64_t middle = high - (high - low) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_LAST_THAT_FITS_H_
