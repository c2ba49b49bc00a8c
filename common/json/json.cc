#include "common/json/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr size_t kShortListBytes = 100;

bool HoldsObjects(const Json& json) {
  if (!json.is_array()) return json.is_object();
  return std::any_of(json.begin(), json.end(), HoldsObjects);
}

// [1, 2, [3, 4]]
std::string OneLine(const Json& json) {
  if (!json.is_array()) return CompactJson(json);
  std::string text = "[";
  for (const Json& item : json) absl::StrAppend(&text, text.size() == 1 ? "" : ", ", OneLine(item));
  return text + "]";
}

// Appends the value, whose first line is indented already.
void AppendPretty(const Json& json, size_t indent, std::string* text) {
  if (!json.is_structured() || json.empty()) {
    text->append(CompactJson(json));
    return;
  }
  // A longer list has more items than fit, whatever they are: its line is not even made.
  if (json.is_array() && json.size() <= kShortListBytes / 2 && !HoldsObjects(json)) {
    const std::string line = OneLine(json);
    if (line.size() <= kShortListBytes) {
      text->append(line);
      return;
    }
  }
  text->push_back(json.is_array() ? '[' : '{');
  const char* separator = "\n";
  for (const auto& [key, value] : json.items()) {
    absl::StrAppend(text, separator, std::string(indent + 2, ' '));
    if (json.is_object()) absl::StrAppend(text, CompactJson(key), ": ");
    AppendPretty(value, indent + 2, text);
    separator = ",\n";
  }
  absl::StrAppend(text, "\n", std::string(indent, ' '), json.is_array() ? "]" : "}");
}

}  // namespace

Json FloatJson(float value) {
  if (!std::isfinite(value)) return nullptr;
  // The library prints the shortest form of a double. The double nearest to the float's shortest form has that same
  // form.
  char digits[64];
  const std::to_chars_result result = std::to_chars(digits, digits + sizeof(digits) - 1, value);
  *result.ptr = '\0';
  return std::strtod(digits, nullptr);
}

std::string CompactJson(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string PrettyJson(const Json& json) {
  std::string text;
  AppendPretty(json, 0, &text);
  return text + "\n";
}

std::string JsonString(absl::string_view text) { return CompactJson(std::string(text)); }

Json ReadJson(absl::string_view text) {
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

}  // namespace stagecoach
