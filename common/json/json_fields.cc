#include "common/json/json_fields.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/shown_text.h"

namespace stagecoach {
namespace {

// "an integer, 1 to 64"
std::string RangeText(absl::string_view what, const std::string& expected) {
  return absl::StrCat(what, absl::StripPrefix(expected, "expected "));
}

}  // namespace

absl::StatusOr<std::string> ReadDocument(const std::string& path, absl::string_view what, size_t most_bytes) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text(most_bytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad() || (in.gcount() == 0 && errno != 0)) {
    return absl::NotFoundError(absl::StrCat("cannot read '", path, "': ", std::strerror(errno == 0 ? EIO : errno)));
  }
  text.erase(static_cast<size_t>(in.gcount()));
  if (text.size() <= most_bytes) return text;
  return absl::NotFoundError(absl::StrCat("'", path, "' has more than ", most_bytes, " bytes and is no ", what));
}

std::string JsonReader::Shown(const Json& value) {
  if (value.is_string()) return ShownText(value.get_ref<const std::string&>());
  return value.is_structured() ? value.type_name() : CompactJson(value);
}

JsonReader::JsonReader(absl::string_view file, std::string path, const Json& object, absl::Status* status)
    : file_(file), path_(std::move(path)), object_(object), status_(*status) {
  if (!object.is_object()) Fail("", "an object", Shown(object));
}

bool JsonReader::Has(const char* name, bool) {
  known_.insert(name);
  return object_.is_object() && object_.contains(name);
}

const Json* JsonReader::Find(const char* name, bool required) {
  if (Has(name)) return &object_[name];
  if (required && object_.is_object()) Fail(name, "a value", "none");
  return nullptr;
}

std::optional<int64_t> JsonReader::ReadInteger(const char* name, IntegerRange range, std::optional<int64_t> absent) {
  const Json* found = Find(name, !absent.has_value());
  return found == nullptr ? absent : IntegerOf(name, *found, range);
}

std::optional<int64_t> JsonReader::IntegerOf(absl::string_view name, const Json& value, IntegerRange range) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() &&
                      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (fits && Contains(range, value.get<int64_t>())) return value.get<int64_t>();
  Fail(name, RangeText("an integer, ", Expected(range)), Shown(value));
  return std::nullopt;
}

void JsonReader::Field(const char* name, bool& value) {
  const Json* found = Find(name, /*required=*/true);
  if (found == nullptr) return;
  if (!found->is_boolean()) return Fail(name, "true or false", Shown(*found));
  value = found->get<bool>();
}

void JsonReader::Field(const char* name, uint64_t& value) {
  const Json* found = Find(name, /*required=*/true);
  if (found == nullptr) return;
  if (!found->is_number_unsigned()) return Fail(name, "an integer, 0 or more", Shown(*found));
  value = found->get<uint64_t>();
}

void JsonReader::Field(const char* name, double& value, NumberRange range, std::optional<double> absent) {
  const Json* found = Find(name, !absent.has_value());
  if (found != nullptr && !(found->is_number() && Contains(range, found->get<double>()))) {
    return Fail(name, RangeText("a number, ", Expected(range)), Shown(*found));
  }
  value = found != nullptr ? found->get<double>() : absent.value_or(value);
}

void JsonReader::Field(const char* name, std::string& value, IntegerRange bytes,
                       const std::optional<std::string>& absent) {
  const Json* found = Find(name, !absent.has_value());
  if (found != nullptr &&
      !(found->is_string() && Contains(bytes, static_cast<int64_t>(found->get_ref<const std::string&>().size())))) {
    return Fail(name, absl::StrCat("a text of ", bytes.min, " to ", bytes.max, " bytes"), Shown(*found));
  }
  value = found != nullptr ? found->get<std::string>() : absent.value_or(value);
}

void JsonReader::Field(const char* name, std::string& value, TextCheck check,
                       const std::optional<std::string>& absent) {
  const Json* found = Find(name, !absent.has_value());
  if (found != nullptr && !found->is_string()) return Fail(name, "a text", Shown(*found));
  value = found != nullptr ? found->get<std::string>() : absent.value_or(value);
  if (!status_.ok() || (absent.has_value() && value == *absent)) return;
  if (const absl::Status checked = check(value); !checked.ok()) Refuse(name, checked.message());
}

void JsonReader::Hash(const char* name, uint64_t& value) {
  const Json* found = Find(name, /*required=*/true);
  if (found == nullptr) return;
  const std::string text = found->is_string() ? found->get<std::string>() : "";
  if (text.size() == 16 && absl::SimpleHexAtoi(text, &value)) return;
  Fail(name, "16 hexadecimal digits", Shown(*found));
}

void JsonReader::Texts(const char* name, std::vector<std::string>& values, TextCheck check, bool required) {
  const Json* found = List(name, required);
  for (size_t i = 0; found != nullptr && i < found->size() && status_.ok(); ++i) {
    const Json& text = (*found)[i];
    if (!text.is_string()) return Fail(name, "a list of texts", Shown(text));
    values.push_back(text.get<std::string>());
    if (const absl::Status checked = check(values.back()); !checked.ok()) Refuse(name, checked.message());
  }
}

const Json* JsonReader::List(const char* name, bool required) {
  const Json* found = Find(name, required);
  if (found == nullptr || found->is_array()) return found;
  Fail(name, "a list", Shown(*found));
  return nullptr;
}

void JsonReader::End() {
  if (!object_.is_object()) return;
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name)) {
      Fail(name, absl::StrCat("one of ", absl::StrJoin(known_, ", ")), "a field of another name");
    }
  }
}

void JsonReader::Fail(absl::string_view name, absl::string_view expected, absl::string_view found) {
  Refuse(name, absl::StrCat("expected ", expected, ", found ", found));
}

void JsonReader::Refuse(absl::string_view name, absl::string_view what) {
  if (!status_.ok()) return;
  const std::string place = name.empty() ? (path_.empty() ? "the document" : path_) : PathOf(name);
  status_ = absl::InvalidArgumentError(
      absl::StrCat(file_.empty() ? "" : absl::StrCat("'", file_, "': "), place, ": ", CutText(what, 600)));
}

}  // namespace stagecoach
