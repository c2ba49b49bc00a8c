#ifndef STAGECOACH_COMMON_JSON_JSON_H_
#define STAGECOACH_COMMON_JSON_JSON_H_

// JSON: its type and its texts, of which we are the author; json_input.h reads those of strangers. The library's full
// header costs seconds a unit, hence only what builds values or looks into them includes it, by json_value.h. It
// instantiates a reader and a writer in each unit that calls its own, hence nothing but these functions does.

#include <cstddef>
#include <string>

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
// The same, with on one line whatever fits in so many characters with its indentation.
std::string WrappedJson(const Json& json, size_t line_bytes);
// A text with quotes around it, as CompactJson writes it.
std::string JsonString(absl::string_view text);

// The value of a text, without limits of its own; is_discarded() where it is no JSON. Of a key that stands twice the
// last value counts.
Json ReadJson(absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_JSON_JSON_H_
