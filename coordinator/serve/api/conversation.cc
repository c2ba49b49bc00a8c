#include "coordinator/serve/api/conversation.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/text/chat/chat_format.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
constexpr char kOmittedImage[] = "[image omitted: this model reads text only]";
constexpr size_t kMostFunctionNameBytes = 128;

absl::Status Misplaced(const std::string& place, absl::string_view what) {
  return ApiStatus(ApiErrorCode::kInvalidValue, absl::StrCat(place, ": ", what), place);
}

absl::Status MisplacedType(const std::string& place, absl::string_view expected, const Json& found) {
  return Misplaced(place, absl::StrCat("expected ", expected, ", found ", found.type_name()));
}

absl::Status MissingAt(const std::string& place) {
  return ApiStatus(ApiErrorCode::kMissingParameter, absl::StrCat(place, ": is missing"), place);
}

// The member, or null where it is absent or null.
const Json* Member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// The member, which must be a string.
absl::StatusOr<std::string> StringMember(const std::string& place, const Json& object, const char* name) {
  const Json* value = Member(object, name);
  const std::string member = absl::StrCat(place, ".", name);
  if (value == nullptr) return MissingAt(member);
  if (!value->is_string()) return MisplacedType(member, "a string", *value);
  return value->get<std::string>();
}

// Copies a member that may be absent and is a string.
absl::Status CopyString(const std::string& place, const Json& from, const char* name, const char* as, Json* to) {
  const Json* value = Member(from, name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_string()) return MisplacedType(absl::StrCat(place, ".", name), "a string", *value);
  (*to)[as] = *value;
  return absl::OkStatus();
}

// One conversation's messages on their way in.
class MessageReader {
 public:
  absl::StatusOr<Json> Read(const std::string& place, const Json& message) {
    if (!message.is_object()) return MisplacedType(place, "an object with role and content", message);
    ASSIGN_OR_RETURN(const std::string role, StringMember(place, message, "role"));
    if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles)) {
      return Misplaced(absl::StrCat(place, ".role"),
                       absl::StrCat("expected system, developer, user, assistant or tool, found ", ShownValue(role)));
    }
    Json read = {{"role", role}};
    const bool assistant = role == "assistant";
    Json calls = Json::array();
    if (const Json* given = Member(message, "tool_calls"); assistant && given != nullptr) {
      ASSIGN_OR_RETURN(calls, ReadCalls(absl::StrCat(place, ".tool_calls"), *given));
    }
    ASSIGN_OR_RETURN(read["content"], ReadContent(place, message, role, !calls.empty()));
    RETURN_IF_ERROR(CopyString(place, message, "name", "name", &read));
    if (role == "tool") RETURN_IF_ERROR(CopyString(place, message, "tool_call_id", "tool_call_id", &read));
    if (assistant) {
      RETURN_IF_ERROR(CopyString(place, message, "reasoning", "reasoning_content", &read));
      RETURN_IF_ERROR(CopyString(place, message, "reasoning_content", "reasoning_content", &read));
    }
    if (!calls.empty()) read["tool_calls"] = std::move(calls);
    return read;
  }

 private:
  absl::StatusOr<Json> ReadContent(const std::string& place, const Json& message, const std::string& role,
                                   bool has_calls) {
    const std::string content_place = absl::StrCat(place, ".content");
    const Json* content = Member(message, "content");
    if (content == nullptr) {
      if (role == "assistant") {
        // What it refused with is what it said.
        if (const Json* refusal = Member(message, "refusal"); refusal != nullptr && refusal->is_string()) {
          return *refusal;
        }
        return has_calls ? Json(nullptr) : Json("");
      }
      if (role == "tool" && message.contains("content")) return Json("");
      return MissingAt(content_place);
    }
    if (content->is_string()) return *content;
    if (!content->is_array()) return MisplacedType(content_place, "a string or a list of parts", *content);
    Json parts = Json::array();
    for (size_t i = 0; i < content->size(); ++i) {
      RETURN_IF_ERROR(CountPart());
      ASSIGN_OR_RETURN(std::string text, ReadPart(absl::StrCat(content_place, "[", i, "]"), (*content)[i], role));
      parts.push_back({{"type", "text"}, {"text", std::move(text)}});
    }
    if (parts.empty()) return Json("");
    return parts.size() == 1 ? std::move(parts[0]["text"]) : std::move(parts);
  }

  absl::Status CountPart() {
    if (++parts_ <= kMostParts) return absl::OkStatus();
    return Misplaced("messages", absl::StrCat("have more than ", kMostParts, " parts, expected at most that"));
  }

  absl::StatusOr<std::string> ReadPart(const std::string& place, const Json& part, const std::string& role) {
    if (!part.is_object()) return MisplacedType(place, "an object with a type", part);
    ASSIGN_OR_RETURN(const std::string type, StringMember(place, part, "type"));
    if (type == "text") return StringMember(place, part, "text");
    if (type == "refusal") return StringMember(place, part, "refusal");
    if (role == "tool") return std::string(kOmittedImage);
    const std::string type_place = absl::StrCat(place, ".type");
    return ApiStatus(
        ApiErrorCode::kUnsupportedContent,
        absl::StrCat(type_place, ": expected text, as this model reads nothing else; found ", ShownValue(type)),
        type_place);
  }

  absl::StatusOr<Json> ReadCalls(const std::string& place, const Json& calls) {
    if (!calls.is_array()) return MisplacedType(place, "a list of calls", calls);
    Json read = Json::array();
    for (size_t i = 0; i < calls.size(); ++i) {
      RETURN_IF_ERROR(CountPart());
      ASSIGN_OR_RETURN(Json call, ReadCall(absl::StrCat(place, "[", i, "]"), calls[i]));
      read.push_back(std::move(call));
    }
    return read;
  }

  static absl::StatusOr<Json> ReadCall(const std::string& place, const Json& call) {
    if (!call.is_object()) return MisplacedType(place, "an object with a function", call);
    Json read = Json::object();
    RETURN_IF_ERROR(CopyString(place, call, "id", "id", &read));
    read["type"] = "function";
    // A tool of one's own is offered as a function with one string, and was called as one.
    const Json* type = Member(call, "type");
    const bool custom = type != nullptr && *type == "custom";
    const char* member = custom ? "custom" : "function";
    const std::string inner = absl::StrCat(place, ".", member);
    const Json* function = Member(call, member);
    if (function == nullptr) return MissingAt(inner);
    if (!function->is_object()) return MisplacedType(inner, "an object with name and arguments", *function);
    ASSIGN_OR_RETURN(const std::string name, StringMember(inner, *function, "name"));
    Json arguments;
    if (custom) {
      ASSIGN_OR_RETURN(const std::string input, StringMember(inner, *function, "input"));
      arguments = CompactJson({{"input", input}});
    } else if (const Json* given = Member(*function, "arguments"); given == nullptr) {
      arguments = "{}";
    } else if (given->is_string() || given->is_object()) {
      arguments = *given;
    } else {
      return MisplacedType(absl::StrCat(inner, ".arguments"), "a string", *given);
    }
    read["function"] = {{"name", name}, {"arguments", std::move(arguments)}};
    return read;
  }

  size_t parts_ = 0;  // and calls
};

absl::Status NeedsForm(const std::string& place, absl::string_view what) {
  return ApiStatus(ApiErrorCode::kUnsupportedParameter,
                   absl::StrCat(place, ": ", what, " is not supported: answers cannot be bound to a form"), place);
}

// The object's string member, or an empty text.
std::string TextOf(const Json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto found = object.find(name);
  return found == object.end() || !found->is_string() ? "" : found->get<std::string>();
}

absl::Status CheckName(const std::string& place, const Json& function, std::set<std::string>* names) {
  const std::string name = TextOf(function, "name");
  if (!IsPlainName(name, kMostFunctionNameBytes)) {
    return Misplaced(absl::StrCat(place, ".name"),
                     absl::StrCat("expected 1 to ", kMostFunctionNameBytes, " letters, digits, '_', '.' and '-'"));
  }
  if (names->insert(name).second) return absl::OkStatus();
  return Misplaced(absl::StrCat(place, ".name"), absl::StrCat("'", name, "' is the name of an earlier tool"));
}

// `type`: "function", or "custom", which becomes a function with one string.
absl::StatusOr<Json> ReadTool(const std::string& place, const std::string& type, const Json& tool,
                              std::set<std::string>* names) {
  const auto given = tool.find(type);
  const std::string inner = absl::StrCat(place, ".", type);
  if (given == tool.end() || !given->is_object()) return Misplaced(inner, "expected an object with a name");
  RETURN_IF_ERROR(CheckName(inner, *given, names));
  if (type == "custom") {
    Json input = {
        {"type", "object"}, {"properties", {{"input", {{"type", "string"}}}}}, {"required", Json::array({"input"})}};
    Json function = {{"name", TextOf(*given, "name")},
                     {"description", TextOf(*given, "description")},
                     {"parameters", std::move(input)}};
    return Json{{"type", "function"}, {"function", std::move(function)}};
  }
  Json read = tool;
  Json& function = read["function"];
  if (function.contains("description") && !function["description"].is_string() && !function["description"].is_null()) {
    return Misplaced(absl::StrCat(inner, ".description"), "expected a string");
  }
  if (!function.contains("parameters") || function["parameters"].is_null()) {
    function["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
  }
  if (!function["parameters"].is_object()) {
    return Misplaced(absl::StrCat(inner, ".parameters"), "expected an object, a JSON schema");
  }
  return read;
}

absl::Status ReadToolList(const Json& tools, ToolFields* out) {
  if (!tools.is_array()) return WrongType("tools", "a list of tools", tools);
  RETURN_IF_ERROR(CheckSize("tools", tools.size(), "tools", kMostTools));
  RETURN_IF_ERROR(CheckSize("tools", CompactJson(tools).size(), "bytes", kMostToolBytes));
  std::set<std::string> names;
  bool strict = false;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string place = absl::StrCat("tools[", i, "]");
    if (!tools[i].is_object()) return Misplaced(place, "expected an object with a type");
    const std::string type = TextOf(tools[i], "type");
    if (type.empty()) return Misplaced(absl::StrCat(place, ".type"), "expected a string such as 'function'");
    if (type != "function" && type != "custom") {
      out->ignored.push_back(absl::StrCat("tools.", type));  // of others' machinery
      continue;
    }
    ASSIGN_OR_RETURN(Json tool, ReadTool(place, type, tools[i], &names));
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
  if (found == choice.end() || !found->is_object()) return Misplaced(kPlace, "expected an object with mode and tools");
  const std::string mode = TextOf(*found, "mode");
  if (mode == "required") return NeedsForm(absl::StrCat(kPlace, ".mode"), "'required'");
  if (mode != "auto") return Misplaced(absl::StrCat(kPlace, ".mode"), "expected auto or required");
  const auto list = found->find("tools");
  if (list == found->end() || !list->is_array() || list->size() > kMostTools) {
    return Misplaced(absl::StrCat(kPlace, ".tools"), absl::StrCat("expected a list of at most ", kMostTools, " tools"));
  }
  std::set<std::string> allowed;
  for (const Json& tool : *list) {
    if (!tool.is_object()) return Misplaced(absl::StrCat(kPlace, ".tools"), "expected objects with a type");
    for (const char* member : {"function", "custom"}) {
      if (tool.contains(member)) allowed.insert(TextOf(tool[member], "name"));
    }
  }
  Json kept = Json::array();
  for (Json& tool : out->tools) {
    if (allowed.contains(TextOf(tool["function"], "name"))) kept.push_back(std::move(tool));
  }
  if (kept.size() < allowed.size()) return Misplaced(absl::StrCat(kPlace, ".tools"), "names a tool that is not there");
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

// How hard to think: whether at all, and what a template reads.
absl::Status ReadEffort(FieldReader* fields, std::optional<bool>* thinking, Json* variables) {
  constexpr char kField[] = "reasoning_effort";
  std::string effort;
  RETURN_IF_ERROR(fields->String(kField, &effort));
  if (effort.empty()) return absl::OkStatus();
  *thinking = effort != "none";
  for (const auto& [name, level] : {std::pair{"none", ""},
                                    {"minimal", "low"},
                                    {"low", "low"},
                                    {"medium", "medium"},
                                    {"high", "high"},
                                    {"xhigh", "high"},
                                    {"max", "high"}}) {
    if (effort != name) continue;
    if (**thinking) (*variables)[kField] = level;
    return absl::OkStatus();
  }
  return WrongField(
      kField, absl::StrCat("expected none, minimal, low, medium, high, xhigh or max, found ", ShownValue(effort)));
}

absl::Status ReadTemplateVariables(FieldReader* fields, Json* variables) {
  constexpr char kField[] = "chat_template_kwargs";
  const Json* given = fields->Find(kField);
  if (given == nullptr) return absl::OkStatus();
  if (!given->is_object()) return WrongType(kField, "an object", *given);
  if (absl::Status status = CheckTemplateVariables(*given); !status.ok()) return WrongField(kField, status.message());
  variables->update(*given);
  return absl::OkStatus();
}

// What a template said of a conversation.
absl::Status TemplateFailure(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition: return ApiStatus(ApiErrorCode::kChatTemplateUnusable, status.message());
    case absl::StatusCode::kResourceExhausted: return ApiStatus(ApiErrorCode::kTemplateLimit, status.message());
    default: return ApiStatus(ApiErrorCode::kTemplateError, status.message(), "messages");
  }
}

}  // namespace

absl::StatusOr<Json> ReadMessages(const Json& messages) {
  if (!messages.is_array()) return MisplacedType("messages", "a list of messages", messages);
  if (messages.empty()) return Misplaced("messages", "is empty, expected at least one message");
  if (messages.size() > kMostMessages) {
    return Misplaced("messages", absl::StrCat("has ", messages.size(), " messages, expected at most ", kMostMessages));
  }
  MessageReader reader;
  Json read = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    ASSIGN_OR_RETURN(Json message, reader.Read(absl::StrCat("messages[", i, "]"), messages[i]));
    read.push_back(std::move(message));
  }
  return read;
}

absl::StatusOr<ToolFields> ReadTools(FieldReader* fields) {
  ToolFields out;
  out.tools = Json::array();
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

absl::StatusOr<RenderedConversation> ReadConversation(FieldReader* fields, const ServedModel& model, absl::Time now,
                                                      const PromptRoom& room) {
  const Json* given = fields->Find("messages");
  if (given == nullptr) return MissingField("messages");
  ASSIGN_OR_RETURN(const Json messages, ReadMessages(*given));
  ASSIGN_OR_RETURN(ToolFields tools, ReadTools(fields));
  Conversation conversation = {.messages = &messages};
  conversation.tools = &tools.tools;
  Json variables = Json::object();
  RETURN_IF_ERROR(ReadEffort(fields, &conversation.thinking, &variables));
  RETURN_IF_ERROR(ReadTemplateVariables(fields, &variables));
  conversation.variables = &variables;
  RETURN_IF_ERROR(fields->Bool("continue_final_message", &conversation.continue_final_message));
  if (model.chat == nullptr) {
    return ApiStatus(ApiErrorCode::kChatTemplateUnusable, "conversations are not answered here");
  }
  const absl::StatusOr<MarkedText> text = model.chat->Render(conversation, now);
  if (!text.ok()) return TemplateFailure(text.status());
  RenderedConversation rendered;
  rendered.text = text->text();
  auto tokens = model.tokenizer->EncodeMarkedUpTo(room.most_counted(), *text, /*add_bos=*/true);
  if (!tokens.has_value()) return room.TooLong();
  rendered.tokens = *std::move(tokens);
  if (model.recurrent) {
    const auto all = static_cast<int64_t>(rendered.tokens.size());
    rendered.conversation_tokens = model.chat->TokensBeforeAnswer(conversation, now, *text, all);
  }
  rendered.ignored = std::move(tools.ignored);
  // A template that leaves them out has no error for it.
  if (!tools.tools.empty() && !model.chat->abilities(/*with_tools=*/true).tools) rendered.ignored.push_back("tools");
  if (!rendered.tokens.empty()) return rendered;
  return ApiStatus(ApiErrorCode::kTemplateError, "the chat template makes nothing of this conversation", "messages");
}

}  // namespace stagecoach
