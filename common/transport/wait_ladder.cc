#include "common/transport/wait_ladder.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/clock.h"

namespace stagecoach {
namespace {

constexpr unsigned long kTimerSlackNs = 1'000;
constexpr uint64_t kShortTurnNs = 100'000;  // the shortest there is
constexpr int64_t kLeastMarginUs = 50;

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free,
              "the kernel looks at the word itself");

// What SYS_sched_setattr takes; the C library has no declaration of it.
struct SchedulingAttributes {
  uint32_t size = 48, policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0, deadline_ns = 0, period_ns = 0;
};
static_assert(sizeof(SchedulingAttributes) == 48, "the kernel's struct sched_attr, version 0");

long Futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void WaitPolicy::Progressed(int64_t now_us) {
  tried_ = false;
  since_us_ = now_us;
  sleep_us_ = kShortestSleepUs;
}

void WaitPolicy::Arrived(int64_t now_us) {
  Progressed(now_us);
  const int64_t gap_us = now_us - arrived_us_.value_or(now_us);
  const bool first = !arrived_us_.has_value() || gap_us >= kIdleAfterUs;
  arrived_us_ = now_us;
  if (first) {
    gaps_ = 0;
  } else {
    gaps_us_[static_cast<size_t>(gaps_++ % kGaps)] = gap_us;
  }
  expected_from_us_ = expected_to_us_ = now_us;
  if (gaps_ < kGaps) return;
  const auto [shortest, longest] = std::minmax_element(gaps_us_.begin(), gaps_us_.end());
  const int64_t margin_us = std::max(kLeastMarginUs, (*longest - *shortest) / 4);
  expected_from_us_ = now_us + *shortest - margin_us;
  expected_to_us_ = now_us + *longest + margin_us;
}

int64_t WaitPolicy::SleepByWindow(int64_t now_us, int64_t sleep_us) const {
  if (now_us >= expected_to_us_) return sleep_us;
  const int64_t short_us = std::max(kShortestSleepUs, (expected_to_us_ - expected_from_us_) / kTriesAWindow);
  const int64_t early_us = expected_from_us_ - now_us;
  if (early_us <= short_us) return std::min(sleep_us, short_us);
  const int64_t share_us = std::min((now_us - since_us_) / kEarlyShare, kLongestEarlySleepUs);
  return std::min(std::max(sleep_us, share_us), early_us);
}

int64_t WaitPolicy::Next(int64_t now_us) {
  if (!std::exchange(tried_, true)) return 0;
  const int64_t waited_us = now_us - since_us_;
  if (waited_us < kEagerUs && now_us >= expected_from_us_) return kEagerSleepUs;
  if (waited_us >= kIdleAfterUs) return std::min(waited_us / kIdleShare, kLongestIdleSleepUs);
  const int64_t sleep_us = sleep_us_;
  sleep_us_ = std::min(kLongestBusySleepUs, sleep_us_ * 3 / 2);
  return SleepByWindow(now_us, sleep_us);
}

bool Sleeper::Sleep(int64_t us) {
  uint32_t awake = kAwake;
  const timespec timeout{.tv_sec = us / 1'000'000, .tv_nsec = us % 1'000'000 * 1000};
  // Returns when the state is not kAsleep, at a wake-up, at the timeout, or spuriously.
  if (state_.compare_exchange_strong(awake, kAsleep)) Futex(&state_, FUTEX_WAIT_PRIVATE, kAsleep, &timeout);
  return state_.exchange(kAwake) == kWoken;
}

void Sleeper::Wake() {
  if (state_.exchange(kWoken) == kAsleep) Futex(&state_, FUTEX_WAKE_PRIVATE, 1, nullptr);
}

void AllowShortSleeps() {
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);  // a kernel that refuses it only makes sleeps longer
}

void AskForTurns(Turns turns) {
  errno = 0;
  const int nice = getpriority(PRIO_PROCESS, 0);
  if (errno != 0 || sched_getscheduler(0) != SCHED_OTHER) return;  // somebody chose otherwise for this process
  SchedulingAttributes attributes;
  attributes.nice = nice;
  attributes.runtime_ns = turns == Turns::kShort ? kShortTurnNs : 0;
  syscall(SYS_sched_setattr, 0, &attributes, 0);  // as above
}

WaitLadder::WaitLadder() : policy_(MonotonicUs()) {
  AllowShortSleeps();
  AskForTurns(Turns::kShort);
}
void WaitLadder::Progressed() { policy_.Progressed(MonotonicUs()); }
void WaitLadder::Arrived() { policy_.Arrived(MonotonicUs()); }
bool WaitLadder::idle() const { return policy_.idle(MonotonicUs()); }
void WaitLadder::Wait() {
  if (const int64_t us = policy_.Next(MonotonicUs()); us > 0) sleeper_.Sleep(us);
}

}  // namespace stagecoach
