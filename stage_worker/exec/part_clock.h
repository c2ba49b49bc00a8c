#ifndef STAGECOACH_STAGE_WORKER_EXEC_PART_CLOCK_H_
#define STAGECOACH_STAGE_WORKER_EXEC_PART_CLOCK_H_

#include <array>
#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <chrono>
#endif

#include "common/step/step_part.h"

namespace stagecoach {

// A counter that all CPUs of a host share, at a constant rate that nobody needs to know: 10 ns to read where
// clock_gettime takes 21 (Zen 5).
inline uint64_t Ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// What one thread of a gang did, in ticks by part of a step. A mark costs two reads of memory and one of the counter,
// so clocks always run. Used by its thread alone; by the gang's leader outside of Gang::Run.
class PartClock {
 public:
  struct Totals {
    uint64_t busy_ticks = 0, wait_ticks = 0;
    int64_t bytes = 0;
  };

  // The thread begins a part, and ends the one before.
  void Enter(StepPart part) {
    At().busy_ticks += Lap();
    part_ = part;
  }

  // Around a barrier: the wait is booked behind the part before it.
  void Arrive() { At().busy_ticks += Lap(); }
  void Leave() { At().wait_ticks += Lap(); }

  // Bytes that the part reads from memory.
  void Read(int64_t bytes) { At().bytes += bytes; }

  // For the gang, whose Run began at `begin` and ended at `end`. `alone`: there was nobody to wait for.
  void Start(uint64_t begin) {
    last_ = begin;
    part_ = StepPart::kWaking;
    Enter(StepPart::kOther);
  }
  void End(uint64_t end, bool alone) { (alone ? At().busy_ticks : At().wait_ticks) += LapAt(end); }

  const Totals& totals(StepPart part) const { return totals_[static_cast<size_t>(part)]; }
  void Clear() { totals_ = {}; }

 private:
  Totals& At() { return totals_[static_cast<size_t>(part_)]; }
  uint64_t Lap() { return LapAt(Ticks()); }
  // Ticks since the last mark; 0 where the CPUs of the host disagree and the mark of another one is later.
  uint64_t LapAt(uint64_t now) {
    const uint64_t lap = now > last_ ? now - last_ : 0;
    last_ = now;
    return lap;
  }

  uint64_t last_ = 0;
  StepPart part_ = StepPart::kOther;
  std::array<Totals, kStepParts> totals_{};
  [[maybe_unused]] char apart_[64] = {};  // from the next thread's clock: no cache line has marks of two
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_EXEC_PART_CLOCK_H_
