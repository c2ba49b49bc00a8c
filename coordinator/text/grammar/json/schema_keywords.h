#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_SCHEMA_KEYWORDS_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_SCHEMA_KEYWORDS_H_

// What a JSON schema asks of a value, its references and allOf put together.

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"

namespace stagecoach {

// A schema, or the value of one of its keywords. The document outlives it.
struct SchemaPlace {
  const Json* json = nullptr;
  std::string pointer;  // RFC 6901, from the document's root; no more of it than an error shows
  int depth = 0;        // schemas that it lies in

  SchemaPlace Child(absl::string_view step, const Json& child) const;
  SchemaPlace Member(absl::string_view key) const;  // requires an object that has it
  SchemaPlace Element(size_t index) const;          // requires a list that has it

  // "schema at /properties/a: MESSAGE".
  absl::Status Error(absl::StatusCode code, absl::string_view message) const;
  absl::Status Malformed(absl::string_view expected) const;   // kInvalidArgument, with what stands there
  absl::Status Unsupported(absl::string_view message) const;  // kUnimplemented
  absl::Status NoValue(absl::string_view message = "no value can be valid by what is asked here") const;  // kNotFound
};

enum SchemaType : unsigned {
  kNullType = 1,
  kBooleanType = 2,
  kObjectType = 4,
  kArrayType = 8,
  kStringType = 16,
  kIntegerType = 32,
  kFractionType = 64,
  kNumberType = kIntegerType | kFractionType,
  kAnyType = 127,
};

// Of schemas that must all hold.
struct SchemaKeywords {
  struct Property {
    std::string name;
    std::vector<SchemaPlace> schemas;
  };

  const SchemaPlace* Find(const std::string& keyword) const;
  bool AsksNothing() const;
  size_t places() const;  // that a copy has

  unsigned types = kAnyType;
  bool has_type = false;
  bool has_properties = false;       // the keyword
  std::vector<Property> properties;  // in the order in which they come first
  std::map<std::string, SchemaPlace> required;
  std::optional<SchemaPlace> additional;      // additionalProperties; absent: nobody said
  std::map<std::string, SchemaPlace> others;  // of each other keyword its value
  const Json* list_schema = nullptr;          // that items and prefixItems among them are of

  std::map<std::string, size_t> index_of_property;
  // Schemas with an additionalProperties other than true speak of the properties of others, too.
  struct Closed {
    SchemaPlace place;
    size_t properties;  // its own
  };
  std::vector<Closed> closed;
};

// Not thread-safe. Errors: kUnimplemented for what is not supported, kInvalidArgument for what is no schema, kNotFound
// where no value is valid, kResourceExhausted for a document that is too large.
class SchemaDocument {
 public:
  static constexpr int kMostDepth = 32;
  static constexpr int kMostSchemas = 50'000;  // that are looked at, some of them several times
  static constexpr int kMostProperties = 5'000;
  static constexpr int kMostEnumValues = 1'000;

  // `lenient`: keywords that are not supported are left out. The root outlives the document.
  SchemaDocument(const Json& root, bool lenient);

  SchemaPlace root() const { return {&root_, "", 0}; }
  bool lenient() const { return lenient_; }

  // Where a schema says no more than one reference, also by an allOf of one: what that refers to.
  absl::StatusOr<std::optional<SchemaPlace>> ReferenceAlone(SchemaPlace place);
  // Adds what a schema asks. All that is asked of one value is to be gathered before CheckClosed.
  absl::Status Gather(const SchemaPlace& place, SchemaKeywords* all);
  absl::Status CheckClosed(const SchemaKeywords& all) const;

  // A keyword with that value cannot be met: Unsupported, or OK where that is left out.
  absl::Status Refuse(const SchemaPlace& value, absl::string_view message) const;
  // The value of a keyword that counts something; `absent` where it says nothing.
  absl::StatusOr<int> CountOf(const SchemaKeywords& all, const std::string& keyword, int absent) const;

  absl::Status CountProperty(const SchemaPlace& place) {
    return Count(kMostProperties, "properties", place, &properties_);
  }
  // Each of the list's alternatives is put together with a copy of these.
  absl::Status CountCopies(const SchemaPlace& list, const SchemaKeywords& copied);
  absl::Status CountEnumValue(const SchemaPlace& place) {
    return Count(kMostEnumValues, "values", place, &enum_values_);
  }

 private:
  absl::Status Count(int most, absl::string_view what, const SchemaPlace& place, int* count) const;
  absl::Status CountSchema(const SchemaPlace& place) { return Count(kMostSchemas, "schemas", place, &schemas_); }
  absl::Status CheckId(const SchemaPlace& schema) const;
  absl::StatusOr<SchemaPlace> Resolve(const SchemaPlace& reference);
  absl::StatusOr<SchemaPlace> Find(const SchemaPlace& reference) const;
  absl::Status GatherKeyword(const std::string& keyword, const SchemaPlace& value, SchemaKeywords* all);
  absl::Status GatherOther(const std::string& keyword, const SchemaPlace& schema, const SchemaPlace& value,
                           SchemaKeywords* all);
  absl::Status GatherAll(const SchemaPlace& list, SchemaKeywords* all);
  absl::Status GatherType(const SchemaPlace& value, SchemaKeywords* all);
  absl::Status GatherProperties(const SchemaPlace& value, SchemaKeywords* all);
  absl::Status GatherRequired(const SchemaPlace& value, SchemaKeywords* all);
  absl::Status GatherAdditional(const SchemaPlace& schema, const SchemaPlace& value, SchemaKeywords* all);
  absl::Status Conflict(const SchemaPlace& value) const;

  const Json& root_;
  const bool lenient_;
  const std::string id_keyword_;
  int schemas_ = 0, properties_ = 0, enum_values_ = 0;
  std::map<const Json*, SchemaPlace> resolved_;  // by the reference
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_SCHEMA_KEYWORDS_H_
