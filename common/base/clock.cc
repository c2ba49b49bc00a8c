#include "common/base/clock.h"

#include <ctime>

namespace stagecoach {
namespace {

int64_t ReadUs(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000 + t.tv_nsec / 1000;
}

}  // namespace

int64_t MonotonicUs() { return ReadUs(CLOCK_MONOTONIC); }

int64_t WallUs() {
  static const int64_t offset = ReadUs(CLOCK_REALTIME) - ReadUs(CLOCK_MONOTONIC);
  return offset + MonotonicUs();
}

}  // namespace stagecoach
