#ifndef STAGECOACH_COMMON_TRANSPORT_WAIT_LADDER_H_
#define STAGECOACH_COMMON_TRANSPORT_WAIT_LADDER_H_

// How a communication thread waits for what it can only poll: eagerly while work is likely, rarely once nothing has
// happened for long.

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace stagecoach {

// What to do between two tries, by how long nothing has happened. Pure: the time comes from the caller. Not
// thread-safe.
//
//   the first time          nothing: try again at once
//   for 100 us              sleep 5 us; who yields instead comes back, on a busy host, when others have used up their
//                           turns, while a sleeper that wakes up goes before them
//   for a second            sleep 20 us, growing to 200 us
//   then ("idle")           sleep 1/250 of the time since the last progress: 4 ms after a second, at most 20 ms (from
//                           five seconds on)
//
// A pipeline at work is regular. So sleeps are short around the time at which the next frame would come if it came as
// the last kGaps ones did: kTriesAWindow tries between the shortest and the longest of the last gaps (and a quarter of
// their difference, or 50 us, before and after), at most one every 20 us. Before that no sleep goes beyond its begin.
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

  explicit WaitPolicy(int64_t now_us) { Progressed(now_us); }

  void Progressed(int64_t now_us);  // something happened: back to the first rung
  void Arrived(int64_t now_us);     // Progressed, by what is waited for: the next is expected as long after it
  bool idle(int64_t now_us) const { return now_us - since_us_ >= kIdleAfterUs; }

  struct Pause {
    enum class Kind { kNone, kSleep } kind = Kind::kNone;
    int64_t sleep_us = 0;  // of kSleep
  };
  Pause Next(int64_t now_us);

 private:
  int64_t ShortenedSleep(int64_t now_us, int64_t sleep_us) const;

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
  // False when the time is over (or a little before: a signal may end it); true at once, or during the sleep, when
  // there was a Wake since the last Sleep.
  bool Sleep(int64_t us);
  void Wake();

 private:
  enum State : uint32_t { kAwake, kAsleep, kWoken };
  // A futex: a condition variable would take its mutex at each wake-up, one more system call.
  std::atomic<uint32_t> state_{kAwake};
};

// Makes one pause on the calling thread; a sleep ends, or does not begin, at a Wake of the sleeper.
void PauseThread(const WaitPolicy::Pause& pause, Sleeper* sleeper);
// Sets the calling thread's timer slack to 1 us, without which short sleeps take 50 us longer.
void AllowShortSleeps();

// How long the calling thread, and those that it starts, want the processor at a time. On Linux from 6.12 on (the slice
// of EEVDF) a thread of short turns that wakes up goes before threads of long ones, with no larger share and without
// privilege; elsewhere a frame may wait for milliseconds while all cores compute.
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
