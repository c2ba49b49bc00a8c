#ifndef STAGECOACH_COORDINATOR_SIM_VIRTUAL_CLOCK_H_
#define STAGECOACH_COORDINATOR_SIM_VIRTUAL_CLOCK_H_

// Simulated time, which jumps from event to event.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "coordinator/engine/engine.h"

namespace stagecoach {

inline constexpr int64_t kNeverNs = std::numeric_limits<int64_t>::max();
// The longest simulated run, 20 years: what lies beyond it never happens.
inline constexpr double kLongestRunS = 6.3e8;

// Rounded to nanoseconds; at most kLongestRunS.
inline int64_t NsOf(double seconds) { return std::llround(std::clamp(seconds, 0.0, kLongestRunS) * 1e9); }
inline double SecondsOf(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// All hosts of a simulated cluster have this one clock, from 0. Not thread-safe.
class VirtualClock : public EngineClock {
 public:
  int64_t now_ns() const { return now_ns_; }
  double now_s() const { return SecondsOf(now_ns_); }
  void AdvanceTo(int64_t ns) { now_ns_ = std::max(now_ns_, ns); }

  // What a pause of the engine does: moves time to the next event that the engine can see.
  void OnPause(std::function<void()> to_next_event) { to_next_event_ = std::move(to_next_event); }

  int64_t NowUs() override { return now_ns_ / 1000; }
  void Pause(int64_t) override { to_next_event_(); }

 private:
  int64_t now_ns_ = 0;
  std::function<void()> to_next_event_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_VIRTUAL_CLOCK_H_
