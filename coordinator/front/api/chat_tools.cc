#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/front/api/chat_messages.h"

namespace stagecoach {
namespace {

constexpr size_t kMostFunctionNameBytes = 128;

absl::Status WrongTool(const std::string& place, absl::string_view what) {
  return ApiStatus(ApiErrorCode::kInvalidValue, absl::StrCat(place, ": ", what), place);
}

absl::Status NeedsForm(const std::string& place, absl::string_view what) {
  return ApiStatus(ApiErrorCode::kUnsupportedParameter,
                   absl::StrCat(place, ": ", what, " is not supported: answers cannot be bound to a form"), place);
}

bool IsFunctionName(const std::string& name) {
  return !name.empty() && name.size() <= kMostFunctionNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
  });
}

// The object's string member, or an empty text.
std::string TextOf(const Json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto found = object.find(name);
  return found == object.end() || !found->is_string() ? "" : found->get<std::string>();
}

absl::Status CheckName(const std::string& place, const Json& function, std::set<std::string>* names) {
  const std::string name = TextOf(function, "name");
  if (!IsFunctionName(name)) {
    return WrongTool(absl::StrCat(place, ".name"),
                     absl::StrCat("expected 1 to ", kMostFunctionNameBytes, " letters, digits, '_', '.' and '-'"));
  }
  if (names->insert(name).second) return absl::OkStatus();
  return WrongTool(absl::StrCat(place, ".name"), absl::StrCat("'", name, "' is the name of an earlier tool"));
}

absl::StatusOr<Json> ReadFunction(const std::string& place, const Json& tool, std::set<std::string>* names) {
  const auto function = tool.find("function");
  const std::string inner = absl::StrCat(place, ".function");
  if (function == tool.end() || !function->is_object()) return WrongTool(inner, "expected an object with a name");
  RETURN_IF_ERROR(CheckName(inner, *function, names));
  Json read = tool;
  Json& copy = read["function"];
  if (copy.contains("description") && !copy["description"].is_string() && !copy["description"].is_null()) {
    return WrongTool(absl::StrCat(inner, ".description"), "expected a string");
  }
  if (!copy.contains("parameters") || copy["parameters"].is_null()) {
    copy["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
  }
  if (!copy["parameters"].is_object()) {
    return WrongTool(absl::StrCat(inner, ".parameters"), "expected an object, a JSON schema");
  }
  return read;
}

// A function with one string.
absl::StatusOr<Json> ReadCustom(const std::string& place, const Json& tool, std::set<std::string>* names) {
  const auto custom = tool.find("custom");
  const std::string inner = absl::StrCat(place, ".custom");
  if (custom == tool.end() || !custom->is_object()) return WrongTool(inner, "expected an object with a name");
  RETURN_IF_ERROR(CheckName(inner, *custom, names));
  Json input = {
      {"type", "object"}, {"properties", {{"input", {{"type", "string"}}}}}, {"required", Json::array({"input"})}};
  Json read = {{"type", "function"},
               {"function",
                {{"name", TextOf(*custom, "name")},
                 {"description", TextOf(*custom, "description")},
                 {"parameters", std::move(input)}}}};
  return read;
}

absl::Status ReadToolList(const Json& tools, ToolFields* out) {
  if (!tools.is_array()) return WrongType("tools", "a list of tools", tools);
  if (tools.size() > kMostTools) {
    return WrongField("tools", absl::StrCat("has ", tools.size(), " tools, expected at most ", kMostTools));
  }
  if (const size_t bytes = CompactJson(tools).size(); bytes > kMostToolBytes) {
    return WrongField("tools", absl::StrCat("has ", bytes, " bytes, expected at most ", kMostToolBytes));
  }
  std::set<std::string> names;
  bool strict = false;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string place = absl::StrCat("tools[", i, "]");
    if (!tools[i].is_object()) return WrongTool(place, "expected an object with a type");
    const std::string type = TextOf(tools[i], "type");
    if (type.empty()) return WrongTool(absl::StrCat(place, ".type"), "expected a string such as 'function'");
    if (type != "function" && type != "custom") {
      out->ignored.push_back(absl::StrCat("tools.", type));  // of others' machinery
      continue;
    }
    ASSIGN_OR_RETURN(Json tool,
                     type == "function" ? ReadFunction(place, tools[i], &names) : ReadCustom(place, tools[i], &names));
    const Json& function = tool["function"];
    strict = strict || (function.contains("strict") && function["strict"] == true);
    out->tools.push_back(std::move(tool));
  }
  if (strict) out->ignored.push_back("tools.strict");  // arguments are as the model writes them
  return absl::OkStatus();
}

// {"mode", "tools"}: only these are offered.
absl::Status ReadAllowedTools(const Json& choice, ToolFields* out) {
  constexpr char kPlace[] = "tool_choice.allowed_tools";
  const auto found = choice.find("allowed_tools");
  if (found == choice.end() || !found->is_object()) return WrongTool(kPlace, "expected an object with mode and tools");
  const std::string mode = TextOf(*found, "mode");
  if (mode == "required") return NeedsForm(absl::StrCat(kPlace, ".mode"), "'required'");
  if (mode != "auto") return WrongTool(absl::StrCat(kPlace, ".mode"), "expected auto or required");
  const auto list = found->find("tools");
  if (list == found->end() || !list->is_array() || list->size() > kMostTools) {
    return WrongTool(absl::StrCat(kPlace, ".tools"), absl::StrCat("expected a list of at most ", kMostTools, " tools"));
  }
  std::set<std::string> allowed;
  for (const Json& tool : *list) {
    if (!tool.is_object()) return WrongTool(absl::StrCat(kPlace, ".tools"), "expected objects with a type");
    for (const char* member : {"function", "custom"}) {
      if (tool.contains(member)) allowed.insert(TextOf(tool[member], "name"));
    }
  }
  Json kept = Json::array();
  for (Json& tool : out->tools) {
    if (allowed.contains(TextOf(tool["function"], "name"))) kept.push_back(std::move(tool));
  }
  if (kept.size() < allowed.size()) return WrongTool(absl::StrCat(kPlace, ".tools"), "names a tool that is not there");
  out->tools = std::move(kept);
  return absl::OkStatus();
}

absl::Status ReadToolChoice(const Json& choice, ToolFields* out) {
  constexpr char kField[] = "tool_choice";
  if (choice == "auto") return absl::OkStatus();
  if (choice == "none") {
    out->tools = Json::array();
    return absl::OkStatus();
  }
  if (out->tools.empty() && (choice == "required" || choice.is_object())) {
    return WrongField(kField, "asks for a call, but there are no tools");
  }
  if (choice == "required") return NeedsForm(kField, "'required'");
  const std::string type = TextOf(choice, "type");
  if (type == "allowed_tools") return ReadAllowedTools(choice, out);
  if (type == "function" || type == "custom") return NeedsForm(kField, "one function that must be called");
  return WrongField(kField, "expected none, auto, required, a function or allowed_tools");
}

}  // namespace

ToolFields::ToolFields() : tools(Json::array()) {}

absl::StatusOr<ToolFields> ReadTools(FieldReader* fields) {
  ToolFields out;
  if (const Json* tools = fields->Find("tools"); tools != nullptr) RETURN_IF_ERROR(ReadToolList(*tools, &out));
  if (const Json* choice = fields->Find("tool_choice"); choice != nullptr) {
    RETURN_IF_ERROR(ReadToolChoice(*choice, &out));
  }
  if (const Json* parallel = fields->Find("parallel_tool_calls"); parallel != nullptr) {
    bool wanted = true;
    RETURN_IF_ERROR(ReadBool("parallel_tool_calls", *parallel, &wanted));
    out.ignored.push_back("parallel_tool_calls");  // as many calls as the model writes
  }
  return out;
}

}  // namespace stagecoach
