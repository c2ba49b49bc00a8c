#include "common/transport/endpoint.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "common/base/clock.h"

namespace stagecoach {
namespace {

constexpr int64_t kYieldUs = 100;
constexpr int64_t kShortestSleepUs = 20;
constexpr int64_t kLongestSleepUs = 200;
constexpr int64_t kIdleAfterUs = 1'000'000;
constexpr int64_t kIdleSleepUs = 4'000;
constexpr unsigned long kTimerSlackNs = 1'000;

}  // namespace

const char* ChannelName(Channel channel) {
  switch (channel) {
    case Channel::kSetup: return "setup";
    case Channel::kStep: return "step";
    case Channel::kResult: return "result";
    case Channel::kTelemetry: return "telemetry";
  }
  return "unknown";
}

WaitLadder::WaitLadder() {
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);  // a kernel that refuses it only makes sleeps longer
  Progressed();
}

void WaitLadder::Progressed() {
  tried_ = false;
  since_us_ = MonotonicUs();
  sleep_us_ = kShortestSleepUs;
}

bool WaitLadder::idle() const { return MonotonicUs() - since_us_ >= kIdleAfterUs; }

void WaitLadder::Wait() {
  if (!tried_) {
    tried_ = true;
    return;
  }
  const int64_t waited_us = MonotonicUs() - since_us_;
  if (waited_us < kYieldUs) {
    sched_yield();
  } else if (waited_us < kIdleAfterUs) {
    Sleep(sleep_us_);
    sleep_us_ = std::min(kLongestSleepUs, sleep_us_ * 3 / 2);
  } else {
    Sleep(kIdleSleepUs);
  }
}

void WaitLadder::Sleep(int64_t us) {
  std::unique_lock<std::mutex> lock(mu_);
  cv_.wait_for(lock, std::chrono::microseconds(us), [this] { return woken_; });
  woken_ = false;
}

void WaitLadder::Wake() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    woken_ = true;
  }
  cv_.notify_one();
}

}  // namespace stagecoach
