#include "coordinator/text/grammar/json/number_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

// The last integer that a bound lets be, within what an int64_t can be counted on from.
int64_t IntegerBound(const Json& bound, bool upper, bool exclusive) {
  constexpr int64_t kMost = 2 * JsonRules::kMostInteger;
  int64_t value = 0;
  if (bound.is_number_unsigned()) {
    value = static_cast<int64_t>(std::min<uint64_t>(bound.get<uint64_t>(), kMost));
  } else if (bound.is_number_integer()) {
    value = std::clamp<int64_t>(bound.get<int64_t>(), -kMost, kMost);
  } else {
    const auto most = static_cast<double>(kMost);
    const double number = std::clamp(bound.get<double>(), -most, most);
    const double whole = upper ? std::floor(number) : std::ceil(number);
    value = static_cast<int64_t>(whole);
    exclusive &= whole == number;
  }
  return exclusive ? value + (upper ? -1 : 1) : value;
}

// The same of numbers, in units of JsonRules::BoundedNumber. What readers' doubles may not tell from a bound that does
// not count itself does not count either.
int64_t NumberBound(const Json& bound, bool upper, bool exclusive) {
  constexpr double kUnits = 1'000'000, kMost = 2e18;  // beyond kMostInteger
  const double number = bound.get<double>(), scaled = std::clamp(number * kUnits, -kMost, kMost);
  const double nearest = std::round(scaled);
  const bool exact = nearest / kUnits == number, counts = exact ? !exclusive : nearest != scaled;
  const auto value = static_cast<int64_t>(exact ? nearest : upper ? std::floor(scaled) : std::ceil(scaled));
  const int64_t step = counts ? 0 : std::abs(number) < 1e9 ? 1 : 1'000'000;
  return upper ? value - step : value + step;
}

}  // namespace

absl::StatusOr<ExprId> AddNumber(bool is_integer, const SchemaKeywords& all, const SchemaPlace& place,
                                 JsonRules* json) {
  int64_t min = -JsonRules::kMostInteger, max = JsonRules::kMostInteger;
  bool is_bounded = false;
  for (const bool exclusive : {false, true}) {
    for (const bool upper : {false, true}) {
      const char* const keyword =
          exclusive ? (upper ? "exclusiveMaximum" : "exclusiveMinimum") : (upper ? "maximum" : "minimum");
      const SchemaPlace* const bound = all.Find(keyword);
      if (bound == nullptr) continue;
      if (!bound->json->is_number()) return bound->Malformed("a number");
      const int64_t last = (is_integer ? IntegerBound : NumberBound)(*bound->json, upper, exclusive);
      (upper ? max : min) = upper ? std::min(max, last) : std::max(min, last);
      is_bounded = true;
    }
  }
  if (min > max) {
    const bool beyond = (min > JsonRules::kMostInteger && max == JsonRules::kMostInteger) ||
                        (max < -JsonRules::kMostInteger && min == -JsonRules::kMostInteger);
    if (!beyond) return place.NoValue();
    const int digits = is_integer ? 18 : 12;
    return place.Unsupported(absl::StrCat("expected bounds that leave numbers between -10^", digits, " and 10^", digits,
                                          ", as no others are written"));
  }
  if (is_integer) return json->Integer(min, max);
  return is_bounded ? json->BoundedNumber(min, max) : json->Number();
}

}  // namespace stagecoach
