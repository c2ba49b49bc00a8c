#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_value_type.h"

namespace stagecoach {
namespace {

constexpr const char* kKindNames[] = {"unsigned integer", "signed integer", "float", "bool", "string", "array"};
constexpr const char* kElementNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};

std::string KindName(const GgufValue& value) {
  if (const auto* array = std::get_if<GgufArray>(&value)) {
    return absl::StrCat("array of ", kElementNames[array->element_type]);
  }
  return kKindNames[value.index()];
}

absl::Status WrongType(const GgufMetadata& metadata, absl::string_view key, const GgufValue& value,
                       absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", metadata.path(), "': key '", key, "' has type ", KindName(value), ", expected ", expected));
}

absl::StatusOr<const GgufValue*> Require(const GgufMetadata& metadata, absl::string_view key) {
  const GgufValue* value = metadata.Find(key);
  if (value == nullptr) return absl::NotFoundError(absl::StrCat("'", metadata.path(), "': key '", key, "' is missing"));
  return value;
}

absl::Status TooLarge(const GgufMetadata& metadata, absl::string_view key, uint64_t value) {
  return absl::InvalidArgumentError(absl::StrCat("'", metadata.path(), "': key '", key, "' holds ", value,
                                                 ", expected at most ", std::numeric_limits<int64_t>::max()));
}

// The present value through `get`, the fallback when the key is absent.
template <typename T, typename Get>
absl::StatusOr<T> OrFallback(const GgufMetadata& metadata, absl::string_view key, T fallback, Get get) {
  if (!metadata.Has(key)) return fallback;
  return get();
}

}  // namespace

size_t GgufArray::size() const {
  return std::visit([](const auto& elements) { return elements.size(); }, values);
}

bool GgufMetadata::Has(absl::string_view key) const { return index_.contains(key); }

const GgufValue* GgufMetadata::Find(absl::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

absl::StatusOr<std::string> GgufMetadata::GetString(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(*this, key));
  const auto* text = std::get_if<std::string>(value);
  if (text == nullptr) return WrongType(*this, key, *value, "string");
  return *text;
}

absl::StatusOr<int64_t> GgufMetadata::GetInt(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(*this, key));
  if (const auto* number = std::get_if<int64_t>(value)) return *number;
  const auto* number = std::get_if<uint64_t>(value);
  if (number == nullptr) return WrongType(*this, key, *value, "an integer");
  if (*number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return TooLarge(*this, key, *number);
  return static_cast<int64_t>(*number);
}

absl::StatusOr<double> GgufMetadata::GetFloat(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(*this, key));
  const auto* number = std::get_if<double>(value);
  if (number == nullptr) return WrongType(*this, key, *value, "float");
  if (!std::isfinite(*number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path_, "': key '", key, "' holds ", *number, ", expected a finite number"));
  }
  return *number;
}

absl::StatusOr<bool> GgufMetadata::GetBool(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(*this, key));
  const auto* truth = std::get_if<bool>(value);
  if (truth == nullptr) return WrongType(*this, key, *value, "bool");
  return *truth;
}

absl::StatusOr<std::vector<std::string>> GgufMetadata::GetStrings(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(*this, key));
  const auto* array = std::get_if<GgufArray>(value);
  const auto* texts = array ? std::get_if<std::vector<std::string>>(&array->values) : nullptr;
  if (texts == nullptr) return WrongType(*this, key, *value, "array of string");
  return *texts;
}

absl::StatusOr<std::vector<int64_t>> GgufMetadata::GetInts(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(*this, key));
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr) return WrongType(*this, key, *value, "array of an integer type");
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&array->values)) return *numbers;
  const auto* numbers = std::get_if<std::vector<uint64_t>>(&array->values);
  if (numbers == nullptr) return WrongType(*this, key, *value, "array of an integer type");
  std::vector<int64_t> result;
  result.reserve(numbers->size());
  for (uint64_t number : *numbers) {
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return TooLarge(*this, key, number);
    result.push_back(static_cast<int64_t>(number));
  }
  return result;
}

absl::StatusOr<std::vector<float>> GgufMetadata::GetFloats(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(*this, key));
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr || array->element_type != static_cast<uint32_t>(GgufValueType::kF32)) {
    return WrongType(*this, key, *value, "array of f32");
  }
  const auto& numbers = std::get<std::vector<double>>(array->values);
  return std::vector<float>(numbers.begin(), numbers.end());
}

absl::StatusOr<int64_t> GgufMetadata::GetIntOr(absl::string_view key, int64_t fallback) const {
  return OrFallback(*this, key, fallback, [&] { return GetInt(key); });
}

absl::StatusOr<double> GgufMetadata::GetFloatOr(absl::string_view key, double fallback) const {
  return OrFallback(*this, key, fallback, [&] { return GetFloat(key); });
}

absl::StatusOr<bool> GgufMetadata::GetBoolOr(absl::string_view key, bool fallback) const {
  return OrFallback(*this, key, fallback, [&] { return GetBool(key); });
}

absl::StatusOr<std::string> GgufMetadata::GetStringOr(absl::string_view key, absl::string_view fallback) const {
  return OrFallback(*this, key, std::string(fallback), [&] { return GetString(key); });
}

}  // namespace stagecoach
