#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_HEAP_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_HEAP_H_

// What one rendering may still use, and the owner of every value that it makes. One thread's.

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/text/jinja/jinja_template.h"
#include "coordinator/text/jinja/value.h"

namespace stagecoach::jinja {

// Counts a rendering's work and memory against its limits. Every error is ResourceExhausted and names the limit.
class Budget {
 public:
  explicit Budget(const JinjaLimits& limits)
      : limits_(limits), end_(std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(limits.time)) {}

  const JinjaLimits& limits() const { return limits_; }

  // Counts pieces of work of about a tenth of a microsecond; every few thousand it looks at the clock.
  absl::Status Work(size_t pieces) {
    work_since_look_ += pieces;
    return work_since_look_ < kWorkBetweenLooks ? absl::OkStatus() : LookAtClock();
  }
  // The work of going over so many bytes of text.
  absl::Status WorkOverBytes(size_t bytes) { return Work(bytes / 64 + 1); }

  absl::Status Round();  // one more of a loop
  absl::Status CheckDepth(int depth) const;

  absl::Status Take(size_t bytes) {
    if (bytes > limits_.memory_bytes || (memory_bytes_ += bytes) > limits_.memory_bytes) return OutOfMemory();
    return absl::OkStatus();
  }
  void Give(size_t bytes) { memory_bytes_ -= bytes; }

 private:
  static constexpr size_t kWorkBetweenLooks = 4096;

  absl::Status LookAtClock();
  absl::Status OutOfMemory() const;

  const JinjaLimits limits_;
  const std::chrono::steady_clock::time_point end_;
  size_t work_since_look_ = 0;
  size_t memory_bytes_ = 0;
  int64_t rounds_ = 0;
};

// A text that grows within the budget.
class TextBuilder {
 public:
  explicit TextBuilder(Budget* budget, size_t max_bytes = SIZE_MAX) : budget_(*budget), max_bytes_(max_bytes) {}
  TextBuilder(const TextBuilder&) = delete;
  ~TextBuilder() { budget_.Give(taken_bytes_); }

  absl::Status Append(absl::string_view text, TextOrigin origin);
  absl::Status Append(const MarkedText& text) { return Append(text, 0, text.size()); }
  absl::Status Append(const MarkedText& text, size_t begin, size_t size);
  absl::Status AppendRepeated(char c, size_t count, TextOrigin origin);

  const MarkedText& text() const { return text_; }
  Budget& budget() { return budget_; }
  // The text; the builder is empty then.
  MarkedText Take();

 private:
  absl::Status Account(size_t added_bytes);

  Budget& budget_;
  const size_t max_bytes_;
  MarkedText text_;
  size_t taken_bytes_ = 0;
};

// Owns lists, dicts and the other objects until the rendering ends, so that values may refer to each other in any way:
// they are given back one by one, however deeply they lie in each other. Strings, which refer to nothing, go with their
// last value.
class Heap {
 public:
  explicit Heap(const JinjaLimits& limits) : budget_(limits) {}
  Heap(const Heap&) = delete;

  Budget& budget() { return budget_; }
  int depth_limit() const { return budget_.limits().depth; }

  absl::StatusOr<Value> NewString(MarkedText text);
  absl::StatusOr<Value> NewString(absl::string_view text, TextOrigin origin);
  absl::StatusOr<Value> NewString(TextBuilder* builder) { return NewString(builder->Take()); }

  absl::StatusOr<Value> NewList(List::Kind kind, TextOrigin origin, std::vector<Value> items);
  absl::StatusOr<Dict*> NewDict(TextOrigin origin);

  // Values that a list or dict took in after it was made.
  absl::Status Grow(size_t values) { return budget_.Take(values * sizeof(Value)); }
  absl::Status GrowEntry(const std::string& key);

  template <typename T, typename... Args>
  absl::StatusOr<T*> New(Args&&... args) {
    if (absl::Status taken = budget_.Take(sizeof(T) + kOverheadBytes); !taken.ok()) return taken;
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T* raw = object.get();
    objects_.push_back(std::move(object));
    return raw;
  }

 private:
  static constexpr size_t kOverheadBytes = 32;  // of the allocation, and of our pointer to it

  Budget budget_;  // before the objects: their strings give back to it
  std::vector<std::unique_ptr<Object>> objects_;
};

// The bytes of memory that a string of this text is counted as.
size_t StringBytes(const MarkedText& text);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_HEAP_H_
