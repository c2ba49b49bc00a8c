#ifndef STAGECOACH_STAGE_WORKER_KERNELS_PEAK_READ_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_PEAK_READ_H_

// PeakLoops::read over an instruction set's vectors. `Sums` is a type of the unit's own (internal linkage), with
// Add(const uint8_t*), which adds up 256 bytes, and Total().

#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {

inline constexpr size_t kPeakStep = 256;

template <typename Sums, int kStreams, bool kPrefetch>
uint64_t ReadStreams(const uint8_t* data, size_t bytes, size_t ahead) {
  constexpr size_t kLine = 64;
  const size_t part = bytes / kPeakStep / kStreams * kPeakStep;
  Sums sums;
  for (size_t i = 0; i < part; i += kPeakStep) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const uint8_t* const at = data + static_cast<size_t>(stream) * part + i;
      if constexpr (kPrefetch) {  // past the end it is harmless
        for (size_t line = 0; line < kPeakStep; line += kLine) __builtin_prefetch(at + ahead + line, 0, 3);
      }
      sums.Add(at);
    }
  }
  for (size_t i = kStreams * part; i < bytes; i += kPeakStep) sums.Add(data + i);
  return sums.Total();
}

template <typename Sums>
uint64_t ReadInPattern(const uint8_t* data, size_t bytes, const ReadPattern& pattern) {
  const auto ahead = static_cast<size_t>(pattern.ahead);
  const bool prefetch = ahead > 0;
  switch (pattern.streams) {
    case 1:
      return prefetch ? ReadStreams<Sums, 1, true>(data, bytes, ahead) : ReadStreams<Sums, 1, false>(data, bytes, 0);
    case 2:
      return prefetch ? ReadStreams<Sums, 2, true>(data, bytes, ahead) : ReadStreams<Sums, 2, false>(data, bytes, 0);
    default:
      return prefetch ? ReadStreams<Sums, 4, true>(data, bytes, ahead) : ReadStreams<Sums, 4, false>(data, bytes, 0);
  }
}

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_PEAK_READ_H_
