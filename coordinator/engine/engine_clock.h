#ifndef STAGECOACH_COORDINATOR_ENGINE_ENGINE_CLOCK_H_
#define STAGECOACH_COORDINATOR_ENGINE_ENGINE_CLOCK_H_

// The engine's time and its pauses, so that it can run in any.

#include <cstdint>

#include "common/base/clock.h"
#include "common/transport/wait_ladder.h"

namespace stagecoach {

class EngineClock {
 public:
  virtual ~EngineClock() = default;
  virtual int64_t NowUs() = 0;  // never goes back; the clock of this host's stages, too
  virtual void Pause(const WaitPolicy::Pause& pause) = 0;
};

// Real time. For the thread that makes it.
class SystemClock : public EngineClock {
 public:
  SystemClock() {
    AllowShortSleeps();
    AskForTurns(Turns::kShort);
  }
  int64_t NowUs() override { return MonotonicUs(); }
  void Pause(const WaitPolicy::Pause& pause) override { PauseThread(pause, &sleeper_); }

 private:
  Sleeper sleeper_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_ENGINE_ENGINE_CLOCK_H_
