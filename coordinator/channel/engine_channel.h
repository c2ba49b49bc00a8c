#ifndef STAGECOACH_COORDINATOR_CHANNEL_ENGINE_CHANNEL_H_
#define STAGECOACH_COORDINATOR_CHANNEL_ENGINE_CHANNEL_H_

// The socket between front and engine, its buffers and its back-pressure. A message is a 4-byte little-endian length
// and a pb::EngineMessage. Both sides use it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// A contiguous FIFO of bytes. Its memory doubles to grow, shrinks with the queue (see capacity) and is never cleared.
// Amortised O(1) per byte. Not thread-safe.
class ByteQueue {
 public:
  // Kept however short the queue is.
  static constexpr size_t kMinCapacity = 256 << 10;

  size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  const char* data() const { return memory_.get() + begin_; }  // [size()], until the next Reserve or Take

  // Room for `bytes` more behind the end, not initialised; Append says how many of them were written. Moves the rest.
  char* Reserve(size_t bytes);
  void Append(size_t bytes) { end_ += bytes; }

  void Take(size_t bytes);  // from the front, at most size()

  // At most max(kMinCapacity, 4 x size()) after Take, max(kMinCapacity, 4 x (size() + bytes)) after Reserve.
  size_t capacity() const { return capacity_; }

 private:
  void MoveTo(size_t capacity);

  std::unique_ptr<char[]> memory_;
  size_t capacity_ = 0;
  size_t begin_ = 0, end_ = 0;
};

// Back-pressure: a writer stops at the high mark and goes on once the queue has fallen below the low one.
class WaterMark {
 public:
  constexpr WaterMark(size_t high, size_t low) : high_(high), low_(low) {}

  // Whether the writer has to wait, now that the queue holds this much.
  bool Waits(size_t filled) {
    waits_ = filled >= high_ || (waits_ && filled >= low_);
    return waits_;
  }

 private:
  size_t high_, low_;
  bool waits_ = false;
};

// Marks of the unread bytes. While the front is behind, the engine begins no micro-batch; while the engine is behind,
// the front keeps submissions in its journal.
inline constexpr WaterMark kEngineToFront = {8 << 20, 4 << 20};
inline constexpr WaterMark kFrontToEngine = {16 << 20, 4 << 20};

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

  // Until Receive may have something or queued bytes can be written, for up to `most`. True when so.
  bool Wait(absl::Duration most) const;
  // kUnavailable when the peer has closed its end, also while more of it waits to be read.
  absl::Status CheckPeer() const;

  // What waits for the peer to read. The sender stops in time (WaterMark).
  size_t pending_bytes() const { return outgoing_.size(); }
  bool WritePending() const { return !outgoing_.empty(); }

  // The next whole message, if one has arrived. Reads the socket unless one is Buffered; with nothing Buffered, poll()
  // tells when there is more. kUnavailable: the peer closed the socket, after everything it sent was delivered.
  // kInvalidArgument: a length above 64 MiB or bytes that are no EngineMessage; close the channel then.
  absl::StatusOr<std::optional<pb::EngineMessage>> Receive();
  bool Buffered() const;

  // Memory of both directions, a small multiple of what is in flight (ByteQueue).
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
