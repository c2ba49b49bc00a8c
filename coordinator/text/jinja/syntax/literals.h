#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_LITERALS_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_LITERALS_H_

// Numbers and strings as Python writes and reads them.

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/text/jinja/values/value.h"

namespace stagecoach::jinja {

// The length of the float ("1.5", "1e9", "1_000.0") or integer ("0x1F", "1_000") that `text`, which begins with a
// digit, begins with; 0 when it is no float. The integer part of "012" is its zero.
size_t FloatBytes(absl::string_view text);
size_t IntegerBytes(absl::string_view text);

// Of a whole text of that many bytes.
double ParseFloat(absl::string_view text);
bool ParseInteger(absl::string_view text, Integer* value);  // false when it is too large

// int(text, base) and float(text): nothing when Python refuses, or when an integer is too large.
std::optional<Integer> IntegerOfText(absl::string_view text, int base);
std::optional<double> FloatOfText(absl::string_view text);

// What is between the quotes of a string literal. InvalidArgument for an escape that is none.
absl::StatusOr<std::string> Unescaped(absl::string_view text);

// Without the sign; bases up to 16.
std::string IntegerDigits(Integer value, unsigned base);
// repr(): "5", "5.0", "1e-07".
std::string IntegerText(Integer value);
std::string FloatText(double value);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_LITERALS_H_
