#include "common/transport/wait_ladder.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/clock.h"

namespace stagecoach {
namespace {

constexpr unsigned long kTimerSlackNs = 1'000;

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free,
              "the kernel looks at the word itself");

// Returns when the word is not `expected`, at a wake-up, after `us`, or for no reason at all.
void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, int64_t us) {
  const timespec timeout{.tv_sec = us / 1'000'000, .tv_nsec = us % 1'000'000 * 1000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, &timeout, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace

void WaitPolicy::Progressed(int64_t now_us) {
  tried_ = false;
  since_us_ = now_us;
  sleep_us_ = kShortestSleepUs;
}

WaitPolicy::Pause WaitPolicy::Next(int64_t now_us) {
  if (!tried_) {
    tried_ = true;
    return {};
  }
  const int64_t waited_us = now_us - since_us_;
  if (waited_us < kYieldUs) return {Pause::Kind::kYield};
  if (waited_us >= kIdleAfterUs) {
    return {Pause::Kind::kSleep, std::min(waited_us / kIdleShare, kLongestIdleSleepUs)};
  }
  const int64_t sleep_us = sleep_us_;
  sleep_us_ = std::min(kLongestBusySleepUs, sleep_us_ * 3 / 2);
  return {Pause::Kind::kSleep, sleep_us};
}

bool Sleeper::Sleep(int64_t us) {
  uint32_t awake = kAwake;
  if (state_.compare_exchange_strong(awake, kAsleep)) FutexWait(&state_, kAsleep, us);
  return state_.exchange(kAwake) == kWoken;
}

void Sleeper::Wake() {
  if (state_.exchange(kWoken) == kAsleep) FutexWake(&state_);
}

void PauseThread(const WaitPolicy::Pause& pause, Sleeper* sleeper) {
  if (pause.kind == WaitPolicy::Pause::Kind::kYield) sched_yield();
  if (pause.kind == WaitPolicy::Pause::Kind::kSleep) sleeper->Sleep(pause.sleep_us);
}

void AllowShortSleeps() {
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);  // a kernel that refuses it only makes sleeps longer
}

WaitLadder::WaitLadder() : policy_(MonotonicUs()) { AllowShortSleeps(); }
void WaitLadder::Progressed() { policy_.Progressed(MonotonicUs()); }
bool WaitLadder::idle() const { return policy_.idle(MonotonicUs()); }
void WaitLadder::Wait() { PauseThread(policy_.Next(MonotonicUs()), &sleeper_); }

}  // namespace stagecoach
