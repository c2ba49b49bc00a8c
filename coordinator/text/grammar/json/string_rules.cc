#include "coordinator/text/grammar/json/string_rules.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

// The years from 1000 to 9999, and the days that they have.
constexpr absl::string_view kDate =
    "[1-9]\\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
    "02-(?:0[1-9]|1\\d|2[0-8]))|"
    "(?:[1-9]\\d(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29";
constexpr absl::string_view kTime =
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
constexpr absl::string_view kIpv4 =
    "(?:(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
// At most 6 labels of at most 30 characters: with the atoms of an address and its '@' 248.
constexpr absl::string_view kHostname =
    "[A-Za-z0-9](?:[A-Za-z0-9-]{0,28}[A-Za-z0-9])?(?:\\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,28}[A-Za-z0-9])?){0,5}";
constexpr absl::string_view kAtoms = "[A-Za-z0-9_%+-]{1,20}(?:\\.[A-Za-z0-9_%+-]{1,20}){0,2}";
// Within a segment of a path.
constexpr absl::string_view kUriSign = "[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}";

// The pattern of a format; empty: it is not known.
std::string PatternOfFormat(absl::string_view format) {
  if (format == "date") return std::string(kDate);
  if (format == "time") return std::string(kTime);
  if (format == "date-time") return absl::StrCat("(?:", kDate, ")T", kTime);
  if (format == "duration") {
    return "P(?:\\d{1,4}W|\\d{1,4}[YMD]|\\d{1,4}Y\\d{1,4}M(?:\\d{1,4}D)?|\\d{1,4}M\\d{1,4}D|(?:\\d{1,4}D)?T(?:\\d{1,4}["
           "HMS]|"
           "\\d{1,4}H\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}M\\d{1,4}S))";
  }
  if (format == "uuid") return "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  if (format == "ipv4") return std::string(kIpv4);
  if (format == "ipv6")
    return "(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|::(?:[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){0,5})?";
  if (format == "email") return absl::StrCat(kAtoms, "@", kHostname);
  if (format == "hostname") return std::string(kHostname);
  if (format == "uri") {
    const std::string path = absl::StrCat("(?:/|", kUriSign, ")*"), rest = absl::StrCat("(?:[/?]|", kUriSign, ")*");
    return absl::StrCat("[A-Za-z][A-Za-z0-9+.-]*:(?://[A-Za-z0-9._~-]+(?::\\d{1,4})?(?:/", path,
                        ")?|/?(?:(?:", kUriSign, ")", path, ")?)(?:\\?", rest, ")?(?:#", rest, ")?");
  }
  return "";
}

bool IsFormatOfSomeDraft(absl::string_view format) {
  constexpr absl::string_view kNames[] = {"idn-email",     "idn-hostname",  "iri",
                                          "iri-reference", "uri-reference", "uri-template",
                                          "json-pointer",  "regex",         "relative-json-pointer"};
  return std::find(std::begin(kNames), std::end(kNames), format) != std::end(kNames);
}

// Whether all texts of so many characters have a length from `min` to `max`.
bool HasLength(const RegexExpr& characters, int min, int max) {
  if (characters.min_characters < min) return false;
  return max == kUnbounded || (characters.max_characters != kUnbounded && characters.max_characters <= max);
}

}  // namespace

absl::StatusOr<RegexExpr> StringRules::Matching(absl::string_view pattern) {
  return AddRegex(
      pattern, [this](const CodePointSet& set) { return json_.Character(set); }, &json_.rules());
}

absl::StatusOr<std::optional<RegexExpr>> StringRules::Characters(const SchemaKeywords& all,
                                                                 const SchemaDocument& document) {
  const SchemaPlace* const pattern = all.Find("pattern");
  const SchemaPlace* const format = all.Find("format");
  if (format != nullptr && !format->json->is_string()) return format->Malformed("the name of a format");
  if (pattern != nullptr) {
    if (!pattern->json->is_string()) return pattern->Malformed("a regular expression");
    const absl::StatusOr<RegexExpr> matching = Matching(pattern->json->get_ref<const std::string&>());
    if (matching.ok()) return *matching;  // generators write the format that it stands for beside it
    RETURN_IF_ERROR(document.Refuse(*pattern, matching.status().message()));
  }
  if (format == nullptr) return std::nullopt;
  const std::string& name = format->json->get_ref<const std::string&>();
  if (IsFormatOfSomeDraft(name)) {
    RETURN_IF_ERROR(document.Refuse(*format, "this format is not supported: leave it out, or write a pattern"));
  }
  const std::string of_format = PatternOfFormat(name);
  if (of_format.empty()) return std::nullopt;
  const auto [made, is_new] = formats_.try_emplace(name);
  if (is_new) {
    ASSIGN_OR_RETURN(made->second, Matching(of_format));
    const RuleId rule = json_.rules().Declare(name);
    json_.rules().Define(rule, made->second.expr);
    made->second.expr = json_.rules().Call(rule);
  }
  return made->second;
}

absl::StatusOr<ExprId> StringRules::Build(const SchemaKeywords& all, const SchemaDocument& document) {
  ASSIGN_OR_RETURN(int min, document.CountOf(all, "minLength", 0));
  ASSIGN_OR_RETURN(const int max, document.CountOf(all, "maxLength", kUnbounded));
  ASSIGN_OR_RETURN(const std::optional<RegexExpr> characters, Characters(all, document));
  if (max != kUnbounded && max < min) {
    return all.Find("maxLength")->NoValue("expected minLength or more");
  }
  if (!characters.has_value()) {
    return min == 0 && max == kUnbounded ? json_.String() : json_.Quoted(json_.Characters(min, max));
  }
  if (!HasLength(*characters, min, max)) {
    const SchemaPlace& place = *all.Find(characters->min_characters < min ? "minLength" : "maxLength");
    RETURN_IF_ERROR(document.Refuse(place, "expected a pattern that has these lengths by itself, as '[a-z]{2,5}'"));
  }
  return json_.Quoted(characters->expr);
}

}  // namespace stagecoach
