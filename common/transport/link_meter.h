#ifndef STAGECOACH_COMMON_TRANSPORT_LINK_METER_H_
#define STAGECOACH_COMMON_TRANSPORT_LINK_METER_H_

// How fast frames are between two ranks. First small pings for the latency and the clock offset, then runs of 1 MiB
// frames, the last one answered, for the bandwidth. Pings use the step channel, answers the result channel.

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/transport/endpoint.h"
#include "common/wire/frame.h"

namespace stagecoach {

// Opens the receives of pings from a rank, and of the answers of a rank that is pinged. Each at most once a rank.
absl::Status OpenPings(Endpoint* endpoint, int source);
absl::Status OpenPingAnswers(Endpoint* endpoint, int peer);

// Answers a frame of the step channel, if it wants that. kInvalidArgument: it is no ping.
absl::Status AnswerPing(Endpoint* endpoint, const ReceivedFrame& frame);

// Measures one link; never blocks. Not thread-safe: the endpoint's thread owns it.
class LinkMeter {
 public:
  // `endpoint` outlives the meter; the answers' receive is open. `number` tells this meter's pings from an earlier
  // one's.
  LinkMeter(Endpoint* endpoint, int peer, uint32_t number);

  absl::Status Begin();  // sends the first ping

  // A frame of the result channel from the peer: sends the next ping. Ignores answers to other meters.
  absl::Status Take(const ReceivedFrame& frame);

  bool done() const { return phase_ == Phase::kDone; }
  // Once done:
  double latency_us() const { return shortest_us_ / 2; }  // one way: half of the fastest round trip
  double bytes_per_s() const { return bytes_per_s_; }     // of the fastest run; its answer's way back is taken off
  const ClockOffset& clock() const { return clock_; }     // of the peer

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kSmall, kFirstLarge, kLarge, kDone };

  absl::Status SendRun(int frames, bool large);
  absl::Status Next(double elapsed_us);

  Endpoint* const endpoint_;
  const int peer_;
  const uint32_t number_;
  std::shared_ptr<FrameBuffer> large_, last_large_;  // the frames of a run, and its last one; made once

  Phase phase_ = Phase::kSmall;
  int runs_ = 0;    // of this phase
  int frames_ = 1;  // of the run under way
  Clock::time_point began_, phase_began_;
  int64_t sent_us_ = 0;  // WallUs() of the ping under way
  double shortest_us_ = 0;
  double bytes_per_s_ = 0;
  ClockOffset clock_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TRANSPORT_LINK_METER_H_
