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
    std::lock_guard<std::mutex> lock(shelf_->mu);
    if (shelf_->free.empty()) {
      ++shelf_->made;
    } else {
      buffer = std::move(shelf_->free.back());
      shelf_->free.pop_back();
    }
  }
  if (buffer == nullptr) buffer = std::make_unique<FrameBuffer>(header_, payload_);
  const std::weak_ptr<Shelf> home = shelf_;
  return std::shared_ptr<FrameBuffer>(buffer.release(), [home](FrameBuffer* returned) {
    std::unique_ptr<FrameBuffer> owned(returned);
    const std::shared_ptr<Shelf> shelf = home.lock();
    if (shelf == nullptr) return;
    std::lock_guard<std::mutex> lock(shelf->mu);
    shelf->free.push_back(std::move(owned));
  });
}

size_t FramePool::buffers_made() const {
  std::lock_guard<std::mutex> lock(shelf_->mu);
  return shelf_->made;
}

}  // namespace stagecoach
