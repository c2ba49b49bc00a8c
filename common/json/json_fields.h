#ifndef STAGECOACH_COMMON_JSON_JSON_FIELDS_H_
#define STAGECOACH_COMMON_JSON_JSON_FIELDS_H_

// The fields of an object of JSON, declared once for reading and for writing:
//
//   template <typename Fields, typename Link>
//   void VisitLink(Fields& fields, Link& link) {
//     fields.Field("latency_us", link.latency_us, kTimeRange);
//     fields.Field("jitter_us", link.jitter_us, kTimeRange, 0.0);  // 0 where it is absent
//     fields.End();
//   }
//
// with a JsonReader and a Link&, or with a JsonWriter and a const Link&.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/value_range.h"
#include "common/json/json_value.h"

namespace stagecoach {

// The text of a document's file. kNotFound: the path and the reason, also for a file that is too large to be a `what`
// ("host profile").
absl::StatusOr<std::string> ReadDocument(const std::string& path, absl::string_view what,
                                         size_t most_bytes = size_t{16} << 20);

// OK, or kInvalidArgument that says what a text is and what was expected.
using TextCheck = absl::Status (*)(const std::string& text);

// Reads one object. The first error stays; it names the file, the place, what was expected and what was found. A field
// with an error keeps its value, and the others are still read. A field without `absent` is required.
class JsonReader {
 public:
  // `path`: of the object, "hosts[2]"; empty: it is the document. All outlive the reader.
  JsonReader(absl::string_view file, std::string path, const Json& object, absl::Status* status);

  bool Has(const char* name, bool written = false);   // `written` is for a JsonWriter
  const Json* Find(const char* name, bool required);  // nullptr: it is absent

  template <typename Integer, typename = std::enable_if_t<std::is_integral_v<Integer>>>
  void Field(const char* name, Integer& value, IntegerRange range, std::optional<int64_t> absent = std::nullopt) {
    value = static_cast<Integer>(ReadInteger(name, range, absent).value_or(static_cast<int64_t>(value)));
  }
  void Field(const char* name, bool& value);
  void Field(const char* name, uint64_t& value);  // of any size
  void Field(const char* name, double& value, NumberRange range, std::optional<double> absent = std::nullopt);
  void Field(const char* name, std::string& value, IntegerRange bytes,
             const std::optional<std::string>& absent = std::nullopt);
  void Field(const char* name, std::string& value, TextCheck check,
             const std::optional<std::string>& absent = std::nullopt);
  template <typename Enum, size_t kCount>
  void Field(const char* name, Enum& value, const NamedValue<Enum> (&names)[kCount]) {
    const Json* found = Find(name, /*required=*/true);
    if (found == nullptr) return;
    const absl::StatusOr<Enum> known =
        ParseName(names, name, found->is_string() ? found->get_ref<const std::string&>() : "");
    if (!known.ok()) return Fail(name, absl::StrCat("one of ", NamesIn(names)), Shown(*found));
    value = *known;
  }
  // A field that is left out while it is `absent`.
  template <typename Number, typename Range>
  void Optional(const char* name, Number& value, std::type_identity_t<Number> absent, Range range) {
    using Given = std::conditional_t<std::is_integral_v<Number>, int64_t, double>;
    Field(name, value, range, static_cast<Given>(absent));
  }
  void Hash(const char* name, uint64_t& value);  // 16 hexadecimal digits
  template <typename Integer>
  void Integers(const char* name, std::vector<Integer>& values, IntegerRange range, bool required = false) {
    const Json* found = List(name, required);
    for (size_t i = 0; found != nullptr && i < found->size() && status_.ok(); ++i) {
      values.push_back(
          static_cast<Integer>(IntegerOf(absl::StrCat(name, "[", i, "]"), (*found)[i], range).value_or(0)));
    }
  }
  // A list of texts; none where it is absent and not required.
  void Texts(const char* name, std::vector<std::string>& values, TextCheck check, bool required = false);

  // Calls visit(fields, element) for each object of a list, and for an object, which is required unless it is optional.
  template <typename Element, typename Visit>
  void Objects(const char* name, std::vector<Element>& list, Visit visit, bool required = false) {
    const Json* found = List(name, required);
    for (size_t i = 0; found != nullptr && i < found->size() && status_.ok(); ++i) {
      JsonReader fields(file_, PathOf(absl::StrCat(name, "[", i, "]")), (*found)[i], &status_);
      visit(fields, list.emplace_back());
    }
  }
  template <typename Element, typename Visit>
  void Object(const char* name, Element& object, Visit visit) {
    const Json* found = Find(name, /*required=*/false);
    if (found == nullptr) return Fail(name, "an object", "none");
    JsonReader fields(file_, PathOf(name), *found, &status_);
    visit(fields, object);
  }
  template <typename Element, typename Visit>
  void Object(const char* name, std::optional<Element>& object, Visit visit) {
    if (Has(name)) Object(name, object.emplace(), visit);
  }

  // Last of all, where fields that were not asked for are errors.
  void End();

  bool ok() const { return status_.ok(); }
  void Fail(absl::string_view name, absl::string_view expected, absl::string_view found);

 private:
  static std::string Shown(const Json& value);

  std::optional<int64_t> ReadInteger(const char* name, IntegerRange range, std::optional<int64_t> absent);
  std::optional<int64_t> IntegerOf(absl::string_view name, const Json& value, IntegerRange range);
  const Json* List(const char* name, bool required);
  std::string PathOf(absl::string_view name) const { return absl::StrCat(path_, path_.empty() ? "" : ".", name); }
  void Refuse(absl::string_view name, absl::string_view what);

  const absl::string_view file_;
  const std::string path_;
  const Json& object_;
  absl::Status& status_;
  std::set<std::string> known_;
};

// Sets the same fields of an object; of lists an empty one of integers alone may be left out.
class JsonWriter {
 public:
  explicit JsonWriter(Json* object) : object_(*object) {}

  template <typename Value, typename... Rules>
  void Field(const char* name, const Value& value, const Rules&...) {
    object_[name] = value;
  }
  template <typename Enum, size_t kCount>
  void Field(const char* name, Enum value, const NamedValue<Enum> (&names)[kCount]) {
    object_[name] = NameOf(names, value);
  }
  template <typename Number, typename Range>
  void Optional(const char* name, const Number& value, std::type_identity_t<Number> absent, Range) {
    if (value != absent) object_[name] = value;
  }
  bool Has(const char*, bool written) { return written; }
  template <typename Integer>
  void Integers(const char* name, const std::vector<Integer>& values, IntegerRange, bool required = false) {
    if (required || !values.empty()) object_[name] = values;
  }
  void Hash(const char* name, uint64_t value) { object_[name] = absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }
  void Texts(const char* name, const std::vector<std::string>& values, TextCheck, bool = false) {
    object_[name] = values;
  }
  template <typename Element, typename Visit>
  void Objects(const char* name, const std::vector<Element>& list, Visit visit, bool = false) {
    Json written = Json::array();
    for (const Element& element : list) {
      JsonWriter fields(&written.emplace_back(Json::object()));
      visit(fields, element);
    }
    object_[name] = std::move(written);
  }
  template <typename Element, typename Visit>
  void Object(const char* name, const Element& object, Visit visit) {
    JsonWriter fields(&object_[name]);
    visit(fields, object);
  }
  template <typename Element, typename Visit>
  void Object(const char* name, const std::optional<Element>& object, Visit visit) {
    if (object.has_value()) Object(name, *object, visit);
  }
  void End() {}

 private:
  Json& object_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_JSON_JSON_FIELDS_H_
