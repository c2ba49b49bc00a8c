#ifndef STAGECOACH_COMMON_BASE_VALUE_RANGE_H_
#define STAGECOACH_COMMON_BASE_VALUE_RANGE_H_

// The range of a number that a user, a file or a request gives, and the one wording for a number outside it.

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace stagecoach {

struct IntegerRange {
  int64_t min;
  int64_t max;
};
struct NumberRange {
  double min;
  double max;
  bool open_min = false;  // `min` itself is not in the range
};

// NaN is in no range.
constexpr bool Contains(IntegerRange range, int64_t value) { return value >= range.min && value <= range.max; }
constexpr bool Contains(NumberRange range, double value) {
  return (range.open_min ? value > range.min : value >= range.min) && value <= range.max;
}

// "expected 1 to 64", "expected 1 or more", "expected more than 0 and up to 1".
std::string Expected(IntegerRange range);
std::string Expected(NumberRange range);

// OK, or kOutOfRange: "-1 is out of range, expected 0 to 100". What is no finite number is out of range.
absl::Status CheckInteger(int64_t value, IntegerRange range);
absl::Status CheckNumber(double value, NumberRange range);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_VALUE_RANGE_H_
