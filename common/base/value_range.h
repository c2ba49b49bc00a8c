#ifndef STAGECOACH_COMMON_BASE_VALUE_RANGE_H_
#define STAGECOACH_COMMON_BASE_VALUE_RANGE_H_

// The allowed values of a number, with the one wording for a number out of range; and the one table of an enum's names,
// for options, messages and JSON:
//   inline constexpr NamedValue<Colour> kColours[] = {{Colour::kRed, "red"}, {Colour::kBlue, "blue"}};
//   NameOf(kColours, Colour::kRed), ParseName(kColours, "colour", "blue"), NamesIn(kColours)

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

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

// As people write it: 10000000 and 0.000001, not 1e+07 and 1e-06.
inline std::string PlainNumber(double value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (std::abs(value) <= kExact && value == std::floor(value)) return absl::StrCat(static_cast<int64_t>(value));
  if (std::abs(value) >= 1e-4) return absl::StrCat(value);
  std::string text = absl::StrFormat("%.12f", value);
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

// "expected 1 to 64", "expected 1 or more", "expected more than 0 and up to 1".
inline std::string Expected(IntegerRange range) {
  if (range.max == std::numeric_limits<int64_t>::max()) return absl::StrCat("expected ", range.min, " or more");
  return absl::StrCat("expected ", range.min, " to ", range.max);
}
inline std::string Expected(NumberRange range) {
  return absl::StrCat("expected ", range.open_min ? "more than " : "", PlainNumber(range.min),
                      range.open_min ? " and up to " : " to ", PlainNumber(range.max));
}

// OK, or kOutOfRange: "-1 is out of range, expected 0 to 100". NaN and infinities are out of range.
inline absl::Status CheckInteger(int64_t value, IntegerRange range) {
  if (Contains(range, value)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(value, " is out of range, ", Expected(range)));
}
inline absl::Status CheckNumber(double value, NumberRange range) {
  if (Contains(range, value)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(value, " is out of range, ", Expected(range)));
}

template <typename Enum>
struct NamedValue {
  Enum value;
  const char* name;
};

// "invalid" for a value that is not in the table.
template <typename Enum, size_t kCount>
constexpr const char* NameOf(const NamedValue<Enum> (&table)[kCount], Enum value) {
  for (const NamedValue<Enum>& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "invalid";
}

// "red, blue"
template <typename Enum, size_t kCount>
std::string NamesIn(const NamedValue<Enum> (&table)[kCount]) {
  std::string names;
  for (const NamedValue<Enum>& entry : table) absl::StrAppend(&names, names.empty() ? "" : ", ", entry.name);
  return names;
}

// kInvalidArgument: "`colour` is 'green', expected one of red, blue".
template <typename Enum, size_t kCount>
absl::StatusOr<Enum> ParseName(const NamedValue<Enum> (&table)[kCount], absl::string_view field,
                               absl::string_view name) {
  for (const NamedValue<Enum>& entry : table) {
    if (name == entry.name) return entry.value;
  }
  return absl::InvalidArgumentError(absl::StrCat("`", field, "` is '", name, "', expected one of ", NamesIn(table)));
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_VALUE_RANGE_H_
