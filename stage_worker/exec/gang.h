#ifndef STAGECOACH_STAGE_WORKER_EXEC_GANG_H_
#define STAGECOACH_STAGE_WORKER_EXEC_GANG_H_

// A fixed set of threads that run one function together, with a barrier inside it. One thread: straight code. Their
// number never changes a result, only who computes which part.

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace stagecoach {

class Gang {
 public:
  using Work = absl::FunctionRef<void(int thread)>;

  // `threads` >= 1; the caller of Run is thread 0, the others are started here. cpus: empty, or where the threads may
  // run: as many as there are threads, and each is bound to one of them; otherwise each may use all of them. Thread 0
  // is bound at its first Run. contended: others compute on these CPUs too, so a thread that waits gives its CPU away
  // at once. Throws std::system_error when the threads cannot be started.
  Gang(int threads, std::vector<int> cpus, bool contended = false);
  ~Gang();
  Gang(const Gang&) = delete;

  int threads() const { return threads_; }
  bool spins() const { return spin_; }  // whether threads that wait spin for a moment first

  // Calls work(0 .. threads-1) on all threads and returns when all are done. From one thread at a time, always the
  // same.
  void Run(Work work);

  // From the thread that calls Run: it may run wherever the gang may, and so may threads that it starts, until its next
  // Run binds it again.
  void Release();

  // Inside work: returns when every thread has arrived. Spins briefly where it may (spins()), then sleeps.
  void Barrier();

  // The part [begin, end) of `count` items that thread `thread` of `threads` works on: contiguous, even.
  struct Part {
    int64_t begin, end;
  };
  static Part Share(int64_t count, int thread, int threads);

 private:
  static constexpr size_t kCacheLine = 64;

  void Stop();  // ends and joins the workers that were started
  void Bind(int thread) const;
  void WorkerMain(int thread);

  const int threads_;
  const std::vector<int> cpus_;
  const bool spin_;  // this process has a CPU for every thread, and no other is known to want them
  std::vector<std::thread> workers_;
  bool bound_ = false;  // of the thread that calls Run

  // Published by the step of generation_, and not changed before running_ is 0 again. nullptr ends the workers.
  const Work* work_ = nullptr;
  // Each in a line of its own: those who wait for one are not disturbed by the others.
  alignas(kCacheLine) std::atomic<uint32_t> generation_{0};
  alignas(kCacheLine) std::atomic<int> running_{0};     // workers that have not finished this generation
  alignas(kCacheLine) std::atomic<int> arrived_{0};     // at the current barrier
  alignas(kCacheLine) std::atomic<uint32_t> phase_{0};  // barriers passed
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_EXEC_GANG_H_
