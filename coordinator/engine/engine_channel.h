#ifndef STAGECOACH_COORDINATOR_ENGINE_ENGINE_CHANNEL_H_
#define STAGECOACH_COORDINATOR_ENGINE_ENGINE_CHANNEL_H_

// The socket between front and engine: each message a 4-byte little-endian length and a pb::EngineMessage. Both sides use it.

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

  // The next whole message, or nothing when none has arrived. kUnavailable: the peer closed the socket (everything sent
  // before was delivered first). kInvalidArgument: a length above 64 MiB or bytes that are no EngineMessage.
  absl::StatusOr<std::optional<pb::EngineMessage>> Receive();

  absl::Status Flush();
  bool WritePending() const { return !outgoing_.empty(); }

 private:
  int descriptor_;
  std::string incoming_;
  std::string outgoing_;
  bool closed_ = false;
};

// A listening Unix socket at `path`, and connecting to it.
absl::StatusOr<int> ListenLocal(const std::string& path);
absl::StatusOr<int> ConnectLocal(const std::string& path);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_ENGINE_ENGINE_CHANNEL_H_
