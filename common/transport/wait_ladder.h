#ifndef STAGECOACH_COMMON_TRANSPORT_WAIT_LADDER_H_
#define STAGECOACH_COMMON_TRANSPORT_WAIT_LADDER_H_

// How a communication thread waits for what it can only poll: eagerly while work is likely, rarely once nothing has
// happened for long.

#include <atomic>
#include <cstdint>

namespace stagecoach {

// What to do between two tries, by how long nothing has happened. Pure: the time comes from the caller. Not
// thread-safe.
//
//   the first time          nothing: try again at once
//   for 100 us              yield the processor
//   for a second            sleep 20 us, growing to 200 us
//   then ("idle")           sleep 1/250 of the time since the last progress: 4 ms after a second, at most 20 ms (from
//                           five seconds on)
class WaitPolicy {
 public:
  static constexpr int64_t kYieldUs = 100;
  static constexpr int64_t kShortestSleepUs = 20;
  static constexpr int64_t kLongestBusySleepUs = 200;
  static constexpr int64_t kIdleAfterUs = 1'000'000;
  static constexpr int64_t kIdleShare = 250;
  static constexpr int64_t kLongestIdleSleepUs = 20'000;

  explicit WaitPolicy(int64_t now_us) { Progressed(now_us); }

  void Progressed(int64_t now_us);  // something happened: back to the first rung
  bool idle(int64_t now_us) const { return now_us - since_us_ >= kIdleAfterUs; }

  struct Pause {
    enum class Kind { kNone, kYield, kSleep } kind = Kind::kNone;
    int64_t sleep_us = 0;  // of kSleep
  };
  Pause Next(int64_t now_us);

 private:
  bool tried_ = false;
  int64_t since_us_ = 0;
  int64_t sleep_us_ = 0;
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
  // What the sleeper waits on in the kernel. A condition variable would take its mutex again at each wake-up, which is
  // one more system call in a process that does little else.
  std::atomic<uint32_t> state_{kAwake};
};

// Makes one pause on the calling thread; a sleep ends, or does not begin, at a Wake of the sleeper.
void PauseThread(const WaitPolicy::Pause& pause, Sleeper* sleeper);
// Sets the calling thread's timer slack to 1 us, without which short sleeps take 50 us longer.
void AllowShortSleeps();

// One thread waits; Wake() is for the others.
class WaitLadder {
 public:
  WaitLadder();  // allows short sleeps

  void Progressed();  // something happened: back to the first rung
  bool idle() const;  // a second has passed without progress
  void Wait();        // one pause of the policy; a sleep ends, or does not begin, at a Wake

  // Any thread: there is work for the waiting thread (a compute thread hands a frame back). Ends a sleep under way, or
  // the next one before it begins, so that handing over does not cost half a sleep.
  void Wake() { sleeper_.Wake(); }

 private:
  WaitPolicy policy_;  // owned by the waiting thread
  Sleeper sleeper_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TRANSPORT_WAIT_LADDER_H_
