#ifndef STAGECOACH_COORDINATOR_CHANNEL_WATER_MARK_H_
#define STAGECOACH_COORDINATOR_CHANNEL_WATER_MARK_H_

// Back-pressure: whoever fills a queue stops at its high mark and goes on once it has fallen below the low one.

#include <cstddef>

namespace stagecoach {

class WaterMark {
 public:
  constexpr WaterMark(size_t high_bytes, size_t low_bytes) : high_bytes_(high_bytes), low_bytes_(low_bytes) {}

  // Whether the one who fills the queue has to wait, now that `bytes` are in it.
  bool Waits(size_t bytes) {
    waits_ = bytes >= high_bytes_ || (waits_ && bytes >= low_bytes_);
    return waits_;
  }

 private:
  size_t high_bytes_, low_bytes_;
  bool waits_ = false;
};

// Bytes that wait for the reader of the socket between front and engine. The engine begins no micro-batch while its
// front is behind; the front keeps submissions in its journal while the engine is.
inline constexpr WaterMark kEngineToFront = {8 << 20, 4 << 20};
inline constexpr WaterMark kFrontToEngine = {16 << 20, 4 << 20};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CHANNEL_WATER_MARK_H_
