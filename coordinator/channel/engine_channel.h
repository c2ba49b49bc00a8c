#ifndef STAGECOACH_COORDINATOR_CHANNEL_ENGINE_CHANNEL_H_
#define STAGECOACH_COORDINATOR_CHANNEL_ENGINE_CHANNEL_H_

// The socket between front and engine: each message a 4-byte little-endian length and a pb::EngineMessage. Both sides
// use it.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/channel/byte_queue.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Not thread-safe. Owns the descriptor, which it makes non-blocking.
class EngineChannel {
 public:
  explicit EngineChannel(int descriptor);
  ~EngineChannel();
  EngineChannel(const EngineChannel&) = delete;

  int descriptor() const { return descriptor_; }  // for poll(): readable when Receive may have something

  // Queues the message and writes what the socket takes; the rest goes out at later calls of Send, Receive or Flush.
  // kUnavailable when the peer is gone. kInvalidArgument: more than 64 MiB.
  absl::Status Send(const pb::EngineMessage& message);
  absl::Status Queue(const pb::EngineMessage& message);  // the same without writing: several go out with one Flush
  absl::Status Flush();

  // Writes what is queued, waiting for the peer to read it for up to `most`. kUnavailable when the peer is gone.
  absl::Status FlushWithin(absl::Duration most);

  // Until Receive may have something, or there is room for what is queued; at most so long. True when there is.
  bool Wait(absl::Duration most) const;
  // kUnavailable when the peer has closed its end, also while more of it waits to be read.
  absl::Status CheckPeer() const;

  // What waits for the peer to read. It is for the sender to stop in time (water_mark.h).
  size_t pending_bytes() const { return outgoing_.size(); }
  bool WritePending() const { return !outgoing_.empty(); }

  // The next whole message, or nothing when none has arrived. While Buffered, one that has been read already;
  // otherwise it reads the socket. After a message that leaves nothing Buffered, poll() tells when there is more.
  // kUnavailable: the peer closed the socket (everything sent before was delivered first). kInvalidArgument: a length
  // above 64 MiB or bytes that are no EngineMessage; close the channel then.
  absl::StatusOr<std::optional<pb::EngineMessage>> Receive();
  bool Buffered() const;

  // Memory of both directions, a small multiple of what is under way (byte_queue.h).
  size_t buffer_bytes() const { return incoming_.capacity() + outgoing_.capacity(); }

 private:
  absl::StatusOr<std::optional<pb::EngineMessage>> TakeBuffered();

  int descriptor_;
  ByteQueue incoming_;
  ByteQueue outgoing_;
  bool closed_ = false;
};

// A listening Unix socket at `path` (its descriptor is non-blocking), and connecting to it (the caller wraps either end
// in an EngineChannel). kInvalidArgument: the path is too long. kInternal, kUnavailable: the system's reason.
absl::StatusOr<int> ListenLocal(const std::string& path);
absl::StatusOr<int> ConnectLocal(const std::string& path);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CHANNEL_ENGINE_CHANNEL_H_
