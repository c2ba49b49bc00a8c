#ifndef STAGECOACH_COORDINATOR_CHANNEL_ENGINE_CHANNEL_H_
#define STAGECOACH_COORDINATOR_CHANNEL_ENGINE_CHANNEL_H_

// The socket between front and engine: each message a 4-byte little-endian length and a pb::EngineMessage. Both sides
// use it.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
  // kUnavailable when the peer is gone.
  absl::Status Send(const pb::EngineMessage& message);

  // The next whole message, or nothing when none has arrived. Call it until there is nothing before polling again:
  // several messages may have come with one read. kUnavailable: the peer closed the socket (everything sent before was
  // delivered first). kInvalidArgument: a length above 64 MiB or bytes that are no EngineMessage; close the channel
  // then.
  absl::StatusOr<std::optional<pb::EngineMessage>> Receive();

  absl::Status Flush();
  bool WritePending() const { return !outgoing_.empty(); }

 private:
  absl::StatusOr<std::optional<pb::EngineMessage>> TakeBuffered();

  int descriptor_;
  std::string incoming_;
  size_t taken_ = 0;  // bytes at the front of incoming_ already given out
  std::string outgoing_;
  size_t sent_ = 0;  // bytes at the front of outgoing_ already written
  bool closed_ = false;
};

// A listening Unix socket at `path` (its descriptor is non-blocking), and connecting to it (the caller wraps either end
// in an EngineChannel). kInvalidArgument: the path is too long. kInternal, kUnavailable: the system's reason.
absl::StatusOr<int> ListenLocal(const std::string& path);
absl::StatusOr<int> ConnectLocal(const std::string& path);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CHANNEL_ENGINE_CHANNEL_H_
