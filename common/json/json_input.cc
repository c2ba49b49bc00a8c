#include "common/json/json_input.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr int kNumberOverflow = 406;  // the library's number of that error

// Reads a text and keeps nothing but the keys of what is open. (The library can ask about values while it builds them,
// but then looks through all of a list at the end of each object in it.)
class JsonCheck final : public nlohmann::json_sax<Json> {
 public:
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
    if (!is_new) {
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

  absl::Status status_;
  size_t depth_ = 0;
  size_t all_keys_ = 0;
  struct OpenObject {
    std::set<std::string> keys;
    const std::string* latest = nullptr;  // of these, whose value is being read
  };
  std::vector<OpenObject> open_;
};

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  JsonCheck check;
  if (!Json::sax_parse(text.begin(), text.end(), &check)) return check.status();
  // The library takes it for the end, whatever follows.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    return absl::InvalidArgumentError(absl::StrCat("expected JSON, found: a NUL behind the value, at byte ", nul + 1));
  }
  return ReadJson(text);
}

}  // namespace stagecoach
