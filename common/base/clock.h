#ifndef STAGECOACH_COMMON_BASE_CLOCK_H_
#define STAGECOACH_COMMON_BASE_CLOCK_H_

#include <cstdint>
#include <ctime>
#include <limits>

namespace stagecoach {
namespace internal {

inline int64_t ReadClockNs(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}
inline int64_t ReadClockUs(clockid_t clock) { return ReadClockNs(clock) / 1000; }

}  // namespace internal

// Microseconds of a monotonic clock: for durations, deadlines and stage times. All processes of one host share it;
// other hosts have other offsets.
inline int64_t MonotonicUs() { return internal::ReadClockUs(CLOCK_MONOTONIC); }
inline int64_t MonotonicNs() { return internal::ReadClockNs(CLOCK_MONOTONIC); }

// Microseconds since the Unix epoch, monotonic within a process: the wall clock at start plus monotonic time since. For
// display only, never for a decision.
inline int64_t WallUs() {
  static const int64_t offset = internal::ReadClockUs(CLOCK_REALTIME) - MonotonicUs();
  return offset + MonotonicUs();
}

// The offset of another host's clock, from asking it for the time. It answered at some moment between question and
// arrival, so half of the round trip bounds the error; the shortest round trip counts. Not thread-safe.
class ClockOffset {
 public:
  // Our clock: we asked at `sent_us`, and the answer arrived at `received_us`. The other's clock: `peer_us`. A negative
  // round trip is ignored.
  void Add(int64_t sent_us, int64_t peer_us, int64_t received_us) {
    const int64_t round_trip_us = received_us - sent_us;
    if (round_trip_us < 0 || (known() && round_trip_us >= round_trip_us_)) return;
    round_trip_us_ = round_trip_us;
    offset_us_ = static_cast<double>(peer_us - sent_us) - static_cast<double>(round_trip_us) / 2;
  }

  bool known() const { return round_trip_us_ != kNone; }
  double offset_us() const { return offset_us_; }  // the other's clock minus ours; 0 before it is known
  // Bound of the error: half of the round trip, plus a microsecond of resolution.
  double error_us() const {
    return known() ? static_cast<double>(round_trip_us_) / 2 + 1 : std::numeric_limits<double>::infinity();
  }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t round_trip_us_ = kNone;
  double offset_us_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_CLOCK_H_
