#ifndef STAGECOACH_COMMON_BASE_QUEUE_H_
#define STAGECOACH_COMMON_BASE_QUEUE_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace stagecoach {

// A queue between two threads. Thread-safe. Its users bound its length.
template <typename T>
class Queue {
 public:
  void Push(T item) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
  }

  // No more items will come.
  void End() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      ended_ = true;
    }
    ready_.notify_all();
  }

  // The next item; waits for one. Nothing after the end.
  std::optional<T> Take() {
    std::unique_lock<std::mutex> lock(mu_);
    ready_.wait(lock, [this] { return !items_.empty() || ended_; });
    return PopLocked();
  }

  // The next item if there is one now.
  std::optional<T> TryTake() {
    std::lock_guard<std::mutex> lock(mu_);
    return PopLocked();
  }

  // Whether Take would wait now.
  bool TakeWaits() const {
    std::lock_guard<std::mutex> lock(mu_);
    return items_.empty() && !ended_;
  }

  bool Exhausted() const {  // ended and empty
    std::lock_guard<std::mutex> lock(mu_);
    return ended_ && items_.empty();
  }

 private:
  std::optional<T> PopLocked() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  mutable std::mutex mu_;
  std::condition_variable ready_;
  std::deque<T> items_;  // guarded by mu_
  bool ended_ = false;   // guarded by mu_
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_QUEUE_H_
