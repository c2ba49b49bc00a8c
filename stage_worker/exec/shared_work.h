#ifndef STAGECOACH_STAGE_WORKER_EXEC_SHARED_WORK_H_
#define STAGECOACH_STAGE_WORKER_EXEC_SHARED_WORK_H_

// Work that the threads of a gang divide while they do it: each begins with its own part, and one that is done early
// takes from the others' rest. Which thread computes an item changes no result.

#include <atomic>
#include <cstdint>
#include <vector>

namespace stagecoach {

// A contiguous range of items.
struct WorkPart {
  int64_t begin, end;
};

// The part of `count` items that belongs to thread `thread` of `threads`: contiguous, even.
WorkPart ShareOfWork(int64_t count, int thread, int threads);

// How many items a thread takes at a time: at least `least`, where a part has so many, and fewer than twice as many at
// its end.
struct RunLength {
  int64_t least = 1;
  int64_t most = INT64_MAX;
};

// What a thread has taken. `more`: behind it are items that this thread takes next if no other helps; they are worth
// asking the memory for.
struct WorkRun {
  WorkPart items = {0, 0};
  bool more = false;

  bool empty() const { return items.begin == items.end; }
};

// Requires: all threads make the same sequence of Takers, of the same counts, and each takes until nothing is left.
// Between two of them no barrier is needed.
//
// A run is half of what is left of a part, within RunLength: long at first, as long runs are read faster, and short at
// the end, so that threads end together. A thread alone takes everything at once.
//
// Each part has a counter in a cache line of its own. Other threads touch it only once their own part is taken, so no
// counter is written by all threads all the time.
//
// A counter holds the number of a Taker and how many of the part's items are taken for it. An earlier number means that
// none is taken for the current Taker yet; a later one, that all are. Numbers have 40 bits and wrap around: threads are
// never far apart.
class SharedWork {
 public:
  // `threads` >= 1. `before`: the number of the last Taker, for tests.
  explicit SharedWork(int threads, uint64_t before = 0);

  // One thread's view of one piece of work. Used by that thread alone.
  class Taker {
   public:
    // The next run of items that no thread has had: of the thread's own part, then of the others'. Empty: all are
    // taken.
    WorkRun Take();

   private:
    friend class SharedWork;
    WorkRun TakeFrom(int owner);

    SharedWork* work_;
    int thread_, helped_ = 0;  // how many parts are known to be taken, from its own on
    int64_t count_;
    RunLength length_;
    uint64_t number_;
  };
  // 0 <= count < 2^24; 1 <= length.least <= length.most.
  Taker Start(int thread, int64_t count, RunLength length);

 private:
  static constexpr int kTakenBits = 24;
  static constexpr size_t kCacheLine = 64;
  struct alignas(kCacheLine) Thread {
    std::atomic<uint64_t> taken{0};  // number << kTakenBits | items taken of its part
    uint64_t started = 0;            // Takers of this thread so far; its own
  };

  const int threads_;
  std::vector<Thread> parts_;  // [threads]
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_EXEC_SHARED_WORK_H_
