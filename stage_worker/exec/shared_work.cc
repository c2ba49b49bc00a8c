#include "stage_worker/exec/shared_work.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagecoach {

WorkPart ShareOfWork(int64_t count, int thread, int threads) {
  const int64_t base = count / threads;
  const int64_t extra = count % threads;  // the first `extra` threads have one more
  const int64_t begin = base * thread + std::min<int64_t>(thread, extra);
  return {begin, begin + base + (thread < extra ? 1 : 0)};
}

SharedWork::SharedWork(int threads, uint64_t before) : threads_(threads), parts_(static_cast<size_t>(threads)) {
  for (int thread = 0; thread < threads; ++thread) {
    parts_[static_cast<size_t>(thread)].started = before;
    parts_[static_cast<size_t>(thread)].taken.store(before << kTakenBits, std::memory_order_relaxed);
  }
}

SharedWork::Taker SharedWork::Start(int thread, int64_t count, RunLength length) {
  CHECK(count >= 0 && count < int64_t{1} << kTakenBits && length.least >= 1 && length.least <= length.most);
  Taker taker;
  taker.work_ = this;
  taker.thread_ = thread;
  taker.count_ = count;
  taker.length_ = length;
  taker.number_ = ++parts_[static_cast<size_t>(thread)].started;
  return taker;
}

WorkRun SharedWork::Taker::Take() {
  for (; helped_ < work_->threads_; ++helped_) {
    const WorkRun run = TakeFrom((thread_ + helped_) % work_->threads_);
    if (!run.empty()) return run;
  }
  return {};
}

// The order of memory does not matter: what items read was written before a barrier.
WorkRun SharedWork::Taker::TakeFrom(int owner) {
  const WorkPart all = ShareOfWork(count_, owner, work_->threads_);
  std::atomic<uint64_t>& counter = work_->parts_[static_cast<size_t>(owner)].taken;
  uint64_t seen = counter.load(std::memory_order_relaxed);
  while (true) {
    constexpr uint64_t kTaken = (uint64_t{1} << kTakenBits) - 1;
    const auto ahead = static_cast<int64_t>((seen & ~kTaken) - (number_ << kTakenBits));  // around the end of numbers
    if (ahead > 0) return {};
    const int64_t taken = ahead < 0 ? 0 : static_cast<int64_t>(seen & kTaken);
    const int64_t left = (all.end - all.begin) - taken;
    if (left == 0) return {};
    const bool rest = work_->threads_ == 1 || left < 2 * length_.least;
    const int64_t run = std::min(rest ? left : std::max((left + 1) / 2, length_.least), length_.most);
    const uint64_t after = number_ << kTakenBits | static_cast<uint64_t>(taken + run);
    if (counter.compare_exchange_weak(seen, after, std::memory_order_relaxed)) {
      return {.items = {all.begin + taken, all.begin + taken + run}, .more = run < left};
    }
  }
}

}  // namespace stagecoach
