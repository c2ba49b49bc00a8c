#include "coordinator/serve/api/conversation/tools.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/serve/api/generation_fields.h"
#include "coordinator/text/grammar/regex.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach {
namespace {

constexpr size_t kMostFunctionNameBytes = 128;
constexpr char kFunction[] = "function", kCustom[] = "custom", kNamespace[] = "namespace", kInput[] = "input";

// {"type": "object", "properties": ...}, of a custom tool.
Json InputSchema() {
  return {{"type", "object"}, {"properties", {{kInput, {{"type", "string"}}}}}, {"required", Json::array({kInput})}};
}

// What a custom tool says of its input. A pattern is held to as a strict tool's arguments are. Of another grammar the
// model is told: some tools' descriptions leave it to that to say what they take.
void AddInputFormat(const Json& format, OfferedTool* tool, ToolSet* tools) {
  const std::string type = TextOf(format, "type");
  if (type == "text") return;
  const Json* nested = Member(format, "grammar");  // in chat completions
  const Json& grammar = nested == nullptr ? format : *nested;
  const std::string syntax = TextOf(grammar, "syntax"), definition = TextOf(grammar, "definition");
  const bool is_grammar = type == "grammar" && !definition.empty();
  Json& input = tool->function["parameters"]["properties"][kInput];
  GrammarRules rules;
  if (is_grammar && syntax == "regex" && AddPlainRegex(definition, &rules).ok()) {
    input["pattern"] = definition;
    tool->strict = true;
    return;
  }
  if (is_grammar) input["description"] = absl::StrCat("Follows this grammar (", syntax, "):\n", definition);
  tools->skipped.push_back("tools.format");
}

// The members of a tool, or of what names one. Null: they are not there.
const Json* MembersOf(const Json& tool, const char* type, ToolSpelling spelling) {
  const Json* members = spelling == ToolSpelling::kFlat ? &tool : Member(tool, type);
  return members != nullptr && members->is_object() ? members : nullptr;
}

std::string PlaceOf(const std::string& place, const char* type, ToolSpelling spelling) {
  return spelling == ToolSpelling::kFlat ? place : absl::StrCat(place, ".", type);
}

// The name of the tool that is meant, among the model's. Empty: it is none of ours.
std::string MeantTool(const Json& tool, ToolSpelling spelling) {
  const std::string type = TextOf(tool, "type");
  for (const char* kind : {kFunction, kCustom}) {
    const Json* members = type.empty() || type == kind ? MembersOf(tool, kind, spelling) : nullptr;
    if (members != nullptr) return OfferedName(TextOf(*members, kNamespace), TextOf(*members, "name"));
  }
  return "";
}

absl::Status ReadToolsOf(const std::string& place, const Json& list, ToolSpelling spelling,
                         const std::string& name_space, ToolSet* tools);

absl::Status ReadNamespace(const std::string& place, const Json& members, ToolSpelling spelling, ToolSet* tools) {
  ASSIGN_OR_RETURN(const std::string name, StringMember(place, members, "name"));
  if (!IsPlainName(name, kMostFunctionNameBytes)) {
    return Misplaced(absl::StrCat(place, ".name"), "expected letters, digits, '_', '.' and '-'");
  }
  const Json* list = Member(members, "tools");
  if (list == nullptr) return MissingAt(absl::StrCat(place, ".tools"));
  return ReadToolsOf(absl::StrCat(place, ".tools"), *list, spelling, name, tools);
}

absl::Status ReadTool(const std::string& place, const Json& tool, ToolSpelling spelling, const std::string& name_space,
                      ToolSet* tools) {
  if (!tool.is_object()) return Misplaced(place, "expected an object with a type");
  const std::string type = TextOf(tool, "type");
  if (type.empty()) return Misplaced(absl::StrCat(place, ".type"), "expected a string such as 'function'");
  for (const char* known : {kFunction, kCustom, kNamespace}) {
    if (type != known || (!name_space.empty() && type == kNamespace)) continue;
    const std::string inner = PlaceOf(place, known, spelling);
    const Json* members = MembersOf(tool, known, spelling);
    if (members == nullptr) return Misplaced(inner, "expected an object with a name");
    if (type == kNamespace) return ReadNamespace(inner, *members, spelling, tools);
    ToolForm form;
    if (type == kCustom) form.kind = OfferedTool::Kind::kCustom;
    form.name_space = name_space;
    return AddTool(inner, *members, form, tools);
  }
  tools->skipped.push_back(absl::StrCat("tools.", type));
  return absl::OkStatus();
}

absl::Status ReadToolsOf(const std::string& place, const Json& list, ToolSpelling spelling,
                         const std::string& name_space, ToolSet* tools) {
  if (!list.is_array()) return MisplacedType(place, "a list of tools", list);
  RETURN_IF_ERROR(CheckSize(place, list.size(), "tools", kMostTools));
  RETURN_IF_ERROR(CheckSize(place, CompactJson(list).size(), "bytes", kMostToolBytes));
  for (size_t i = 0; i < list.size(); ++i) {
    RETURN_IF_ERROR(ReadTool(absl::StrCat(place, "[", i, "]"), list[i], spelling, name_space, tools));
  }
  return absl::OkStatus();
}

// mode and tools: only these are offered.
absl::Status ReadAllowedTools(const std::string& place, const Json& allowed, ToolSpelling spelling, ToolSet* tools) {
  const std::string mode = TextOf(allowed, "mode"), mode_place = absl::StrCat(place, ".mode");
  if (mode != "auto" && mode != "required") return Misplaced(mode_place, "expected auto or required");
  const std::string list_place = absl::StrCat(place, ".tools");
  const Json* list = Member(allowed, "tools");
  if (list == nullptr || !list->is_array() || list->size() > kMostTools) {
    return Misplaced(list_place, absl::StrCat("expected a list of at most ", kMostTools, " tools"));
  }
  std::set<std::string> names;
  for (const Json& tool : *list) {
    if (!tool.is_object()) return Misplaced(list_place, "expected objects with a type");
    const std::string type = TextOf(tool, "type");
    if (type == kNamespace) {
      const Json* members = MembersOf(tool, kNamespace, spelling);
      const std::string name_space = members == nullptr ? "" : TextOf(*members, "name");
      const size_t before = names.size();
      for (const OfferedTool& offered : tools->offered()) {
        if (!name_space.empty() && offered.name_space == name_space) names.insert(offered.name);
      }
      if (names.size() == before) return Misplaced(list_place, "names a namespace that is not there");
      continue;
    }
    std::string name = MeantTool(tool, spelling);  // of ours without one: there is no such tool
    if (!name.empty() || type == kFunction || type == kCustom) names.insert(std::move(name));
  }
  RETURN_IF_ERROR(tools->OfferOnly(list_place, names));
  return mode == "auto" ? absl::OkStatus() : tools->Choose(mode_place, ToolSet::Choice::kRequired);
}

}  // namespace

std::string OfferedName(absl::string_view name_space, absl::string_view own_name) {
  if (name_space.empty() || name_space == "functions") return std::string(own_name);
  return absl::StrCat(name_space, "__", own_name);
}

absl::Status ToolSet::Add(const std::string& place, OfferedTool tool) {
  const std::string name_place = absl::StrCat(place, ".name");
  if (tool.own_name.empty() || !IsPlainName(tool.name, kMostFunctionNameBytes)) {
    return Misplaced(name_place,
                     absl::StrCat("expected 1 to ", kMostFunctionNameBytes, " letters, digits, '_', '.' and '-'"));
  }
  if (Find(tool.name) != nullptr) {
    return Misplaced(name_place, absl::StrCat("'", tool.name, "' is the name of an earlier tool"));
  }
  bytes_ += CompactJson(tool.function).size();
  if (offered_.size() == kMostTools || bytes_ > kMostToolBytes) {
    return Misplaced(place, absl::StrCat("is one too many, expected at most ", kMostTools, " tools of ", kMostToolBytes,
                                         " bytes in all"));
  }
  offered_.push_back(std::move(tool));
  return absl::OkStatus();
}

absl::Status ToolSet::OfferOnly(const std::string& place, const std::set<std::string>& names) {
  for (const std::string& name : names) {
    if (Find(name) == nullptr) return Misplaced(place, "names a tool that is not there");
  }
  const auto goes = [&names](const OfferedTool& tool) { return !names.contains(tool.name); };
  offered_.erase(std::remove_if(offered_.begin(), offered_.end(), goes), offered_.end());
  return absl::OkStatus();
}

absl::Status ToolSet::Choose(const std::string& place, Choice choice, absl::string_view name) {
  if (choice == Choice::kNone) offered_.clear();
  if (choice == Choice::kNone || choice == Choice::kAuto) return absl::OkStatus();
  if (empty()) return Misplaced(place, "asks for a call, but there are no tools");
  if (choice == Choice::kNamed && Find(name) == nullptr) return Misplaced(place, "names a tool that is not there");
  choice_ = choice;
  chosen_ = std::string(name);
  return absl::OkStatus();
}

const OfferedTool* ToolSet::Find(absl::string_view name) const {
  const auto found = absl::c_find_if(offered_, [name](const OfferedTool& tool) { return tool.name == name; });
  return found == offered_.end() ? nullptr : &*found;
}

Json ToolSet::ForTemplate() const {
  Json list = Json::array();
  for (const OfferedTool& tool : offered_) list.push_back({{"type", kFunction}, {kFunction, tool.function}});
  return list;
}

absl::Status AddTool(const std::string& place, const Json& members, const ToolForm& form, ToolSet* tools) {
  OfferedTool tool;
  tool.kind = form.kind;
  tool.own_name = TextOf(members, "name");
  tool.name_space = form.name_space;
  tool.name = OfferedName(form.name_space, tool.own_name);
  tool.function = {{"name", tool.name}};
  RETURN_IF_ERROR(CopyString(place, members, "description", "description", &tool.function));
  const Json* strict = Member(members, "strict");
  tool.strict = strict != nullptr && *strict == true;
  const Json* schema = Member(members, form.schema);
  if (form.kind == OfferedTool::Kind::kCustom) {
    tool.function["parameters"] = InputSchema();
    if (const Json* format = Member(members, "format"); format != nullptr) AddInputFormat(*format, &tool, tools);
  } else if (schema == nullptr) {
    tool.function["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
  } else if (schema->is_object()) {
    tool.function["parameters"] = *schema;
  } else {
    return Misplaced(absl::StrCat(place, ".", form.schema), "expected an object, a JSON schema");
  }
  return tools->Add(place, std::move(tool));
}

absl::Status ReadTools(const std::string& place, const Json& list, ToolSpelling spelling, ToolSet* tools) {
  return ReadToolsOf(place, list, spelling, /*name_space=*/"", tools);
}

absl::Status ReadToolChoice(FieldReader* fields, ToolSpelling spelling, ToolSet* tools) {
  constexpr char kPlace[] = "tool_choice";
  RETURN_IF_ERROR(fields->Bool("parallel_tool_calls", &tools->parallel));
  const Json* choice = fields->Find(kPlace);
  if (choice == nullptr || *choice == "auto") return absl::OkStatus();
  if (*choice == "none") return tools->Choose(kPlace, ToolSet::Choice::kNone);
  if (*choice == "required") return tools->Choose(kPlace, ToolSet::Choice::kRequired);
  const std::string type = TextOf(*choice, "type");
  if (type == kFunction || type == kCustom) {
    return tools->Choose(kPlace, ToolSet::Choice::kNamed, MeantTool(*choice, spelling));
  }
  if (type != "allowed_tools") {
    return Misplaced(kPlace, "expected none, auto, required, a function or allowed_tools");
  }
  const Json* allowed = MembersOf(*choice, "allowed_tools", spelling);
  const std::string place = PlaceOf(kPlace, "allowed_tools", spelling);
  if (allowed == nullptr) return Misplaced(place, "expected an object with mode and tools");
  return ReadAllowedTools(place, *allowed, spelling, tools);
}

std::string ArgumentsOfInput(absl::string_view input) { return CompactJson({{kInput, std::string(input)}}); }

}  // namespace stagecoach
