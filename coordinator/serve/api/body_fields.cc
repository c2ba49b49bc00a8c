#include "coordinator/serve/api/body_fields.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr double kFirstInexact = 9007199254740992;  // 2^53: the next integer is the same double

// Of ParseJson: it gives an integer of a type with a sign to none but what was written with one.
bool IsNegativeZero(const Json& value) {
  if (value.is_number_float()) return value.get<double>() == 0 && std::signbit(value.get<double>());
  return value.is_number_integer() && !value.is_number_unsigned() && value.get<int64_t>() == 0;
}

absl::Status OutOfRange(absl::string_view field, absl::string_view shown, IntegerRange range) {
  return WrongField(field, absl::StrCat(shown, " is out of range, ", Expected(range)));
}

}  // namespace

absl::StatusOr<Json> ParseBody(absl::string_view body) {
  absl::StatusOr<Json> json = ParseJson(body);
  if (!json.ok()) return ApiStatus(ApiErrorCode::kInvalidJson, json.status().message());
  if (json->is_object()) return json;
  return ApiStatus(ApiErrorCode::kInvalidJson, absl::StrCat("expected an object, found ", json->type_name()));
}

absl::Status WrongField(absl::string_view field, absl::string_view what) {
  return ApiStatus(ApiErrorCode::kInvalidValue, absl::StrCat("'", field, "': ", what), field);
}

absl::Status WrongType(absl::string_view field, absl::string_view expected, const Json& found) {
  return WrongField(field, absl::StrCat("expected ", expected, ", found ", found.type_name()));
}

absl::Status MissingField(absl::string_view field) {
  return ApiStatus(ApiErrorCode::kMissingParameter, absl::StrCat("'", field, "': is missing"), field);
}

absl::Status CheckSize(absl::string_view field, size_t size, absl::string_view unit, size_t most) {
  if (size <= most) return absl::OkStatus();
  return WrongField(field, absl::StrCat("has ", size, " ", unit, ", expected at most ", most));
}

std::string ShownValue(const Json& value) {
  return value.is_structured() ? value.type_name() : CutText(CompactJson(value));
}

absl::Status Misplaced(const std::string& place, absl::string_view what) {
  return ApiStatus(ApiErrorCode::kInvalidValue, absl::StrCat(place, ": ", what), place);
}

absl::Status MisplacedType(const std::string& place, absl::string_view expected, const Json& found) {
  return Misplaced(place, absl::StrCat("expected ", expected, ", found ", found.type_name()));
}

absl::Status MissingAt(const std::string& place) {
  return ApiStatus(ApiErrorCode::kMissingParameter, absl::StrCat(place, ": is missing"), place);
}

const Json* Member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<std::string> StringMember(const std::string& place, const Json& object, const char* name) {
  const Json* value = Member(object, name);
  const std::string member = absl::StrCat(place, ".", name);
  if (value == nullptr) return MissingAt(member);
  if (!value->is_string()) return MisplacedType(member, "a string", *value);
  return value->get<std::string>();
}

absl::Status CopyString(const std::string& place, const Json& from, const char* name, const char* as, Json* to) {
  const Json* value = Member(from, name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_string()) return MisplacedType(absl::StrCat(place, ".", name), "a string", *value);
  (*to)[as] = *value;
  return absl::OkStatus();
}

std::string TextOf(const Json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto found = object.find(name);
  return found == object.end() || !found->is_string() ? "" : found->get<std::string>();
}

absl::Status ReadBool(absl::string_view field, const Json& value, bool* out) {
  if (!value.is_boolean()) return WrongType(field, "true or false", value);
  *out = value.get<bool>();
  return absl::OkStatus();
}

absl::Status ReadString(absl::string_view field, const Json& value, std::string* out) {
  if (!value.is_string()) return WrongType(field, "a string", value);
  *out = value.get_ref<const std::string&>();
  return absl::OkStatus();
}

std::optional<int64_t> IntegerOfFloat(const Json& value) {
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::fabs(number) < kFirstInexact) || std::trunc(number) != number) return std::nullopt;
  return static_cast<int64_t>(number);
}

absl::Status ReadNumber(absl::string_view field, const Json& value, IntegerRange range, int64_t* out) {
  if (!value.is_number()) return WrongType(field, "an integer", value);
  if (IsNegativeZero(value) && range.min >= 0) return OutOfRange(field, "-0", range);
  int64_t number = 0;
  if (value.is_number_float()) {
    const std::optional<int64_t> exact = IntegerOfFloat(value);
    const bool too_large = std::fabs(value.get<double>()) >= kFirstInexact;
    if (!exact.has_value() && too_large) return OutOfRange(field, ShownValue(value), range);
    if (!exact.has_value()) return WrongField(field, absl::StrCat("expected an integer, found ", ShownValue(value)));
    number = *exact;
  } else if (value.is_number_unsigned() &&
             value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return OutOfRange(field, ShownValue(value), range);
  } else {
    number = value.get<int64_t>();
  }
  if (absl::Status status = CheckInteger(number, range); !status.ok()) return WrongField(field, status.message());
  *out = number;
  return absl::OkStatus();
}

absl::Status ReadNumber(absl::string_view field, const Json& value, IntegerRange range, int32_t* out) {
  int64_t wide = 0;
  RETURN_IF_ERROR(ReadNumber(field, value, range, &wide));
  *out = static_cast<int32_t>(wide);
  return absl::OkStatus();
}

absl::Status ReadNumber(absl::string_view field, const Json& value, NumberRange range, float* out) {
  if (!value.is_number()) return WrongType(field, "a number", value);
  const double number = value.get<double>();
  if (absl::Status status = CheckNumber(number, range); !status.ok()) return WrongField(field, status.message());
  // What is in the range may leave it when it is rounded: 1e-60 is above 0, but 0 as a float.
  const float rounded = static_cast<float>(number);
  if (absl::Status status = CheckNumber(rounded, range); !status.ok()) return WrongField(field, status.message());
  *out = rounded + 0.0f;  // -0 is 0
  return absl::OkStatus();
}

absl::Status ReadTokens(absl::string_view field, const Json& list, int64_t vocab, std::vector<TokenId>* out) {
  for (const Json& element : list) {
    RETURN_IF_ERROR(ReadNumber(field, element, IntegerRange{0, vocab - 1}, &out->emplace_back()));
  }
  return absl::OkStatus();
}

const Json* FieldReader::Find(absl::string_view field) {
  const std::string name(field);
  known_.insert(name);
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

absl::Status FieldReader::Bool(absl::string_view field, bool* out) {
  const Json* value = Find(field);
  return value == nullptr ? absl::OkStatus() : ReadBool(field, *value, out);
}

absl::Status FieldReader::String(absl::string_view field, std::string* out) {
  const Json* value = Find(field);
  return value == nullptr ? absl::OkStatus() : ReadString(field, *value, out);
}

absl::StatusOr<const Json*> FieldReader::FindObject(absl::string_view field) {
  const Json* value = Find(field);
  if (value != nullptr && !value->is_object()) return WrongType(field, "an object", *value);
  return value;
}

std::vector<std::string> FieldReader::Unknown() const {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : object_->items()) {
    if (!value.is_null() && !known_.contains(name)) unknown.push_back(name);
  }
  return unknown;
}

}  // namespace stagecoach
