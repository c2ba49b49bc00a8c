#ifndef STAGECOACH_COORDINATOR_SERVE_SERVICE_PREPARATION_POOL_H_
#define STAGECOACH_COORDINATOR_SERVE_SERVICE_PREPARATION_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace stagecoach {

// A few threads for what takes too long for the I/O thread: reading bodies, templates, tokens.
class PreparationPool {
 public:
  // So many wait or run: no further bodies should be read. Half of it: again.
  static constexpr size_t kHighBodies = 64, kHighBytes = size_t{64} << 20;

  explicit PreparationPool(int threads);
  ~PreparationPool();  // as Stop
  PreparationPool(const PreparationPool&) = delete;

  // Runs `work`, which stands for a body of so many bytes. Those that were added first begin first.
  void Add(size_t bytes, std::function<void()> work);
  // What has not begun is dropped; what runs is waited for.
  void Stop();

  // Whether its callers should stop bringing bodies, by the two marks. Any thread, but one alone.
  bool Full();

 private:
  struct Work {
    size_t bytes;
    std::function<void()> run;
  };
  void Run();

  std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_.
  std::deque<Work> waiting_;
  size_t bodies_ = 0, bytes_ = 0;  // waiting and running
  bool full_ = false, stop_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_SERVICE_PREPARATION_POOL_H_
