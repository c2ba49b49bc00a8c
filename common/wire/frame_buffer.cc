#include "common/wire/frame_buffer.h"

#include <utility>

#include "common/base/check.h"

namespace stagecoach {

FrameBuffer::FrameBuffer(size_t max_header_bytes, size_t max_payload_bytes)
    : memory_(RoundUp(max_header_bytes, kBufferAlignment) + max_payload_bytes),
      payload_offset_(RoundUp(max_header_bytes, kBufferAlignment)),
      payload_capacity_(max_payload_bytes) {}

uint8_t* FrameBuffer::SetMessage(size_t prefix_bytes, size_t payload_bytes) {
  CHECK(payload_bytes == 0 || prefix_bytes % kBufferAlignment == 0);
  CHECK_LE(RoundUp(prefix_bytes, kBufferAlignment), payload_offset_);
  CHECK_LE(payload_bytes, payload_capacity_);
  begin_ = payload_offset_ - RoundUp(prefix_bytes, kBufferAlignment);
  end_ = begin_ + prefix_bytes + payload_bytes;
  return memory_.data() + begin_;
}

std::shared_ptr<FrameBuffer> FramePool::Acquire() {
  std::unique_ptr<FrameBuffer> buffer;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (free_.empty()) {
      ++made_;
    } else {
      buffer = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (buffer == nullptr) buffer = std::make_unique<FrameBuffer>(header_, payload_);
  return std::shared_ptr<FrameBuffer>(buffer.release(), [this](FrameBuffer* returned) {
    std::lock_guard<std::mutex> lock(mu_);
    free_.emplace_back(returned);
  });
}

size_t FramePool::buffers_made() const {
  std::lock_guard<std::mutex> lock(mu_);
  return made_;
}

}  // namespace stagecoach
