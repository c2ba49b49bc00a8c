#include "coordinator/channel/byte_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace stagecoach {

char* ByteQueue::Reserve(size_t bytes) {
  const size_t needed = size() + bytes;
  if (capacity_ - end_ < bytes) {
    // Moving what waits to the front is paid for by at least as many bytes taken since the last move.
    if (needed <= capacity_ && size() <= begin_) {
      if (!empty()) std::memmove(memory_.get(), data(), size());
      end_ = size();
      begin_ = 0;
    } else {
      MoveTo(std::max(kMinCapacity, 2 * needed));
    }
  }
  return memory_.get() + end_;
}

void ByteQueue::Take(size_t bytes) {
  CHECK_LE(bytes, size());
  begin_ += bytes;
  if (empty()) begin_ = end_ = 0;
  if (capacity_ > kMinCapacity && capacity_ > 4 * size()) MoveTo(std::max(kMinCapacity, 2 * size()));
}

void ByteQueue::MoveTo(size_t capacity) {
  std::unique_ptr<char[]> memory(new char[capacity]);
  const size_t rest = size();
  if (rest > 0) std::memcpy(memory.get(), data(), rest);
  memory_ = std::move(memory);
  capacity_ = capacity;
  begin_ = 0;
  end_ = rest;
}

}  // namespace stagecoach
