#include "common/parallel/parallel_for.h"

#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "common/host/host_info.h"

namespace stagecoach {

int ParallelWorkers(int64_t wanted) {
  const int cores = std::clamp(tbb::info::default_concurrency(), 1, AllowedCores());
  return wanted <= 0 ? cores : static_cast<int>(std::min<int64_t>(wanted, cores));
}

absl::Status ParallelFor(int64_t workers, int64_t count,
                         const std::function<absl::Status(int worker, int64_t i)>& body) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mu;
  absl::Status result;  // guarded by mu
  const auto work = [&](int worker) {
    while (!failed.load(std::memory_order_relaxed)) {
      const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) return;
      absl::Status status = body(worker, i);
      if (status.ok()) continue;
      const std::lock_guard<std::mutex> lock(mu);
      if (result.ok()) result = std::move(status);
      failed = true;
    }
  };
  const int threads = ParallelWorkers(workers);
  tbb::task_arena(threads).execute([&] { tbb::parallel_for(0, threads, work, tbb::simple_partitioner()); });
  return result;
}

}  // namespace stagecoach
