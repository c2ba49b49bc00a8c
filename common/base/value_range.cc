#include "common/base/value_range.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace stagecoach {

std::string Expected(IntegerRange range) {
  if (range.max == std::numeric_limits<int64_t>::max()) return absl::StrCat("expected ", range.min, " or more");
  return absl::StrCat("expected ", range.min, " to ", range.max);
}

std::string Expected(NumberRange range) {
  return absl::StrCat("expected ", range.open_min ? "more than " : "", range.min,
                      range.open_min ? " and up to " : " to ", range.max);
}

absl::Status CheckInteger(int64_t value, IntegerRange range) {
  if (Contains(range, value)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(value, " is out of range, ", Expected(range)));
}

absl::Status CheckNumber(double value, NumberRange range) {
  if (Contains(range, value)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(value, " is out of range, ", Expected(range)));
}

}  // namespace stagecoach
