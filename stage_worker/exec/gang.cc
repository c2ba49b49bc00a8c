#include "stage_worker/exec/gang.h"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/host/host_info.h"

namespace stagecoach {
namespace {

// Longer than the imbalance of any phase, too short to be missed by other processes.
constexpr int64_t kSpinUs = 50;
constexpr int kPausesPerClock = 64;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns when `value` is no longer `old`; spins first if allowed, then sleeps in the kernel.
template <typename T>
void WaitWhile(const std::atomic<T>& value, T old, bool spin) {
  if (spin) {
    const int64_t deadline = MonotonicUs() + kSpinUs;
    do {
      for (int i = 0; i < kPausesPerClock; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        Pause();
      }
    } while (MonotonicUs() < deadline);
  }
  value.wait(old, std::memory_order_acquire);
}

// Best effort: a CPU that was taken away since the set was made only costs speed.
void BindToCpus(const int* cpus, size_t cpu_count) {
  const int count = std::max(*std::max_element(cpus, cpus + cpu_count) + 1, 1024);
  cpu_set_t* set = CPU_ALLOC(count);
  CHECK(set != nullptr);
  const size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set);
  for (size_t i = 0; i < cpu_count; ++i) CPU_SET_S(cpus[i], bytes, set);
  sched_setaffinity(0, bytes, set);
  CPU_FREE(set);
}

// Spinning where another thread could run takes from the one that is waited for.
bool CanSpin(int threads, const std::vector<int>& cpus, bool contended) {
  return !contended && threads <= AllowedCores() && (cpus.empty() || threads <= static_cast<int>(cpus.size()));
}

}  // namespace

Gang::Gang(int threads, std::vector<int> cpus, bool contended)
    : threads_(threads),
      cpus_(std::move(cpus)),
      spin_(CanSpin(threads, cpus_, contended)),
      shared_(threads),
      clocks_(static_cast<size_t>(threads)) {
  CHECK_GE(threads, 1);
  workers_.reserve(threads - 1);
  try {
    for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { WorkerMain(thread); });
  } catch (...) {  // std::system_error: the system has no more threads to give
    Stop();
    throw;
  }
}

Gang::~Gang() { Stop(); }

void Gang::Stop() {
  work_ = nullptr;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Gang::Bind(int thread) const {
  if (cpus_.empty()) return;
  if (cpus_.size() == static_cast<size_t>(threads_)) {
    BindToCpus(&cpus_[static_cast<size_t>(thread)], 1);
  } else {
    BindToCpus(cpus_.data(), cpus_.size());
  }
}

void Gang::WorkerMain(int thread) {
  Bind(thread);
  for (uint32_t seen = 0;; ++seen) {
    WaitWhile(generation_, seen, spin_);
    if (work_ == nullptr) return;
    RunWork(thread);
    if (running_.fetch_sub(1) == 1) running_.notify_one();
  }
}

void Gang::Run(Work work) {
  if (!bound_) Bind(0);
  bound_ = true;
  work_ = &work;
  const int64_t begin_ns = MonotonicNs();
  run_begin_ = Ticks();
  threads_ == 1 ? RunWork(0) : RunOnAll();
  EndClocks(begin_ns);
}

void Gang::RunOnAll() {
  running_.store(threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1);
  generation_.notify_all();
  // An exception would leave the other threads in a barrier for ever: it ends the process, as theirs do.
  [this]() noexcept { RunWork(0); }();
  for (int left; (left = running_.load(std::memory_order_acquire)) != 0;) WaitWhile(running_, left, spin_);
}

void Gang::RunWork(int thread) {
  PartClock& clock = clocks_[static_cast<size_t>(thread)];
  clock.Start(run_begin_);
  (*work_)(thread);
  clock.Arrive();
}

void Gang::EndClocks(int64_t begin_ns) {
  const uint64_t end = Ticks();
  run_ticks_ += end - run_begin_;
  run_ns_ += MonotonicNs() - begin_ns;
  for (PartClock& clock : clocks_) clock.End(end, threads_ == 1);
}

StepAccount Gang::TakeAccount() {
  const double thread_ticks = static_cast<double>(run_ticks_) * threads_;
  const double ns_per_tick = thread_ticks > 0 ? static_cast<double>(run_ns_) / thread_ticks : 0;
  StepAccount account(kStepParts);
  for (size_t part = 0; part < kStepParts; ++part) {
    uint64_t busy = 0, wait = 0;
    for (const PartClock& clock : clocks_) {
      const PartClock::Totals& totals = clock.totals(static_cast<StepPart>(part));
      busy += totals.busy_ticks;
      wait += totals.wait_ticks;
      account[part].bytes += totals.bytes;
    }
    account[part].busy_ns = std::llround(static_cast<double>(busy) * ns_per_tick);
    account[part].wait_ns = std::llround(static_cast<double>(wait) * ns_per_tick);
  }
  for (PartClock& clock : clocks_) clock.Clear();
  run_ticks_ = 0;
  run_ns_ = 0;
  return account;
}

void Gang::Release() {
  if (!cpus_.empty()) BindToCpus(cpus_.data(), cpus_.size());
  bound_ = false;
}

void Gang::Barrier() {
  if (threads_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1) + 1 == threads_) {
    // Reset before the others are let go: they may arrive at the next barrier at once.
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1);
    phase_.notify_all();
  } else {
    WaitWhile(phase_, phase, spin_);
  }
}

}  // namespace stagecoach
