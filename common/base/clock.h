#ifndef STAGECOACH_COMMON_BASE_CLOCK_H_
#define STAGECOACH_COMMON_BASE_CLOCK_H_

#include <cstdint>

namespace stagecoach {

// Microseconds of a clock that never goes back; for durations and deadlines within one process.
int64_t MonotonicUs();

// Microseconds since the Unix epoch that never go back within a process: the wall clock read once at start plus
// monotonic time since. Comparable between hosts as far as their clocks agree; used in traces only, never in a
// decision.
int64_t TraceUs();

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_CLOCK_H_
