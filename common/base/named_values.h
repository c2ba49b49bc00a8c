#ifndef STAGECOACH_COMMON_BASE_NAMED_VALUES_H_
#define STAGECOACH_COMMON_BASE_NAMED_VALUES_H_

// The one table of an enum's names, for options, messages and JSON.
//   inline constexpr NamedValue<Colour> kColours[] = {{Colour::kRed, "red"}, {Colour::kBlue, "blue"}};
//   NameOf(kColours, Colour::kRed), ParseName(kColours, "colour", "blue"), NamesIn(kColours)

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

template <typename Enum>
struct NamedValue {
  Enum value;
  const char* name;
};

// A value outside of the table, which no checked value is: "invalid".
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

#endif  // STAGECOACH_COMMON_BASE_NAMED_VALUES_H_
