#ifndef STAGECOACH_COORDINATOR_TRACE_CLOCK_ESTIMATE_H_
#define STAGECOACH_COORDINATOR_TRACE_CLOCK_ESTIMATE_H_

// By how much the clocks of several hosts differ from that of the first, found from the messages between them alone.
//
// A message that left host a at s of its clock and reached host b at r of its clock took r - s - (o_b - o_a) >= 0,
// where o are the clocks' offsets. So the fastest message of a hop bounds one difference from above, and a ring of hops
// (coordinator, stages, coordinator) bounds every offset from both sides: the shortest path over such differences from
// the first clock is the upper bound, the path back the negative lower one (difference constraints; Cormen et al.,
// Introduction to Algorithms, section 24.4). Queueing loosens bounds and never makes them wrong. Within the bounds
// every hop gets the same least time, as much as the ring allows (its minimum mean cycle, Karp 1978); the rest is
// halved.
//
// Clocks drift: for another moment t a message counts with kDriftPpm * |t - its own| to spare. Offsets are estimated at
// evenly spaced moments and interpolated.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace stagecoach {

inline constexpr double kDriftPpm = 100;  // of two quartz clocks against each other, at most

// The offset of one clock over time: the other minus the first. Empty: the same clock.
struct ClockCurve {
  int64_t first_us = 0, step_us = 1;  // of the first clock: the moments
  std::vector<double> offset_us;      // [moments]
  double error_us = 0;                // at any time between the first and the last moment: right to within this

  double At(int64_t first_clock_us) const;
  // What a time of this clock is by the first one.
  int64_t ToFirst(int64_t us) const;
};

// What the messages of one hop say, moment by moment.
class HopBounds {
 public:
  // Messages go between these times, by the first clock. Clocks drift by at most so much.
  HopBounds(int from, int to, int64_t first_us, int64_t last_us, double drift_ppm = kDriftPpm);
  // `at_us`: by the first clock, about. `gap_us`: arrival by the receiver's clock minus departure by the sender's.
  void Add(int64_t at_us, int64_t gap_us);

  int from() const { return from_; }
  int to() const { return to_; }
  int64_t first_us() const { return first_us_; }
  int64_t step_us() const { return step_us_; }
  double drift_ppm() const { return drift_ppm_; }
  // o_to - o_from at each moment, at most; infinite without messages.
  std::vector<double> AtMost() const;

 private:
  int from_, to_;
  int64_t first_us_, step_us_;
  double drift_ppm_;
  std::vector<double> near_;  // [moments] by the messages since the moment before and up to the one after
};

// The offsets of `clocks` clocks to number 0, of hops that share their moments. Absent when the bounds contradict each
// other: the times are not what the hops say, or the clocks drift faster. Hops lead from clock 0 to every clock and
// back; a hop from a clock to itself has no bounds.
std::optional<std::vector<ClockCurve>> EstimateClocks(int clocks, absl::Span<const HopBounds> hops);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_CLOCK_ESTIMATE_H_
