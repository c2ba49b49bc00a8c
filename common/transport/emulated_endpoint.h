#ifndef STAGECOACH_COMMON_TRANSPORT_EMULATED_ENDPOINT_H_
#define STAGECOACH_COMMON_TRANSPORT_EMULATED_ENDPOINT_H_

// An endpoint whose hops take as long as over another link: emulates a cluster on one host.
//
// Each destination has a queue for steps and results at the sender. A frame starts when the one before it has left,
// takes bytes / bytes_per_s to leave, and is sent latency_s later, in order; the real hop comes on top. Other frames
// (heartbeats, assignments, weights) are not delayed.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/job/emulated_link.h"
#include "common/transport/endpoint.h"

namespace stagecoach {

class EmulatedEndpoint : public Endpoint {
 public:
  // `endpoint` outlives this one and is used only through it. `link` is valid. `now_us`: the clock for delays. A frame
  // is late by at most the time between two Polls.
  EmulatedEndpoint(Endpoint* endpoint, const EmulatedLink& link, std::function<int64_t()> now_us = MonotonicUs);

  int rank() const override { return endpoint_->rank(); }
  int size() const override { return endpoint_->size(); }
  absl::Status OpenReceive(Channel channel, int source, size_t max_bytes, int depth) override {
    return endpoint_->OpenReceive(channel, source, max_bytes, depth);
  }
  absl::Status Send(Channel channel, int destination, std::shared_ptr<const FrameBuffer> buffer) override;
  absl::StatusOr<std::optional<ReceivedFrame>> Poll() override;
  bool SendsPending() const override;
  // The delay counts as time of sending.
  EndpointCounters counters() const override;

 private:
  struct Held {
    Channel channel;
    std::shared_ptr<const FrameBuffer> buffer;
    int64_t begin_us;
    int64_t due_us;
  };
  struct Link {
    double free_us = 0;  // when the last frame has left
    std::deque<Held> held;
  };
  absl::Status SendDue();

  Endpoint* const endpoint_;
  const double latency_us_, us_per_byte_;
  const std::function<int64_t()> now_us_;
  std::vector<Link> links_;  // by destination
  uint64_t held_us_ = 0;
  // When each of the last frames was handed on, and how long it had been held; from the one whose send was complete
  // last, so that its times can be put together.
  struct HandedOn {
    int64_t at_us, held_us;
  };
  std::deque<HandedOn> handed_on_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TRANSPORT_EMULATED_ENDPOINT_H_
