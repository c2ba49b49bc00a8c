#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_HEAP_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_HEAP_H_

// What one rendering may still use, and the owner of every value that it makes. One thread's.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/text/jinja/jinja_template.h"
#include "coordinator/text/jinja/values/value.h"

namespace stagecoach::jinja {

// Counts a rendering's work and memory against its limits. Every error is ResourceExhausted and names the limit.
//
// Memory is counted before it is taken, with spare capacity and with the copy that growing makes: a rendering never
// holds more than the limit and some 100 KiB. Work is counted for all that takes time with the size of a value.
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

  // What there is no room for is not counted.
  absl::Status Take(size_t bytes) {
    absl::Status room = CheckRoom(bytes);
    if (room.ok()) memory_bytes_ += bytes;
    return room;
  }
  void Give(size_t bytes) { memory_bytes_ -= bytes; }
  // Whether there are so many bytes for something that is soon gone again.
  absl::Status CheckRoom(size_t bytes) const {
    return bytes <= limits_.memory_bytes - memory_bytes_ ? absl::OkStatus() : OutOfMemory();
  }

  // Makes room for so many more elements.
  template <typename T>
  absl::Status Grow(std::vector<T>* elements, size_t more) {
    const size_t before = elements->capacity(), needed = elements->size() + more;
    if (needed <= before) return absl::OkStatus();
    if (needed > limits_.memory_bytes / sizeof(T)) return OutOfMemory();
    const size_t after = std::max(needed, before == 0 && more == 1 ? size_t{4} : 2 * before);
    if (absl::Status taken = Take(after * sizeof(T)); !taken.ok()) return taken;
    elements->reserve(after);
    Give(before * sizeof(T));
    return absl::OkStatus();
  }

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

// Bytes that are needed for a while.
class Scratch {
 public:
  explicit Scratch(Budget* budget) : budget_(*budget) {}
  Scratch(const Scratch&) = delete;
  ~Scratch() { budget_.Give(bytes_); }

  absl::Status Take(size_t bytes) {
    absl::Status taken = budget_.Take(bytes);
    if (taken.ok()) bytes_ += bytes;
    return taken;
  }

 private:
  Budget& budget_;
  size_t bytes_ = 0;
};

// Values that are gathered, counted until they go elsewhere.
class Items {
 public:
  explicit Items(Budget* budget) : budget_(budget) {}
  // Of values that are counted already.
  Items(Budget* budget, std::vector<Value> counted) : budget_(budget), values_(std::move(counted)) {}
  Items(Items&& other) noexcept : budget_(other.budget_), values_(std::exchange(other.values_, {})) {}
  Items& operator=(Items&& other) noexcept {
    values_.swap(other.values_);
    return *this;
  }
  ~Items() { budget_->Give(values_.capacity() * sizeof(Value)); }

  absl::Status Reserve(size_t more) { return budget_->Grow(&values_, more); }
  absl::Status Add(Value value) {
    if (absl::Status room = Reserve(1); !room.ok()) return room;
    values_.push_back(std::move(value));
    return absl::OkStatus();
  }
  absl::Status Add(absl::StatusOr<Value> value) { return value.ok() ? Add(*std::move(value)) : value.status(); }
  absl::Status AddAll(const std::vector<Value>& values);

  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  Value& operator[](size_t i) { return values_[i]; }
  const Value& operator[](size_t i) const { return values_[i]; }
  std::vector<Value>::iterator begin() { return values_.begin(); }
  std::vector<Value>::iterator end() { return values_.end(); }
  std::vector<Value>::const_iterator begin() const { return values_.begin(); }
  std::vector<Value>::const_iterator end() const { return values_.end(); }

  // The values, which whoever takes them has counted from here on.
  std::vector<Value> Detach() { return std::exchange(values_, {}); }

 private:
  Budget* budget_;
  std::vector<Value> values_;
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
  // Counts what is added: bytes of text, and at most so many runs.
  absl::Status Account(size_t added_bytes, size_t added_runs);

  Budget& budget_;
  const size_t max_bytes_;
  MarkedText text_;
  size_t room_bytes_ = 0, room_runs_ = 0;  // that are counted
  size_t taken_bytes_ = 0;                 // of both
};

// Owns lists, dicts and the other objects until the rendering ends, then frees them one by one, however deeply they
// refer to each other. Strings, which refer to nothing, go with their last value.
class Heap {
 public:
  explicit Heap(const JinjaLimits& limits) : budget_(limits) {}
  Heap(const Heap&) = delete;

  Budget& budget() { return budget_; }
  int depth_limit() const { return budget_.limits().depth; }

  absl::StatusOr<Value> NewString(MarkedText text);
  // The bytes [begin, begin + size) of a text.
  absl::StatusOr<Value> NewString(const MarkedText& text, size_t begin, size_t size);
  absl::StatusOr<Value> NewString(absl::string_view text, TextOrigin origin);
  absl::StatusOr<Value> NewString(TextBuilder* builder) { return NewString(builder->Take()); }

  absl::StatusOr<Value> NewList(List::Kind kind, TextOrigin origin, Items items);
  absl::StatusOr<Value> NewTuple(TextOrigin origin, const Value& first, const Value& second);
  absl::StatusOr<Dict*> NewDict(TextOrigin origin);

  Items NewItems() { return Items(&budget_); }
  absl::Status InsertItem(List* list, size_t place, const Value& value);
  // `key` is the DictKey of `name`.
  absl::Status SetEntry(Dict* dict, const std::string& key, Value name, Value value);
  absl::Status SetAttribute(Namespace* names, absl::string_view name, const Value& value);

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

// The names of keys from a variable on, to something that counts as the template's: {"messages", "role"}.
using KeyPath = std::vector<absl::string_view>;

// The paths of `paths` that lead through `key`, without it.
std::vector<KeyPath> PathsThrough(const std::vector<KeyPath>& paths, absl::string_view key);

// A JSON value as a template sees it: the request's, but for what `paths` lead to (an empty path: to the value itself).
// ResourceExhausted when it is nested too deep or too large.
absl::StatusOr<Value> ValueOfJson(Heap& heap, const Json& json, const std::vector<KeyPath>& paths, int depth);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_HEAP_H_
