#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_OPERATORS_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_OPERATORS_H_

// What + - * / // % ** == < and `in` do, as Python has them. InvalidArgument, without a line, where the types do not
// fit.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/text/jinja/ast.h"
#include "coordinator/text/jinja/heap.h"

namespace stagecoach::jinja {

absl::StatusOr<Value> Calculate(Heap& heap, ArithmeticOperator op, const Value& a, const Value& b);
absl::StatusOr<Value> SignedValue(const Value& value, bool negative);

// Deep; 1 == true == 1.0.
absl::StatusOr<bool> Equal(Heap& heap, const Value& a, const Value& b);
absl::StatusOr<bool> Less(Heap& heap, const Value& a, const Value& b);
absl::StatusOr<bool> Compare(Heap& heap, Comparator comparator, const Value& a, const Value& b);
absl::StatusOr<bool> Contains(Heap& heap, const Value& container, const Value& item);

// `key` as Dict takes it: equal values have equal keys. InvalidArgument for what can be no key.
absl::StatusOr<std::string> DictKey(Heap& heap, const Value& key);

// Sorts stably by `key_of(element)`.
template <typename T, typename KeyOf>
absl::Status SortBy(Heap& heap, KeyOf key_of, bool reverse, std::vector<T>* elements) {
  absl::Status status;
  // Once a comparison has failed all are false, which leaves no order to break.
  const auto before = [&](const T& a, const T& b) {
    if (!status.ok()) return false;
    const absl::StatusOr<bool> less = reverse ? Less(heap, key_of(b), key_of(a)) : Less(heap, key_of(a), key_of(b));
    if (!less.ok()) status = less.status();
    return less.ok() && *less;
  };
  std::stable_sort(elements->begin(), elements->end(), before);
  return status;
}

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_OPERATORS_H_
