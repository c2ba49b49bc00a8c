#ifndef STAGECOACH_COORDINATOR_CHANNEL_WATER_MARK_H_
#define STAGECOACH_COORDINATOR_CHANNEL_WATER_MARK_H_

// Back-pressure: whoever fills a queue stops at its high mark and goes on once it has fallen below the low one.

#include <cstddef>

namespace stagecoach {

class WaterMark {
 public:
  constexpr WaterMark(size_t high, size_t low) : high_(high), low_(low) {}

  // Whether the one who fills the queue has to wait, now that so much is in it.
  bool Waits(size_t filled) {
    waits_ = filled >= high_ || (waits_ && filled >= low_);
    return waits_;
  }

 private:
  size_t high_, low_;
  bool waits_ = false;
};

// Bytes that wait for the reader of the socket between front and engine. The engine begins no micro-batch while its
// front is behind; the front keeps submissions in its journal while the engine is.
inline constexpr WaterMark kEngineToFront = {8 << 20, 4 << 20};
inline constexpr WaterMark kFrontToEngine = {16 << 20, 4 << 20};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CHANNEL_WATER_MARK_H_
