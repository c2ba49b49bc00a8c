#include "coordinator/engine/engine_clock.h"

#include "common/base/clock.h"

namespace stagecoach {

SystemClock::SystemClock() {
  AllowShortSleeps();
  AskForTurns(Turns::kShort);
}
int64_t SystemClock::NowUs() { return MonotonicUs(); }
void SystemClock::Pause(const WaitPolicy::Pause& pause) { PauseThread(pause, &sleeper_); }

}  // namespace stagecoach
