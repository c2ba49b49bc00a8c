#include "common/json/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
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

// The whole value on one line, or nothing where it has several.
using LineOf = std::function<std::optional<std::string>(const Json& json, size_t indent)>;

// Appends the value, whose first line is indented already.
void AppendLines(const Json& json, size_t indent, const LineOf& line_of, std::string* text) {
  const std::optional<std::string> line =
      !json.is_structured() || json.empty() ? CompactJson(json) : line_of(json, indent);
  if (line.has_value()) {
    text->append(*line);
    return;
  }
  text->push_back(json.is_array() ? '[' : '{');
  const char* separator = "\n";
  for (const auto& [key, value] : json.items()) {
    absl::StrAppend(text, separator, std::string(indent + 2, ' '));
    if (json.is_object()) absl::StrAppend(text, CompactJson(key), ": ");
    AppendLines(value, indent + 2, line_of, text);
    separator = ",\n";
  }
  absl::StrAppend(text, "\n", std::string(indent, ' '), json.is_array() ? "]" : "}");
}

constexpr int kNumberOverflow = 406;  // the library's number of that error

// Checks a text while reading it, keeping only the keys of open objects. (The library's own callback looks through all
// of a list at the end of each object in it.)
class JsonCheck final : public nlohmann::json_sax<Json> {
 public:
  explicit JsonCheck(RepeatedKeys repeated) : repeated_(repeated) {}

  const absl::Status& status() const { return status_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool start_object(size_t) override {
    open_.emplace_back();
    return Descend();
  }
  bool key(string_t& key) override {
    std::set<std::string>& keys = open_.back().keys;
    const auto [place, is_new] = keys.insert(key);
    open_.back().latest = &*place;
    if (!is_new && repeated_ == RepeatedKeys::kRefused) {
      return Refuse(absl::StrCat("every key once in an object, found ", CutText(CompactJson(key)), " twice"));
    }
    if (keys.size() > kMostKeysOfObject) {
      return Refuse(absl::StrCat("at most ", kMostKeysOfObject, " keys in an object, found more"));
    }
    if (++all_keys_ > kMostKeysOfJson) {
      return Refuse(absl::StrCat("at most ", kMostKeysOfJson, " keys in all objects together, found more"));
    }
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(size_t) override { return Descend(); }
  bool end_array() override {
    --depth_;
    return true;
  }

  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
  bool parse_error(size_t, const std::string& token, const nlohmann::detail::exception& error) override {
    if (error.id == kNumberOverflow) {
      const bool has_name = !open_.empty() && open_.back().latest != nullptr;
      return Refuse(absl::StrCat("a number between -1.8e308 and 1.8e308", has_name ? " for " : "",
                                 has_name ? CutText(CompactJson(*open_.back().latest)) : "", ", found ",
                                 CutText(token)));
    }
    const std::string what = error.what();
    const size_t tag = what.find("] ");
    // It shows all of a string that does not end.
    return Refuse(absl::StrCat("JSON, found: ", CutText(what.substr(tag == std::string::npos ? 0 : tag + 2))));
  }

 private:
  bool Descend() {
    if (++depth_ <= kMostJsonDepth) return true;
    return Refuse(absl::StrCat("at most ", kMostJsonDepth, " lists and objects in each other, found more"));
  }
  bool Refuse(absl::string_view expected) {
    status_ = absl::InvalidArgumentError(absl::StrCat("expected ", expected));
    return false;  // the library stops
  }

  const RepeatedKeys repeated_;
  absl::Status status_;
  size_t depth_ = 0;
  size_t all_keys_ = 0;
  struct OpenObject {
    std::set<std::string> keys;
    const std::string* latest = nullptr;  // of these, whose value is being read
  };
  std::vector<OpenObject> open_;
};

std::string Lines(const Json& json, const LineOf& line_of) {
  std::string text;
  AppendLines(json, 0, line_of, &text);
  return text + "\n";
}

std::optional<std::string> ShortList(const Json& json, size_t) {
  // A longer list has more items than fit, whatever they are: its line is not even made.
  if (!json.is_array() || json.size() > kShortListBytes / 2 || HoldsObjects(json)) return std::nullopt;
  std::string line = OneLine(json);
  if (line.size() > kShortListBytes) return std::nullopt;
  return line;
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

std::string PrettyJson(const Json& json) { return Lines(json, ShortList); }

std::string WrappedJson(const Json& json, size_t line_bytes) {
  return Lines(json, [line_bytes](const Json& value, size_t indent) -> std::optional<std::string> {
    std::string line = CompactJson(value);
    if (indent + line.size() > line_bytes) return std::nullopt;
    return line;
  });
}

std::string JsonString(absl::string_view text) { return CompactJson(std::string(text)); }

Json ReadJson(absl::string_view text) {
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

absl::StatusOr<Json> ParseJson(absl::string_view text, RepeatedKeys repeated) {
  JsonCheck check(repeated);
  if (!Json::sax_parse(text.begin(), text.end(), &check)) return check.status();
  // The library takes it for the end, whatever follows.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    return absl::InvalidArgumentError(absl::StrCat("expected JSON, found: a NUL behind the value, at byte ", nul + 1));
  }
  return ReadJson(text);
}

}  // namespace stagecoach
