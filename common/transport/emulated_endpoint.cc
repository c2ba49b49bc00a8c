#include "common/transport/emulated_endpoint.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace stagecoach {

EmulatedEndpoint::EmulatedEndpoint(Endpoint* endpoint, const EmulatedLink& link, std::function<int64_t()> now_us)
    : endpoint_(endpoint),
      latency_us_(link.latency_s * 1e6),
      us_per_byte_(link.bytes_per_s > 0 ? 1e6 / link.bytes_per_s : 0),
      now_us_(std::move(now_us)),
      links_(static_cast<size_t>(endpoint->size())) {
  CHECK(CheckEmulatedLink(link).ok());
}

absl::Status EmulatedEndpoint::Send(Channel channel, int destination, std::shared_ptr<const FrameBuffer> buffer) {
  const bool delayed = channel == Channel::kStep || channel == Channel::kResult;
  if (!delayed || destination < 0 || destination >= size()) {
    return endpoint_->Send(channel, destination, std::move(buffer));
  }
  Link& link = links_[static_cast<size_t>(destination)];
  const int64_t now = now_us_();
  const double bytes = static_cast<double>(buffer->message().size());
  link.free_us = std::max(link.free_us, static_cast<double>(now)) + bytes * us_per_byte_;
  const int64_t due_us = std::llround(link.free_us + latency_us_);
  link.held.push_back({channel, std::move(buffer), now, due_us});
  return SendDue();
}

absl::Status EmulatedEndpoint::SendDue() {
  const int64_t now = now_us_();
  for (size_t destination = 0; destination < links_.size(); ++destination) {
    std::deque<Held>& held = links_[destination].held;
    while (!held.empty() && held.front().due_us <= now) {
      Held frame = std::move(held.front());
      held.pop_front();
      held_us_ += static_cast<uint64_t>(now - frame.begin_us);
      handed_on_.push_back({now, now - frame.begin_us});
      RETURN_IF_ERROR(endpoint_->Send(frame.channel, static_cast<int>(destination), std::move(frame.buffer)));
    }
  }
  const int64_t complete_us = endpoint_->counters().last_send_start_us;
  while (handed_on_.size() > 1 && handed_on_[1].at_us <= complete_us) handed_on_.pop_front();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ReceivedFrame>> EmulatedEndpoint::Poll() {
  RETURN_IF_ERROR(SendDue());
  return endpoint_->Poll();
}

bool EmulatedEndpoint::SendsPending() const {
  const auto holds = [](const Link& link) { return !link.held.empty(); };
  return endpoint_->SendsPending() || std::any_of(links_.begin(), links_.end(), holds);
}

EndpointCounters EmulatedEndpoint::counters() const {
  EndpointCounters counters = endpoint_->counters();
  counters.send_us += held_us_;
  const auto complete = std::find_if(handed_on_.rbegin(), handed_on_.rend(),
                                     [&](const HandedOn& frame) { return frame.at_us <= counters.last_send_start_us; });
  if (complete == handed_on_.rend()) return counters;
  counters.last_send_us += static_cast<uint64_t>(complete->held_us);
  counters.last_send_start_us -= complete->held_us;
  return counters;
}

}  // namespace stagecoach
