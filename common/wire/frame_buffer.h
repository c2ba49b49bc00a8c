#ifndef STAGECOACH_COMMON_WIRE_FRAME_BUFFER_H_
#define STAGECOACH_COMMON_WIRE_FRAME_BUFFER_H_

// The memory of a frame. A stage computes straight into the payload's fixed place; then the header is written in front
// of it, right-aligned, and both leave as one message without a copy.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"

namespace stagecoach {

class FrameBuffer {
 public:
  // Room for a header (with framing) of up to `max_header_bytes` and a payload of up to `max_payload_bytes`.
  FrameBuffer(size_t max_header_bytes, size_t max_payload_bytes);

  uint8_t* payload() { return memory_.data() + payload_offset_; }  // 64-byte aligned
  const uint8_t* payload() const { return memory_.data() + payload_offset_; }
  size_t payload_capacity() const { return payload_capacity_; }
  size_t header_capacity() const { return payload_offset_; }

  // The encoded frame: starts at a multiple of 64 bytes, ends with the payload. Empty before encoding.
  absl::Span<const uint8_t> message() const { return {memory_.data() + begin_, end_ - begin_}; }

  // For the encoder: [begin, payload) holds everything before the payload, whose length is `payload_bytes`.
  uint8_t* SetMessage(size_t prefix_bytes, size_t payload_bytes);  // returns where the prefix starts

 private:
  AlignedBuffer memory_;
  size_t payload_offset_ = 0;
  size_t payload_capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

// Reusable frame buffers of one size. Thread-safe. A buffer may outlive the pool, as frames in flight do.
class FramePool {
 public:
  FramePool(size_t max_header_bytes, size_t max_payload_bytes)
      : header_(max_header_bytes), payload_(max_payload_bytes), shelf_(std::make_shared<Shelf>()) {}
  // A free buffer, or a new one; it returns to the pool when the last reference goes.
  std::shared_ptr<FrameBuffer> Acquire();
  size_t buffers_made() const;

 private:
  struct Shelf {
    std::mutex mu;
    std::vector<std::unique_ptr<FrameBuffer>> free;  // guarded by mu
    size_t made = 0;                                 // guarded by mu
  };
  const size_t header_;
  const size_t payload_;
  const std::shared_ptr<Shelf> shelf_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_WIRE_FRAME_BUFFER_H_
