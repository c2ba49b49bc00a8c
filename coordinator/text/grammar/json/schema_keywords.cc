#include "coordinator/text/grammar/json/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/json/json_value.h"
#include "coordinator/text/grammar/pattern_scanner.h"

namespace stagecoach {
namespace {

constexpr NamedValue<SchemaType> kSchemaTypes[] = {
    {kNullType, "null"},     {kBooleanType, "boolean"}, {kObjectType, "object"}, {kArrayType, "array"},
    {kStringType, "string"}, {kIntegerType, "integer"}, {kNumberType, "number"},
};

enum class KeywordUse {
  kAnnotation,  // also what no draft of JSON Schema knows
  kGathered,    // GatherKeyword knows it
  kOther,       // others
  kRefused,
};

KeywordUse UseOf(absl::string_view keyword) {
  constexpr absl::string_view kGathered[] = {"$ref", "allOf", "type", "properties", "required", "additionalProperties"};
  constexpr absl::string_view kOther[] = {"anyOf",           "oneOf",       "const",           "enum",
                                          "items",           "prefixItems", "additionalItems", "minItems",
                                          "maxItems",        "minLength",   "maxLength",       "pattern",
                                          "format",          "minimum",     "maximum",         "exclusiveMinimum",
                                          "exclusiveMaximum"};
  constexpr absl::string_view kRefused[] = {"not",
                                            "if",
                                            "then",
                                            "else",
                                            "patternProperties",
                                            "propertyNames",
                                            "minProperties",
                                            "maxProperties",
                                            "dependencies",
                                            "dependentRequired",
                                            "dependentSchemas",
                                            "uniqueItems",
                                            "contains",
                                            "minContains",
                                            "maxContains",
                                            "unevaluatedItems",
                                            "unevaluatedProperties",
                                            "multipleOf",
                                            "divisibleBy",
                                            "disallow",
                                            "extends",
                                            "$dynamicRef",
                                            "$recursiveRef"};
  const auto is_in = [&](const auto& list) {
    return std::find(std::begin(list), std::end(list), keyword) != std::end(list);
  };
  if (is_in(kGathered)) return KeywordUse::kGathered;
  if (is_in(kOther)) return KeywordUse::kOther;
  return is_in(kRefused) ? KeywordUse::kRefused : KeywordUse::kAnnotation;
}

// Says nothing where it stands with that value.
bool IsHarmless(absl::string_view keyword, const Json& value) {
  static const Json& any_name = *new Json({{"type", "string"}});
  if (keyword == "uniqueItems") return value == false;
  if (keyword == "minProperties") return value == 0;
  if (keyword == "propertyNames" && value == any_name) return true;
  const bool says_nothing = value.is_object() && value.empty();
  if (absl::StartsWith(keyword, "unevaluated") || keyword == "propertyNames") return says_nothing || value == true;
  return says_nothing && (keyword == "patternProperties" || absl::StartsWith(keyword, "depend"));
}

// Lists and objects are looked at no further.
bool IsSame(const Json& a, const Json& b) { return &a == &b || (!a.is_structured() && a == b); }

std::string PercentDecoded(absl::string_view text) {
  std::string decoded;
  for (size_t at = 0; at < text.size(); ++at) {
    int byte = 0;
    if (text[at] == '%' && at + 2 < text.size() && absl::SimpleHexAtoi(text.substr(at + 1, 2), &byte)) {
      decoded.push_back(static_cast<char>(byte));
      at += 2;
    } else {
      decoded.push_back(text[at]);
    }
  }
  return decoded;
}

// "$id", or what it was called in the draft that the document says it is of.
std::string IdKeyword(const Json& root) {
  const auto draft = root.find("$schema");
  const std::string name = draft != root.end() && draft->is_string() ? draft->get<std::string>() : "";
  return absl::StrContains(name, "/draft-03/") || absl::StrContains(name, "/draft-04/") ? "id" : "$id";
}

constexpr size_t kMostPointerBytes = 4 * kMostShownCharacters;

}  // namespace

SchemaPlace SchemaPlace::Child(absl::string_view step, const Json& child) const {
  SchemaPlace place = {&child, pointer, depth};
  if (pointer.size() >= kMostPointerBytes) return place;
  const absl::string_view shown = step.substr(0, kMostPointerBytes);
  absl::StrAppend(&place.pointer, "/", absl::StrReplaceAll(shown, {{"~", "~0"}, {"/", "~1"}}));
  return place;
}

SchemaPlace SchemaPlace::Member(absl::string_view key) const { return Child(key, *json->find(std::string(key))); }

SchemaPlace SchemaPlace::Element(size_t index) const { return Child(absl::StrCat(index), (*json)[index]); }

absl::Status SchemaPlace::Error(absl::StatusCode code, absl::string_view message) const {
  const std::string place = pointer.empty() ? "" : absl::StrCat(" at ", CutText(pointer));
  return absl::Status(code, absl::StrCat("schema", place, ": ", message));
}

absl::Status SchemaPlace::Malformed(absl::string_view expected) const {
  const std::string found = json->is_structured() ? json->type_name() : CutText(CompactJson(*json), 60);
  return Error(absl::StatusCode::kInvalidArgument, absl::StrCat("expected ", expected, ", found ", found));
}

absl::Status SchemaPlace::Unsupported(absl::string_view message) const {
  return Error(absl::StatusCode::kUnimplemented, message);
}

absl::Status SchemaPlace::NoValue(absl::string_view message) const {
  return Error(absl::StatusCode::kNotFound, message);
}

const SchemaPlace* SchemaKeywords::Find(const std::string& keyword) const {
  const auto found = others.find(keyword);
  return found != others.end() ? &found->second : nullptr;
}

bool SchemaKeywords::AsksNothing() const {
  return !has_type && !has_properties && required.empty() && !additional.has_value() && others.empty();
}

size_t SchemaKeywords::places() const {
  size_t places = required.size() + others.size() + closed.size();
  for (const Property& property : properties) places += 1 + property.schemas.size();
  return places;
}

SchemaDocument::SchemaDocument(const Json& root, bool lenient)
    : root_(root), lenient_(lenient), id_keyword_(IdKeyword(root)) {}

absl::Status SchemaDocument::Count(int most, absl::string_view what, const SchemaPlace& place, int* count) const {
  if (++*count <= most) return absl::OkStatus();
  return place.Error(absl::StatusCode::kResourceExhausted,
                     absl::StrCat("expected at most ", most, " ", what, " in all"));
}

absl::Status SchemaDocument::CountCopies(const SchemaPlace& list, const SchemaKeywords& copied) {
  schemas_ += static_cast<int>(std::min<size_t>(list.json->size() * copied.places(), kMostSchemas));
  return CountSchema(list);
}

absl::Status SchemaDocument::Refuse(const SchemaPlace& value, absl::string_view message) const {
  return lenient_ ? absl::OkStatus() : value.Unsupported(message);
}

absl::Status SchemaDocument::Conflict(const SchemaPlace& value) const {
  return Refuse(value, "expected no other value here than in another schema that must hold, too");
}

absl::StatusOr<int> SchemaDocument::CountOf(const SchemaKeywords& all, const std::string& keyword, int absent) const {
  const SchemaPlace* const place = all.Find(keyword);
  if (place == nullptr) return absent;
  const double count = place->json->is_number() ? place->json->get<double>() : -1;
  if (count < 0 || count != std::floor(count)) return place->Malformed("a number of 0 or more");
  if (count <= kMostRepeats) return static_cast<int>(count);
  RETURN_IF_ERROR(Refuse(*place, absl::StrCat("expected a count up to ", kMostRepeats)));
  return absent;
}

// References below another one are not to the document. One of a fragment is but a name.
absl::Status SchemaDocument::CheckId(const SchemaPlace& schema) const {
  const auto id = schema.json->find(id_keyword_);
  const bool is_another = schema.json != &root_ && id != schema.json->end() && id->is_string() &&
                          !absl::StartsWith(id->get_ref<const std::string&>(), "#");
  if (!is_another) return absl::OkStatus();
  return schema.Child(id_keyword_, *id).Unsupported(absl::StrCat("expected '", id_keyword_, "' at the root alone"));
}

absl::StatusOr<SchemaPlace> SchemaDocument::Resolve(const SchemaPlace& reference) {
  const auto known = resolved_.find(reference.json);
  if (known != resolved_.end()) return known->second;
  ASSIGN_OR_RETURN(const SchemaPlace place, Find(reference));
  return resolved_.emplace(reference.json, place).first->second;
}

absl::StatusOr<SchemaPlace> SchemaDocument::Find(const SchemaPlace& reference) const {
  if (!reference.json->is_string()) return reference.Malformed("a reference as '#/$defs/name'");
  const std::string& text = reference.json->get_ref<const std::string&>();
  if (text != "#" && text.substr(0, 2) != "#/") {
    return reference.Unsupported(
        absl::StrCat("expected a reference within the schema, as '#/$defs/name', found ", ShownText(text)));
  }
  SchemaPlace place = root();
  if (text == "#") return place;
  for (absl::string_view step : absl::StrSplit(absl::string_view(text).substr(2), '/')) {
    const std::string key = absl::StrReplaceAll(PercentDecoded(step), {{"~1", "/"}, {"~0", "~"}});
    size_t index = 0;
    if (place.json->is_object() && place.json->contains(key)) {
      place = place.Member(key);
    } else if (place.json->is_array() && absl::SimpleAtoi(key, &index) && index < place.json->size()) {
      place = place.Element(index);
    } else {
      return reference.Error(absl::StatusCode::kInvalidArgument,
                             absl::StrCat("expected the place of a schema, but nothing is at ", ShownText(text)));
    }
    RETURN_IF_ERROR(CheckId(place));
  }
  return place;
}

absl::StatusOr<std::optional<SchemaPlace>> SchemaDocument::ReferenceAlone(SchemaPlace place) {
  std::optional<SchemaPlace> referred;
  for (int steps = 0; place.json->is_object(); ++steps) {
    RETURN_IF_ERROR(CheckId(place));
    std::vector<std::string> keywords;
    for (const auto& [keyword, value] : place.json->items()) {
      if (UseOf(keyword) != KeywordUse::kAnnotation) keywords.push_back(keyword);
    }
    if (keywords.size() != 1) break;
    const SchemaPlace value = place.Member(keywords[0]);
    if (keywords[0] == "$ref") {
      ASSIGN_OR_RETURN(place, Resolve(value));
      referred = place;
    } else if (keywords[0] == "allOf" && value.json->is_array() && value.json->size() == 1) {
      place = value.Element(0);
    } else {
      break;
    }
    if (steps > kMostDepth) return value.Unsupported("expected no reference that leads to itself");
  }
  return referred;
}

absl::Status SchemaDocument::Gather(const SchemaPlace& place, SchemaKeywords* all) {
  RETURN_IF_ERROR(CountSchema(place));
  if (place.depth > kMostDepth) {
    return place.Unsupported(absl::StrCat("expected at most ", kMostDepth, " schemas within each other"));
  }
  if (*place.json == true) return absl::OkStatus();
  if (*place.json == false) return place.NoValue("no value is allowed here");
  if (!place.json->is_object()) return place.Malformed("a schema");
  RETURN_IF_ERROR(CheckId(place));
  for (const auto& [keyword, json] : place.json->items()) {
    SchemaPlace value = place.Child(keyword, json);
    ++value.depth;
    switch (UseOf(keyword)) {
      case KeywordUse::kAnnotation: break;
      case KeywordUse::kRefused:
        if (IsHarmless(keyword, json)) break;
        RETURN_IF_ERROR(Refuse(value, absl::StrCat("the keyword '", keyword, "' is not supported: leave it out")));
        break;
      case KeywordUse::kOther: RETURN_IF_ERROR(GatherOther(keyword, place, value, all)); break;
      case KeywordUse::kGathered:
        if (keyword == "additionalProperties") {
          RETURN_IF_ERROR(GatherAdditional(place, value, all));
        } else {
          RETURN_IF_ERROR(GatherKeyword(keyword, value, all));
        }
    }
  }
  return absl::OkStatus();
}

absl::Status SchemaDocument::GatherKeyword(const std::string& keyword, const SchemaPlace& value, SchemaKeywords* all) {
  if (keyword == "type") return GatherType(value, all);
  if (keyword == "properties") return GatherProperties(value, all);
  if (keyword == "required") return GatherRequired(value, all);
  if (keyword == "allOf") return GatherAll(value, all);
  ASSIGN_OR_RETURN(SchemaPlace referred, Resolve(value));
  referred.depth = value.depth;
  return Gather(referred, all);
}

// `schema`: that `value` is the keyword of.
absl::Status SchemaDocument::GatherOther(const std::string& keyword, const SchemaPlace& schema,
                                         const SchemaPlace& value, SchemaKeywords* all) {
  if (keyword == "items" || keyword == "prefixItems") {
    // Of its own schema, items begins behind the prefix; of another, it is for the prefix, too.
    if (all->list_schema != nullptr && all->list_schema != schema.json) {
      return Refuse(value, "expected items and prefixItems in one alone of the schemas that must hold");
    }
    all->list_schema = schema.json;
  }
  const auto [other, is_new] = all->others.emplace(keyword, value);
  return is_new || IsSame(*other->second.json, *value.json) ? absl::OkStatus() : Conflict(value);
}

absl::Status SchemaDocument::GatherAll(const SchemaPlace& list, SchemaKeywords* all) {
  if (!list.json->is_array()) return list.Malformed("a list of schemas");
  for (size_t i = 0; i < list.json->size(); ++i) RETURN_IF_ERROR(Gather(list.Element(i), all));
  return absl::OkStatus();
}

absl::Status SchemaDocument::GatherType(const SchemaPlace& value, SchemaKeywords* all) {
  unsigned types = 0;
  const auto add = [&](const Json& name) {
    const absl::StatusOr<SchemaType> type =
        ParseName(kSchemaTypes, "type", name.is_string() ? name.get_ref<const std::string&>() : "");
    if (type.ok()) types |= *type;
    return type.ok();
  };
  const bool is_list = value.json->is_array();
  if (is_list ? !std::all_of(value.json->begin(), value.json->end(), add) : !add(*value.json)) {
    return value.Malformed(absl::StrCat("one of ", NamesIn(kSchemaTypes), ", or a list of these"));
  }
  all->types &= types;
  all->has_type = true;
  if (all->types != 0) return absl::OkStatus();
  return value.NoValue("no value has all of the types that are asked for");
}

absl::Status SchemaDocument::GatherProperties(const SchemaPlace& value, SchemaKeywords* all) {
  if (!value.json->is_object()) return value.Malformed("an object with a schema for each property");
  all->has_properties = true;
  for (const auto& [name, schema] : value.json->items()) {
    RETURN_IF_ERROR(CountSchema(value));
    const auto [index, is_new] = all->index_of_property.emplace(name, all->properties.size());
    if (is_new) all->properties.push_back({name, {}});
    all->properties[index->second].schemas.push_back(value.Child(name, schema));
  }
  return absl::OkStatus();
}

absl::Status SchemaDocument::GatherRequired(const SchemaPlace& value, SchemaKeywords* all) {
  if (!value.json->is_array()) return value.Malformed("a list of names");
  for (size_t i = 0; i < value.json->size(); ++i) {
    const SchemaPlace name = value.Element(i);
    RETURN_IF_ERROR(CountSchema(name));
    if (!name.json->is_string()) return name.Malformed("a name");
    all->required.emplace(name.json->get<std::string>(), name);
  }
  return absl::OkStatus();
}

// Likewise.
absl::Status SchemaDocument::GatherAdditional(const SchemaPlace& schema, const SchemaPlace& value,
                                              SchemaKeywords* all) {
  const bool open = *value.json == true || (value.json->is_object() && value.json->empty());
  if (!open) {
    const auto own = schema.json->find("properties");
    all->closed.push_back({value, own != schema.json->end() ? own->size() : 0});
  }
  const bool was_open = !all->additional.has_value() || *all->additional->json == true ||
                        (all->additional->json->is_object() && all->additional->json->empty());
  if (was_open || *value.json == false) {
    all->additional = value;
  } else if (!open && *all->additional->json != false && !IsSame(*all->additional->json, *value.json)) {
    return Conflict(value);
  }
  return absl::OkStatus();
}

absl::Status SchemaDocument::CheckClosed(const SchemaKeywords& all) const {
  for (const SchemaKeywords::Closed& closed : all.closed) {
    // Its own are among all.
    if (closed.properties < all.properties.size()) RETURN_IF_ERROR(Conflict(closed.place));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
