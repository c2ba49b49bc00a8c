#include "coordinator/serve/service/preparation_pool.h"

#include <utility>

namespace stagecoach {

PreparationPool::PreparationPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

PreparationPool::~PreparationPool() { Stop(); }

void PreparationPool::Add(size_t bytes, std::function<void()> work) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (stop_) return;
    waiting_.push_back({bytes, std::move(work)});
    ++bodies_;
    bytes_ += bytes;
  }
  changed_.notify_one();
}

void PreparationPool::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    stop_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool PreparationPool::Full() {
  const std::lock_guard<std::mutex> lock(mu_);
  const bool high = bodies_ >= kHighBodies || bytes_ >= kHighBytes;
  const bool low = bodies_ < kHighBodies / 2 && bytes_ < kHighBytes / 2;
  full_ = high || (full_ && !low);
  return full_;
}

void PreparationPool::Run() {
  std::unique_lock<std::mutex> lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    Work work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work.run();
    work.run = nullptr;
    lock.lock();
    --bodies_;
    bytes_ -= work.bytes;
  }
}

}  // namespace stagecoach
