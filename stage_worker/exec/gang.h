#ifndef STAGECOACH_STAGE_WORKER_EXEC_GANG_H_
#define STAGECOACH_STAGE_WORKER_EXEC_GANG_H_

// A fixed set of threads that run one function together, with a barrier inside it. Their number never changes a result,
// only which thread computes which part.

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/step/step_part.h"
#include "stage_worker/exec/part_clock.h"
#include "stage_worker/exec/shared_work.h"

namespace stagecoach {

class Gang {
 public:
  using Work = absl::FunctionRef<void(int thread)>;

  // `threads` >= 1: the caller of Run is thread 0, bound at its first Run; the others are started here. `cpus`: empty,
  // one CPU a thread, or any number that all threads may use. `contended`: others compute on these CPUs too, so a
  // waiting thread yields its CPU at once. Throws std::system_error if the threads cannot be started.
  Gang(int threads, std::vector<int> cpus, bool contended = false);
  ~Gang();
  Gang(const Gang&) = delete;

  int threads() const { return threads_; }
  bool spins() const { return spin_; }  // whether threads that wait spin for a moment first

  // Calls work(0 .. threads-1) on all threads; returns when all are done. Always called by the same thread.
  void Run(Work work);

  // For the thread that calls Run: until its next Run, it and threads that it starts may run on all of the gang's CPUs.
  void Release();

  // Inside work: returns when every thread has arrived. Spins briefly (if spins()), then sleeps.
  void Barrier();

  // Inside work, on thread `thread`: its time in Run, which begins in StepPart::kWaking and goes on in kOther. What it
  // waits for the others at the end of Run is booked behind its last part.
  PartClock& clock(int thread) { return clocks_[static_cast<size_t>(thread)]; }

  // What all threads did in Run since the last call. By the thread that calls Run.
  StepAccount TakeAccount();

  using Part = WorkPart;
  static Part Share(int64_t count, int thread, int threads) { return ShareOfWork(count, thread, threads); }

  // Inside work: what all threads divide while they do it.
  SharedWork& shared() { return shared_; }

 private:
  static constexpr size_t kCacheLine = 64;

  void RunOnAll();
  void RunWork(int thread);
  void EndClocks(int64_t begin_ns);
  void Stop();  // ends and joins the workers that were started
  void Bind(int thread) const;
  void WorkerMain(int thread);

  const int threads_;
  const std::vector<int> cpus_;
  const bool spin_;  // this process has a CPU for every thread, and no other is known to want them
  std::vector<std::thread> workers_;
  bool bound_ = false;  // of the thread that calls Run
  SharedWork shared_;

  std::vector<PartClock> clocks_;  // [threads]
  uint64_t run_begin_ = 0;         // Ticks of the current Run
  uint64_t run_ticks_ = 0;         // of all Runs since the last account, by both clocks
  int64_t run_ns_ = 0;

  // Published by the increment of generation_, and constant until running_ is 0. nullptr ends the workers.
  const Work* work_ = nullptr;
  // Each in its own cache line, so that waiting for one does not disturb the others.
  alignas(kCacheLine) std::atomic<uint32_t> generation_{0};
  alignas(kCacheLine) std::atomic<int> running_{0};     // workers that have not finished this generation
  alignas(kCacheLine) std::atomic<int> arrived_{0};     // at the current barrier
  alignas(kCacheLine) std::atomic<uint32_t> phase_{0};  // barriers passed
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_EXEC_GANG_H_
