#ifndef STAGECOACH_COMMON_TRANSPORT_ENDPOINT_H_
#define STAGECOACH_COMMON_TRANSPORT_ENDPOINT_H_

// How one rank talks to the others: whole frames, no blocking call, one calling thread. Two implementations: loopback
// (threads of one process, with fault hooks for tests) and mpi/.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/base/value_range.h"
#include "common/wire/frame_buffer.h"

namespace stagecoach {

enum class Channel : int {
  kSetup = 1,      // coordinator -> stage: its assignment; empty ones, also from the stage before, end its sleep
  kStep = 2,       // coordinator -> first stage -> ... -> last stage
  kResult = 3,     // last stage -> coordinator
  kTelemetry = 4,  // stage -> coordinator: ready, failure, heartbeats
  kWeights = 5,    // stage -> coordinator and back: requests for parts of the model's files, and these
};
inline constexpr NamedValue<Channel> kChannels[] = {{Channel::kSetup, "setup"},
                                                    {Channel::kStep, "step"},
                                                    {Channel::kResult, "result"},
                                                    {Channel::kTelemetry, "telemetry"},
                                                    {Channel::kWeights, "weights"}};
constexpr const char* ChannelName(Channel channel) { return NameOf(kChannels, channel); }  // for messages
inline constexpr int kAnyRank = -1;

// A received frame in 64-byte aligned memory, lent to the holder. When this object is destroyed (on any thread), the
// memory is free and the endpoint's next Poll posts its receive again.
class ReceivedFrame {
 public:
  ReceivedFrame(Channel channel, int source, absl::Span<const uint8_t> bytes, std::shared_ptr<const void> lease)
      : channel_(channel), source_(source), bytes_(bytes), lease_(std::move(lease)) {}
  Channel channel() const { return channel_; }
  int source() const { return source_; }
  absl::Span<const uint8_t> bytes() const { return bytes_; }

 private:
  Channel channel_;
  int source_;
  absl::Span<const uint8_t> bytes_;
  std::shared_ptr<const void> lease_;
};

struct EndpointCounters {
  uint64_t frames_sent = 0, frames_received = 0, bytes_sent = 0, bytes_received = 0;
  uint64_t send_us = 0;            // sum over sends of begin to completion
  uint64_t last_send_us = 0;       // of the step or result whose send was completed last
  int64_t last_send_start_us = 0;  // MonotonicUs() of its begin; 0: there was none

  // A send is complete.
  void Sent(Channel channel, size_t bytes, int64_t begin_us, int64_t now_us) {
    const uint64_t took_us = static_cast<uint64_t>(now_us - begin_us);
    ++frames_sent;
    bytes_sent += bytes;
    send_us += took_us;
    if (channel != Channel::kStep && channel != Channel::kResult) return;
    last_send_us = took_us;
    last_send_start_us = begin_us;
  }
};

// Not thread-safe: every method is called by one thread, the one that made the object.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Posts `depth` receives of frames of up to `max_bytes` from `source` (or kAnyRank); once per channel and source.
  // Poll reports a longer frame as an error.
  virtual absl::Status OpenReceive(Channel channel, int source, size_t max_bytes, int depth) = 0;

  // Starts sending buffer->message(); holds the reference until the send completes. Frames of one channel to one rank
  // arrive in order.
  virtual absl::Status Send(Channel channel, int destination, std::shared_ptr<const FrameBuffer> buffer) = 0;

  // Makes progress; returns one received frame if there is one, oldest first per channel and source.
  virtual absl::StatusOr<std::optional<ReceivedFrame>> Poll() = 0;

  virtual bool SendsPending() const = 0;  // some Send has not completed
  virtual EndpointCounters counters() const = 0;
};

// For implementations: what OpenReceive refuses, given the open receives in a world of `size` ranks.
template <typename Receive>
absl::Status CheckReceive(const std::vector<Receive>& open, Channel channel, int source, int depth, int size) {
  if (source != kAnyRank && (source < 0 || source >= size)) {
    return absl::InvalidArgumentError(absl::StrCat("receive from rank ", source, ", expected 0 to ", size - 1));
  }
  if (depth < 1) return absl::InvalidArgumentError(absl::StrCat("receive depth is ", depth, ", expected at least 1"));
  for (const Receive& receive : open) {
    if (receive.channel != channel) continue;
    if (receive.source != source && receive.source != kAnyRank && source != kAnyRank) continue;
    return absl::InvalidArgumentError(absl::StrCat("channel ", ChannelName(channel), " from rank ", source,
                                                   " is open already (from rank ", receive.source, ")"));
  }
  return absl::OkStatus();
}

// For implementations: the memory of one receive, lent to the holder of the frame in it.
struct ReceiveSlot {
  explicit ReceiveSlot(size_t bytes) : memory(bytes) {}
  AlignedBuffer memory;
  std::atomic<bool> lent{false};  // set by the endpoint's thread, cleared by whichever thread drops the lease
};

// Lends a slot. Any thread may drop the lease, which only clears the flag for the endpoint's next Poll. A lease that
// outlives the endpoint keeps the memory alive.
inline std::shared_ptr<const void> Lend(std::shared_ptr<ReceiveSlot> slot) {
  slot->lent.store(true, std::memory_order_relaxed);
  const void* memory = slot->memory.data();
  return std::shared_ptr<const void>(
      memory, [slot = std::move(slot)](const void*) { slot->lent.store(false, std::memory_order_release); });
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TRANSPORT_ENDPOINT_H_
