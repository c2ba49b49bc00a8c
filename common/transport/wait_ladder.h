#ifndef STAGECOACH_COMMON_TRANSPORT_WAIT_LADDER_H_
#define STAGECOACH_COMMON_TRANSPORT_WAIT_LADDER_H_

// How a communication thread waits for what it can only poll: eagerly while work is likely, rarely when idle for long.

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace stagecoach {

// How long to sleep between two tries, by the time since the last progress. Pure. Not thread-safe.
//
//   the first time    try again at once
//   for 100 us        5 us: on a busy host a sleeper that wakes up runs before threads that have used up their turns;
//                     not before the window below
//   for a second      20 us, growing to 200 us
//   then ("idle")     1/250 of the time since the last progress: 4 ms after a second, 20 ms from five seconds on
//
// A busy pipeline is regular, so sleeps are short when the next frame is due: kTriesAWindow tries between the shortest
// and the longest of the last kGaps gaps, extended on both sides by a quarter of their difference or 50 us; at most one
// try every 20 us. Sleeps before this window end where it begins, and are up to half as long as the wait so far, at
// most 2 ms: so late is a frame that comes early, or a request. Tries every 200 us took 5 % of each core from two
// computing threads.
class WaitPolicy {
 public:
  static constexpr int64_t kEagerUs = 100;
  static constexpr int64_t kEagerSleepUs = 5;
  static constexpr int64_t kShortestSleepUs = 20;
  static constexpr int64_t kLongestBusySleepUs = 200;
  static constexpr int64_t kIdleAfterUs = 1'000'000;
  static constexpr int64_t kIdleShare = 250;
  static constexpr int64_t kLongestIdleSleepUs = 20'000;
  static constexpr int kGaps = 8;
  static constexpr int64_t kTriesAWindow = 32;
  static constexpr int64_t kEarlyShare = 2;
  static constexpr int64_t kLongestEarlySleepUs = 2'000;

  explicit WaitPolicy(int64_t now_us) { Progressed(now_us); }

  void Progressed(int64_t now_us);  // something happened: back to the first rung
  void Arrived(int64_t now_us);     // Progressed, by what is waited for: the next is expected as long after it
  bool idle(int64_t now_us) const { return now_us - since_us_ >= kIdleAfterUs; }

  int64_t Next(int64_t now_us);  // how long to sleep, in us; 0: try again at once

 private:
  int64_t SleepByWindow(int64_t now_us, int64_t sleep_us) const;

  bool tried_ = false;
  int64_t since_us_ = 0;
  int64_t sleep_us_ = 0;
  std::array<int64_t, kGaps> gaps_us_{};  // between the last arrivals, in a ring
  int64_t gaps_ = 0;                      // known ever since there was a gap of idleness
  std::optional<int64_t> arrived_us_;
  int64_t expected_from_us_ = 0, expected_to_us_ = 0;  // the window; empty when nothing is expected
};

// A sleep that another thread can end. One thread sleeps; Wake() is for the others.
class Sleeper {
 public:
  // Sleeps for `us`, or less if a signal ends it. True if there was a Wake since the last Sleep: that ends the sleep,
  // or keeps it from beginning.
  bool Sleep(int64_t us);
  void Wake();

 private:
  enum State : uint32_t { kAwake, kAsleep, kWoken };
  // A futex: a condition variable would take its mutex at each wake-up, one more system call.
  std::atomic<uint32_t> state_{kAwake};
};

// Sets the calling thread's timer slack to 1 us, without which short sleeps take 50 us longer.
void AllowShortSleeps();

// How long the calling thread, and threads that it starts, want the processor at a time. From Linux 6.12 on (EEVDF
// slices) a thread of short turns preempts others when it wakes up, with no larger share and no privilege. Elsewhere a
// frame may wait for milliseconds while all cores compute.
enum class Turns { kShort, kLong };
void AskForTurns(Turns turns);

// One thread waits; Wake() is for the others.
class WaitLadder {
 public:
  WaitLadder();  // allows short sleeps

  void Progressed();  // as of WaitPolicy
  void Arrived();     // "
  bool idle() const;  // a second has passed without progress
  void Wait();        // one pause of the policy; a sleep ends, or does not begin, at a Wake

  // Any thread: there is work. Ends a sleep under way, or the next one before it begins.
  void Wake() { sleeper_.Wake(); }

 private:
  WaitPolicy policy_;  // owned by the waiting thread
  Sleeper sleeper_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TRANSPORT_WAIT_LADDER_H_
