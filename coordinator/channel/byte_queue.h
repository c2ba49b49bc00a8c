#ifndef STAGECOACH_COORDINATOR_CHANNEL_BYTE_QUEUE_H_
#define STAGECOACH_COORDINATOR_CHANNEL_BYTE_QUEUE_H_

// Bytes on their way: appended at the end, taken from the front, always one contiguous piece. The memory is reused and
// never cleared; it grows by doubling and is given back as the queue gets shorter, so that it is bounded by what waits
// in the queue (see capacity) and not by what has ever passed through it. Appending and taking are O(1) a byte,
// amortised. Not thread-safe.

#include <cstddef>
#include <memory>

namespace stagecoach {

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

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CHANNEL_BYTE_QUEUE_H_
