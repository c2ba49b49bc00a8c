#ifndef STAGECOACH_COMMON_BASE_CLOCK_H_
#define STAGECOACH_COMMON_BASE_CLOCK_H_

#include <cstdint>

namespace stagecoach {

// Microseconds of a clock that never goes back and is never set; for durations, deadlines and what stages say of their
// work. All processes of one host share it; between hosts it differs by anything.
int64_t MonotonicUs();

// Microseconds since the Unix epoch that never go back within a process: the wall clock read once at start plus
// monotonic time since. Comparable between hosts as far as their clocks agree; for what people read, never for a
// decision.
int64_t WallUs();

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_CLOCK_H_
