#ifndef STAGECOACH_COMMON_JSON_JSON_H_
#define STAGECOACH_COMMON_JSON_JSON_H_

// JSON: the type, and its text form. The library's full header costs seconds a unit, so only code that builds or
// inspects values includes it, by json_value.h. Its reader and writer are instantiated in every unit that calls them,
// so only these functions do.

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace stagecoach {

using Json = nlohmann::ordered_json;  // keys appear in the order in which they were set

// The number with the fewest digits that give this float back; null for what JSON cannot hold.
Json FloatJson(float value);

// One line without a newline at its end. Invalid UTF-8 becomes U+FFFD.
std::string CompactJson(const Json& json);
// Indented, with a newline at its end. A list without objects that fits in 100 characters is one line.
std::string PrettyJson(const Json& json);
// The same, but with every value on one line that fits in so many characters with its indentation.
std::string WrappedJson(const Json& json, size_t line_bytes);
// A text with quotes around it, as CompactJson writes it.
std::string JsonString(absl::string_view text);

// The value of a text, without limits; is_discarded() if it is no JSON. The last value of a repeated key counts.
Json ReadJson(absl::string_view text);

// Of JSON that strangers wrote. Code that walks a value is recursive, and ordered objects look keys up one by one.
inline constexpr size_t kMostJsonDepth = 64;        // lists and objects in each other
inline constexpr size_t kMostKeysOfObject = 1'024;  // and each once: readers understand two in different ways
inline constexpr size_t kMostKeysOfJson = 200'000;  // of all objects together

// What becomes of a key that stands again in its object.
enum class RepeatedKeys {
  kRefused,
  kLastCounts,  // in what a model wrote, which is not written again
};

// The one value that `text` holds. kInvalidArgument: it is no JSON in UTF-8, and where, or exceeds a limit.
absl::StatusOr<Json> ParseJson(absl::string_view text, RepeatedKeys repeated = RepeatedKeys::kRefused);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_JSON_JSON_H_
