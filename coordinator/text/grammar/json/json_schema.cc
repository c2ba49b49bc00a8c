#include "coordinator/text/grammar/json/json_schema.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/text/grammar/json/number_rules.h"
#include "coordinator/text/grammar/json/object_rules.h"
#include "coordinator/text/grammar/json/schema_keywords.h"
#include "coordinator/text/grammar/json/string_rules.h"
#include "coordinator/text/grammar/pattern_scanner.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

// An expression in several places is a rule of its own if it is larger; and one in one place, lest they nest too
// deeply.
constexpr int kShallow = 3;
constexpr int kNotTooDeep = 12;
constexpr size_t kFewParts = 16;
constexpr size_t kFewCalls = 16;  // that are followed side by side
constexpr size_t kMostNameBytes = 1'000;
constexpr size_t kMostOtherNameBytes = 16'384;  // of names beside additionalProperties, in all

// What a keyword is about, for schemas that do not say a type.
unsigned TypesOfKeyword(absl::string_view keyword) {
  const auto is_one_of = [&](std::initializer_list<absl::string_view> list) {
    return std::find(list.begin(), list.end(), keyword) != list.end();
  };
  if (is_one_of({"items", "prefixItems", "additionalItems", "minItems", "maxItems"})) return kArrayType;
  if (is_one_of({"minLength", "maxLength", "pattern", "format"})) return kStringType;
  return kNumberType;
}

unsigned TypesOfSchema(const SchemaKeywords& all) {
  if (all.has_type) return all.types;
  const bool is_object = all.has_properties || !all.required.empty() || all.additional.has_value();
  unsigned types = is_object ? unsigned{kObjectType} : 0;
  for (const auto& [keyword, place] : all.others) types |= TypesOfKeyword(keyword);
  return types != 0 ? types : unsigned{kAnyType};
}

unsigned TypeOfValue(const Json& value) {
  if (value.is_null()) return kNullType;
  if (value.is_boolean()) return kBooleanType;
  if (value.is_object()) return kObjectType;
  if (value.is_array()) return kArrayType;
  if (value.is_string()) return kStringType;
  const bool is_whole = value.is_number_integer() || value.get<double>() == std::floor(value.get<double>());
  return is_whole ? kIntegerType : kFractionType;
}

// What ParseJson keeps of such is a double, which is another number.
bool HasNumberBeyondIntegers(const Json& value) {
  if (value.is_number_float()) return std::abs(value.get<double>()) >= 0x1p64;
  return value.is_structured() && std::any_of(value.begin(), value.end(), HasNumberBeyondIntegers);
}

class SchemaReader {
 public:
  // `name`: what the names of rules begin with.
  SchemaReader(const Json& schema, bool lenient, absl::string_view name, JsonRules* json)
      : document_(schema, lenient), name_(name), json_(*json), rules_(json->rules()), strings_(json) {}

  absl::StatusOr<ExprId> ReadAnswer();
  absl::StatusOr<ExprId> ReadArguments();
  absl::StatusOr<std::optional<std::vector<ArgumentRule>>> ReadEachArgument();

 private:
  using Places = std::vector<SchemaPlace>;

  absl::Status CheckSize() const;
  absl::Status GatherArguments(SchemaKeywords* all);
  absl::StatusOr<std::optional<std::vector<ArgumentRule>>> BuildEachArgument();
  absl::Status DefineReferred();
  ExprId ReferredRule(const SchemaPlace& place);
  ExprId AsRule(ExprId expr, int most_depth, absl::string_view pointer);

  // Values that are valid by all of the schemas; where the document is lenient, any if that cannot be told.
  absl::StatusOr<ExprId> Build(const Places& schemas);
  absl::StatusOr<ExprId> BuildStrictly(const Places& schemas);
  absl::StatusOr<ExprId> BuildKeywords(const SchemaKeywords& all, const SchemaPlace& place);
  absl::StatusOr<ExprId> BuildAlternatives(const SchemaKeywords& all, const std::string& keyword);
  absl::StatusOr<ExprId> BuildAlternative(SchemaKeywords rest, const SchemaPlace& alternative, bool as_call);
  absl::StatusOr<std::vector<const Json*>> ValuesOf(const SchemaKeywords& all);
  std::optional<std::vector<std::string>> TextsOf(const SchemaKeywords& all);
  absl::StatusOr<ExprId> BuildValues(const SchemaKeywords& all, const SchemaPlace& place);
  absl::StatusOr<ExprId> BuildType(SchemaType type, const SchemaKeywords& all, const SchemaPlace& place);
  absl::StatusOr<ExprId> BuildObject(const SchemaKeywords& all, const SchemaPlace& place);
  absl::Status CheckProperty(absl::string_view name, const SchemaPlace& place);
  absl::StatusOr<std::vector<SchemaKeywords::Property>> PropertiesOf(const SchemaKeywords& all);
  absl::StatusOr<std::optional<ExprId>> BuildAdditional(const SchemaKeywords& all);
  absl::StatusOr<ExprId> BuildProperty(const SchemaKeywords::Property& property) {
    return property.schemas.empty() ? json_.Value() : Build(property.schemas);
  }
  absl::StatusOr<ExprId> BuildArray(const SchemaKeywords& all, const SchemaPlace& place);
  absl::StatusOr<std::optional<ExprId>> BuildItems(const SchemaPlace* items, bool has_prefix);

  bool Forgives(const absl::Status& status) const {
    return !status.ok() && document_.lenient() && status.code() != absl::StatusCode::kResourceExhausted;
  }

  SchemaDocument document_;
  const std::string name_;
  JsonRules& json_;
  GrammarRules& rules_;
  StringRules strings_;
  bool in_alternative_ = false;  // that stands where it is, not called
  size_t other_name_bytes_ = 0;
  std::map<const Json*, RuleId> referred_;
  std::deque<std::pair<RuleId, SchemaPlace>> undefined_;
};

// What a value may be: ways that no value has (kNotFound) are left out while there is another.
class PossibleWays {
 public:
  explicit PossibleWays(GrammarRules* rules) : rules_(*rules) {}

  void Add(const absl::StatusOr<ExprId>& way) {
    if (way.ok()) ways_.push_back(*way);
    if (absl::IsNotFound(way.status()) && impossible_.ok()) impossible_ = way.status();
    if (!absl::IsNotFound(way.status())) error_.Update(way.status());
  }
  bool possible() const { return error_.ok(); }  // that there is a choice
  // Requires that one was added.
  absl::StatusOr<ExprId> Choice() {
    RETURN_IF_ERROR(error_);
    if (ways_.empty()) return impossible_;
    return ways_.size() == 1 ? ways_[0] : rules_.Choice(ways_);
  }

 private:
  GrammarRules& rules_;
  std::vector<ExprId> ways_;
  absl::Status error_, impossible_;
};

// `place`: of an object that asks for it.
const std::string& PointerOf(const SchemaKeywords::Property& property, const SchemaPlace& place) {
  return property.schemas.empty() ? place.pointer : property.schemas[0].pointer;
}

absl::Status SchemaReader::CheckSize() const {
  const size_t bytes = CompactJson(*document_.root().json).size();
  if (bytes <= kMostGrammarTextBytes) return absl::OkStatus();
  return document_.root().Error(absl::StatusCode::kResourceExhausted,
                                absl::StrCat("expected at most ", kMostGrammarTextBytes, " bytes, found ", bytes));
}

absl::StatusOr<ExprId> SchemaReader::ReadAnswer() {
  RETURN_IF_ERROR(CheckSize());
  const absl::StatusOr<ExprId> answer = Build({document_.root()});
  if (absl::IsNotFound(answer.status())) return absl::InvalidArgumentError(answer.status().message());
  RETURN_IF_ERROR(answer.status());
  RETURN_IF_ERROR(DefineReferred());
  return answer;
}

absl::Status SchemaReader::GatherArguments(SchemaKeywords* all) {
  RETURN_IF_ERROR(document_.Gather(document_.root(), all));
  all->types &= kObjectType;
  all->has_type = true;
  return all->types != 0 ? absl::OkStatus() : document_.root().NoValue();
}

absl::StatusOr<ExprId> SchemaReader::ReadArguments() {
  RETURN_IF_ERROR(CheckSize());
  SchemaKeywords all;
  const absl::Status gathered = GatherArguments(&all);
  absl::StatusOr<ExprId> object = json_.Object();
  if (gathered.ok()) {
    const absl::StatusOr<ExprId> built = BuildKeywords(all, document_.root());
    if (!Forgives(built.status())) object = built;
  } else if (!Forgives(gathered)) {
    return gathered;
  }
  RETURN_IF_ERROR(object.status());
  RETURN_IF_ERROR(DefineReferred());
  return object;
}

absl::StatusOr<std::optional<std::vector<ArgumentRule>>> SchemaReader::ReadEachArgument() {
  RETURN_IF_ERROR(CheckSize());
  absl::StatusOr<std::optional<std::vector<ArgumentRule>>> arguments = BuildEachArgument();
  if (Forgives(arguments.status())) arguments = std::nullopt;
  RETURN_IF_ERROR(arguments.status());
  RETURN_IF_ERROR(DefineReferred());
  return arguments;
}

absl::StatusOr<std::optional<std::vector<ArgumentRule>>> SchemaReader::BuildEachArgument() {
  SchemaKeywords all;
  RETURN_IF_ERROR(GatherArguments(&all));
  const bool is_closed = all.additional.has_value() && *all.additional->json == false;
  if (all.properties.empty() && all.required.empty() && !is_closed) return std::nullopt;
  ASSIGN_OR_RETURN(const std::vector<SchemaKeywords::Property> properties, PropertiesOf(all));
  std::vector<ArgumentRule> arguments;
  for (const SchemaKeywords::Property& property : properties) {
    ArgumentRule argument{property.name, all.required.count(property.name) > 0, 0, std::nullopt};
    ASSIGN_OR_RETURN(const ExprId value, BuildProperty(property));
    argument.value = AsRule(value, kNotTooDeep, PointerOf(property, document_.root()));
    SchemaKeywords keywords;
    absl::Status gathered = absl::OkStatus();
    for (const SchemaPlace& schema : property.schemas) gathered.Update(document_.Gather(schema, &keywords));
    if (gathered.ok()) argument.texts = TextsOf(keywords);
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

absl::Status SchemaReader::DefineReferred() {
  for (; !undefined_.empty(); undefined_.pop_front()) {
    const auto& [rule, place] = undefined_.front();
    const absl::StatusOr<ExprId> expr = Build({place});
    if (!absl::IsNotFound(expr.status())) RETURN_IF_ERROR(expr.status());
    // Without a value: a choice of nothing, which CompileGrammar refuses only where it is needed.
    rules_.Define(rule, expr.ok() ? *expr : rules_.Choice({}));
  }
  return absl::OkStatus();
}

ExprId SchemaReader::ReferredRule(const SchemaPlace& place) {
  const auto [made, is_new] = referred_.try_emplace(place.json, -1);
  if (is_new) {
    made->second = rules_.Declare(absl::StrCat(name_, place.pointer));
    undefined_.emplace_back(made->second, place);
  }
  return rules_.Call(made->second);
}

ExprId SchemaReader::AsRule(ExprId expr, int most_depth, absl::string_view pointer) {
  if (rules_.expr(expr).depth <= most_depth && rules_.expr(expr).parts.size() <= kFewParts) return expr;
  const RuleId rule = rules_.Declare(absl::StrCat(name_, pointer));
  rules_.Define(rule, expr);
  return rules_.Call(rule);
}

absl::StatusOr<ExprId> SchemaReader::Build(const Places& schemas) {
  const absl::StatusOr<ExprId> built = BuildStrictly(schemas);
  return Forgives(built.status()) ? json_.Value() : built;
}

absl::StatusOr<ExprId> SchemaReader::BuildStrictly(const Places& schemas) {
  if (schemas.size() == 1) {
    ASSIGN_OR_RETURN(const std::optional<SchemaPlace> referred, document_.ReferenceAlone(schemas[0]));
    if (referred.has_value()) return ReferredRule(*referred);
  }
  SchemaKeywords all;
  for (const SchemaPlace& schema : schemas) RETURN_IF_ERROR(document_.Gather(schema, &all));
  return BuildKeywords(all, schemas[0]);
}

absl::StatusOr<ExprId> SchemaReader::BuildKeywords(const SchemaKeywords& all, const SchemaPlace& place) {
  for (const char* const keyword : {"anyOf", "oneOf"}) {
    if (all.Find(keyword) != nullptr) return BuildAlternatives(all, keyword);
  }
  if (all.Find("const") != nullptr || all.Find("enum") != nullptr) return BuildValues(all, place);
  if (all.AsksNothing()) return json_.Value();
  const unsigned types = TypesOfSchema(all);
  PossibleWays ways(&rules_);
  for (const SchemaType type : {kNullType, kBooleanType, kObjectType, kArrayType, kStringType, kNumberType}) {
    const unsigned asked = types & type;
    if (asked != 0) ways.Add(BuildType(static_cast<SchemaType>(asked), all, place));
  }
  return ways.Choice();
}

absl::StatusOr<ExprId> SchemaReader::BuildType(SchemaType type, const SchemaKeywords& all, const SchemaPlace& place) {
  switch (type) {
    case kNullType: return json_.Null();
    case kBooleanType: return json_.Boolean();
    case kObjectType: return BuildObject(all, place);
    case kArrayType: return BuildArray(all, place);
    case kStringType: return strings_.Build(all, document_);
    default: return AddNumber(/*is_integer=*/type == kIntegerType, all, place, &json_);
  }
}

absl::StatusOr<ExprId> SchemaReader::BuildAlternatives(const SchemaKeywords& all, const std::string& keyword) {
  const SchemaPlace& list = *all.Find(keyword);
  if (!list.json->is_array() || list.json->empty()) return list.Malformed("a list of schemas");
  SchemaKeywords rest = all;
  rest.others.erase(keyword);
  RETURN_IF_ERROR(document_.CountCopies(list, rest));
  const bool as_calls = in_alternative_ || list.json->size() <= kFewCalls;
  PossibleWays ways(&rules_);
  for (size_t i = 0; i < list.json->size() && ways.possible(); ++i) {
    ways.Add(BuildAlternative(rest, list.Element(i), as_calls));
  }
  return ways.Choice();
}

absl::StatusOr<ExprId> SchemaReader::BuildAlternative(SchemaKeywords rest, const SchemaPlace& alternative,
                                                      bool as_call) {
  if (as_call && rest.AsksNothing()) {
    ASSIGN_OR_RETURN(const std::optional<SchemaPlace> referred, document_.ReferenceAlone(alternative));
    if (referred.has_value()) return ReferredRule(*referred);
  }
  RETURN_IF_ERROR(document_.Gather(alternative, &rest));
  const bool was_in_alternative = std::exchange(in_alternative_, in_alternative_ || !as_call);
  const absl::StatusOr<ExprId> way = BuildKeywords(rest, alternative);
  in_alternative_ = was_in_alternative;
  return way;
}

// Those of enum and const, one of which is there, that have the types and the lengths.
absl::StatusOr<std::vector<const Json*>> SchemaReader::ValuesOf(const SchemaKeywords& all) {
  const SchemaPlace* const one = all.Find("const");
  const SchemaPlace* const list = all.Find("enum");
  ASSIGN_OR_RETURN(const int min, document_.CountOf(all, "minLength", 0));
  ASSIGN_OR_RETURN(const int max, document_.CountOf(all, "maxLength", kUnbounded));
  const auto has_length = [&](const Json& value) {
    const int64_t length = value.is_string() ? CodePoints(value.get_ref<const std::string&>()) : min;
    return length >= min && (length <= max || max == kUnbounded || !value.is_string());
  };
  std::vector<const Json*> values;
  const auto add = [&](const Json& value) {
    const bool fits = (TypeOfValue(value) & all.types) != 0 && (one == nullptr || *one->json == value);
    if (fits && has_length(value)) values.push_back(&value);
  };
  if (list != nullptr && !list->json->is_array()) return list->Malformed("a list of values");
  if (list != nullptr) {
    for (const Json& value : *list->json) add(value);
  } else {
    add(*one->json);
  }
  return values;
}

// Of strings; absent: they may be others, too.
std::optional<std::vector<std::string>> SchemaReader::TextsOf(const SchemaKeywords& all) {
  std::vector<std::string> texts;
  if ((all.types & kStringType) == 0) return texts;
  if (all.Find("const") != nullptr || all.Find("enum") != nullptr) {
    const absl::StatusOr<std::vector<const Json*>> values = ValuesOf(all);
    if (!values.ok()) return std::nullopt;
    for (const Json* const value : *values) {
      if (value->is_string()) texts.push_back(value->get<std::string>());
    }
    return texts;
  }
  for (const char* const keyword : {"anyOf", "oneOf"}) {
    const SchemaPlace* const list = all.Find(keyword);
    if (list == nullptr || !list->json->is_array()) continue;
    SchemaKeywords rest = all;
    rest.others.erase(keyword);
    if (!document_.CountCopies(*list, rest).ok()) return std::nullopt;
    for (size_t i = 0; i < list->json->size(); ++i) {
      SchemaKeywords both = rest;
      const absl::Status gathered = document_.Gather(list->Element(i), &both);
      if (absl::IsNotFound(gathered)) continue;
      const std::optional<std::vector<std::string>> some = gathered.ok() ? TextsOf(both) : std::nullopt;
      if (!some.has_value()) return std::nullopt;
      texts.insert(texts.end(), some->begin(), some->end());
    }
    return texts;
  }
  return std::nullopt;
}

absl::StatusOr<ExprId> SchemaReader::BuildValues(const SchemaKeywords& all, const SchemaPlace& place) {
  constexpr absl::string_view kAlone = "expected no other keyword than type, format and lengths beside enum or const";
  for (const auto& [keyword, other] : all.others) {
    const bool fits =
        keyword == "enum" || keyword == "const" || keyword == "format" || absl::EndsWith(keyword, "Length");
    if (!fits) RETURN_IF_ERROR(document_.Refuse(other, kAlone));
  }
  if (all.has_properties || !all.required.empty() || all.additional.has_value()) {
    RETURN_IF_ERROR(document_.Refuse(place, kAlone));
  }
  ASSIGN_OR_RETURN(const std::vector<const Json*> values, ValuesOf(all));
  std::vector<ExprId> ways;
  for (const Json* const value : values) {
    RETURN_IF_ERROR(document_.CountEnumValue(place));
    if (HasNumberBeyondIntegers(*value)) {
      RETURN_IF_ERROR(document_.Refuse(place, "expected numbers of enum and const below 2^64"));
    }
    ways.push_back(json_.Exactly(*value));
  }
  if (ways.empty()) return place.NoValue();
  return ways.size() == 1 ? ways[0] : rules_.Choice(ways);
}

// With those that are required and not declared.
absl::StatusOr<std::vector<SchemaKeywords::Property>> SchemaReader::PropertiesOf(const SchemaKeywords& all) {
  std::vector<SchemaKeywords::Property> properties;
  for (const SchemaKeywords::Property& property : all.properties) {
    RETURN_IF_ERROR(CheckProperty(property.name, property.schemas[0]));
    const bool is_forbidden = property.schemas.size() == 1 && *property.schemas[0].json == false;
    if (is_forbidden && all.required.count(property.name) == 0) continue;
    properties.push_back(property);
  }
  for (const auto& [name, place] : all.required) {
    if (all.index_of_property.count(name) > 0) continue;
    RETURN_IF_ERROR(CheckProperty(name, place));
    if (all.additional.has_value() && *all.additional->json == false) return place.NoValue();
    properties.push_back({name, {}});
    if (all.additional.has_value()) properties.back().schemas.push_back(*all.additional);
  }
  return properties;
}

absl::Status SchemaReader::CheckProperty(absl::string_view name, const SchemaPlace& place) {
  RETURN_IF_ERROR(document_.CountProperty(place));
  if (name.size() <= kMostNameBytes) return absl::OkStatus();
  return place.Unsupported(absl::StrCat("expected a name of at most ", kMostNameBytes, " bytes"));
}

// Absent: there are no additional properties.
absl::StatusOr<std::optional<ExprId>> SchemaReader::BuildAdditional(const SchemaKeywords& all) {
  if (!all.additional.has_value() || *all.additional->json == false) return std::nullopt;
  const absl::StatusOr<ExprId> value = Build({*all.additional});
  if (absl::IsNotFound(value.status())) return std::nullopt;
  RETURN_IF_ERROR(value.status());
  return AsRule(*value, kShallow, all.additional->pointer);
}

absl::StatusOr<ExprId> SchemaReader::BuildObject(const SchemaKeywords& all, const SchemaPlace& place) {
  RETURN_IF_ERROR(document_.CheckClosed(all));
  const bool says_nothing = all.properties.empty() && all.required.empty();
  if (says_nothing && !all.additional.has_value()) return json_.Object();
  ASSIGN_OR_RETURN(const std::optional<ExprId> additional, BuildAdditional(all));
  ASSIGN_OR_RETURN(const std::vector<SchemaKeywords::Property> properties, PropertiesOf(all));
  std::vector<ObjectMember> members;
  for (const SchemaKeywords::Property& property : properties) {
    const bool required = all.required.count(property.name) > 0;
    const absl::StatusOr<ExprId> value = BuildProperty(property);
    if (absl::IsNotFound(value.status()) && !required) continue;
    RETURN_IF_ERROR(value.status());
    const ExprId shared = AsRule(*value, required ? kNotTooDeep : kShallow, PointerOf(property, place));
    members.push_back({json_.Member(json_.Exactly(Json(property.name)), shared), required});
  }
  if (!additional.has_value()) return ObjectOf(members, std::nullopt, &json_);
  std::set<std::string> names;
  for (const auto& [name, index] : all.index_of_property) names.insert(name);  // also forbidden ones
  for (const auto& [name, place_of_name] : all.required) names.insert(name);
  for (const std::string& name : names) other_name_bytes_ += name.size();
  if (other_name_bytes_ > kMostOtherNameBytes) {
    return all.additional->Unsupported(
        absl::StrCat("expected at most ", kMostOtherNameBytes, " bytes of names beside additionalProperties"));
  }
  return ObjectOf(members, json_.Member(KeyOtherThan({names.begin(), names.end()}, &json_), *additional), &json_);
}

// Of an element beyond the prefix; absent: there is none.
absl::StatusOr<std::optional<ExprId>> SchemaReader::BuildItems(const SchemaPlace* items, bool has_prefix) {
  if (items == nullptr) return has_prefix ? std::nullopt : std::optional(json_.Value());
  if (*items->json == false) return std::nullopt;
  const absl::StatusOr<ExprId> item = Build({*items});
  if (absl::IsNotFound(item.status())) return std::nullopt;
  RETURN_IF_ERROR(item.status());
  return AsRule(*item, kShallow, items->pointer);
}

absl::StatusOr<ExprId> SchemaReader::BuildArray(const SchemaKeywords& all, const SchemaPlace& place) {
  const SchemaPlace* prefix = all.Find("prefixItems");
  const SchemaPlace* items = all.Find("items");
  if (items != nullptr && items->json->is_array()) {  // in older drafts, which call the prefix and its rest so
    if (prefix == nullptr) prefix = items;
    items = all.Find("additionalItems");
  }
  if (prefix != nullptr && !prefix->json->is_array()) return prefix->Malformed("a list of schemas");
  ASSIGN_OR_RETURN(const std::optional<ExprId> item, BuildItems(items, prefix != nullptr));
  ASSIGN_OR_RETURN(int min, document_.CountOf(all, "minItems", 0));
  ASSIGN_OR_RETURN(int max, document_.CountOf(all, "maxItems", kUnbounded));
  int prefix_size = prefix != nullptr ? static_cast<int>(prefix->json->size()) : 0;
  if (max != kUnbounded) prefix_size = std::min(prefix_size, max);
  if (max != kUnbounded && max < min) return place.NoValue();
  if (!item.has_value()) max = prefix_size;
  if (max != kUnbounded && max < min) {
    if (items != nullptr) return place.NoValue();
    return all.Find("minItems")->Unsupported("expected 'items', without which nothing is written behind the prefix");
  }
  std::vector<ExprId> parts;
  for (int i = 0; i < prefix_size; ++i) {
    const SchemaPlace schema = prefix->Element(static_cast<size_t>(i));
    ASSIGN_OR_RETURN(const ExprId element, Build({schema}));
    if (i > 0) parts.push_back(json_.Comma());
    parts.push_back(AsRule(element, kNotTooDeep, schema.pointer));
  }
  const bool or_empty = parts.empty() && min == 0;
  int before = prefix_size;
  if (parts.empty() && max != 0) {
    parts.push_back(*item);
    before = 1;
  }
  if (parts.empty()) return json_.Exactly(Json::array());
  if (item.has_value() && max != before) {
    const ExprId more = rules_.Sequence({json_.Comma(), *item});
    parts.push_back(rules_.Repeat(more, std::max(min - before, 0), max == kUnbounded ? max : max - before));
  }
  return json_.Enclosed("[", rules_.Sequence(parts), "]", or_empty);
}

}  // namespace

absl::StatusOr<ExprId> AddJsonSchema(const Json& schema, JsonRules* json) {
  return SchemaReader(schema, /*lenient=*/false, "schema", json).ReadAnswer();
}

absl::StatusOr<ExprId> AddArguments(const Json& parameters, absl::string_view name, JsonRules* json) {
  if (parameters.is_null()) return json->Object();
  return SchemaReader(parameters, /*lenient=*/true, name, json).ReadArguments();
}

absl::StatusOr<std::optional<std::vector<ArgumentRule>>> AddEachArgument(const Json& parameters, absl::string_view name,
                                                                         JsonRules* json) {
  if (parameters.is_null()) return std::nullopt;
  return SchemaReader(parameters, /*lenient=*/true, name, json).ReadEachArgument();
}

}  // namespace stagecoach
