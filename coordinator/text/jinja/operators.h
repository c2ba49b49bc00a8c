#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_OPERATORS_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_OPERATORS_H_

// What + - * / // % ** == < and `in` do, and access to values, as in Python. InvalidArgument (no line): wrong types.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/text/jinja/syntax/ast.h"
#include "coordinator/text/jinja/values/heap.h"

namespace stagecoach::jinja {

// All arithmetic operators, as a template writes them.
constexpr std::pair<absl::string_view, ArithmeticOperator> kArithmeticOperators[] = {
    {"+", ArithmeticOperator::kAdd},    {"-", ArithmeticOperator::kSubtract},     {"*", ArithmeticOperator::kMultiply},
    {"/", ArithmeticOperator::kDivide}, {"//", ArithmeticOperator::kFloorDivide}, {"%", ArithmeticOperator::kRemainder},
    {"**", ArithmeticOperator::kPower}};

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

// access.cc: what x.name, x[key], x[a:b] and loops take out of values. What is merely not there is undefined.

// x.name: a method first, then the key. `name` lives as long as the value that comes back is used.
absl::StatusOr<Value> Attribute(Heap& heap, const Value& object, const std::string& name);

// x[key]: the key first, then, for a name, the method. `name` as in Attribute, or null when the template has none.
absl::StatusOr<Value> Item(Heap& heap, const Value& object, const Value& key, const std::string* name);

// x[begin:end:stride]; each may be none.
absl::StatusOr<Value> Slice(Heap& heap, const Value& object, const Value& begin, const Value& end, const Value& stride);

// The integers from `begin` on, `stride` apart, that are before `end`, as Python's ranges and slices have them.
struct IntegerRange {
  Integer begin = 0, end = 0, stride = 1;

  Integer Count() const {
    if (stride > 0) return begin < end ? (end - begin - 1) / stride + 1 : 0;
    return begin > end ? (begin - end - 1) / -stride + 1 : 0;
  }
};

// x['a']['b'][0] for "a.b.0", as filters take attributes; an integer is an index.
absl::StatusOr<Value> AttributePath(Heap& heap, const Value& object, const Value& path);

// What a loop over it goes through: of a string its characters, of a dict its keys. It empties a generator.
absl::StatusOr<Items> Iterate(Heap& heap, const Value& iterable);

// len(). InvalidArgument for what has none.
absl::StatusOr<Integer> Length(const Value& value);

// The characters [begin, end) of a string.
absl::StatusOr<Value> Characters(Heap& heap, const String& string, size_t begin, size_t end);

// Where `part` begins in `text` from the byte `begin` on; npos when nowhere. Linear in the text, whatever the part is.
size_t FindText(absl::string_view text, absl::string_view part, size_t begin);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_OPERATORS_H_
