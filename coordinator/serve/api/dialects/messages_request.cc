#include "coordinator/serve/api/dialects/messages_request.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/generation_fields.h"

namespace stagecoach {
namespace {

constexpr char kClientStamp[] = "x-anthropic-billing-header:";
constexpr char kBetweenSystemTexts[] = "\n\n";

// How many bytes of `text` are blanks and then a pair "key=value" with a ';' or the end of the line behind it; 0: none.
size_t StampPairBytes(absl::string_view text) {
  const size_t key = std::min(text.find_first_not_of(" \t"), text.size());
  const size_t equals = text.find_first_of("=; \t\r\n", key);
  if (equals == absl::string_view::npos || equals == key || text[equals] != '=') return 0;
  const size_t end = text.find_first_of("; \t\r\n", equals);
  if (end == absl::string_view::npos) return text.size();
  if (text[end] == ';') return end + 1;
  return text[end] == '\r' || text[end] == '\n' ? end : 0;
}

absl::string_view WithoutClientStamp(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, kClientStamp)) return text;
  while (const size_t bytes = StampPairBytes(text)) text.remove_prefix(bytes);
  return absl::StripLeadingAsciiWhitespace(text);
}

// One conversation on its way in.
class BlockReader {
 public:
  BlockReader(bool keep_client_stamp, ChatRequest* request)
      : keep_client_stamp_(keep_client_stamp), request_(*request) {}

  absl::Status Read(const std::string& place, const Json& message) {
    if (!message.is_object()) return MisplacedType(place, "an object with role and content", message);
    ASSIGN_OR_RETURN(const std::string role, StringMember(place, message, "role"));
    const std::string content_place = absl::StrCat(place, ".content");
    const Json* content = Member(message, "content");
    if (role != "user" && role != "assistant" && role != "system") {
      return Misplaced(absl::StrCat(place, ".role"),
                       absl::StrCat("expected user, assistant or system, found ", ShownValue(role)));
    }
    if (content == nullptr) return MissingAt(content_place);
    if (role == "system") return ReadSystem(content_place, *content);
    return role == "user" ? ReadUser(content_place, *content) : ReadAssistant(content_place, *content);
  }

  absl::Status ReadSystem(const std::string& place, const Json& content) {
    std::string all;
    const auto add = [&](const std::string& at, const std::string& type, const Json& block) -> absl::Status {
      if (type != "text") return RefuseBlock(at, type);
      ASSIGN_OR_RETURN(const std::string text, StringMember(at, block, "text"));
      const absl::string_view kept = keep_client_stamp_ ? text : WithoutClientStamp(text);
      if (!kept.empty()) absl::StrAppend(&all, all.empty() ? "" : kBetweenSystemTexts, kept);
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(Visit(place, content, add));
    if (!all.empty()) request_.messages.push_back({{"role", "system"}, {"content", std::move(all)}});
    return absl::OkStatus();
  }

 private:
  using Visitor = absl::FunctionRef<absl::Status(const std::string& at, const std::string& type, const Json& block)>;

  // A text is one block.
  absl::Status Visit(const std::string& place, const Json& content, Visitor visitor) {
    if (content.is_string()) return visitor(place, "text", {{"text", content}});
    if (!content.is_array()) return MisplacedType(place, "a string or a list of blocks", content);
    for (size_t i = 0; i < content.size(); ++i) {
      RETURN_IF_ERROR(blocks_.Count());
      const std::string at = absl::StrCat(place, "[", i, "]");
      if (!content[i].is_object()) return MisplacedType(at, "an object with a type", content[i]);
      ASSIGN_OR_RETURN(const std::string type, StringMember(at, content[i], "type"));
      RETURN_IF_ERROR(visitor(at, type, content[i]));
    }
    return absl::OkStatus();
  }

  static absl::Status RefuseBlock(const std::string& at, const std::string& type) {
    return RefusePart(absl::StrCat(at, ".type"), type);
  }

  static absl::Status AddText(const std::string& at, const Json& block, Json* parts) {
    ASSIGN_OR_RETURN(std::string text, StringMember(at, block, "text"));
    parts->push_back({{"type", "text"}, {"text", std::move(text)}});
    return absl::OkStatus();
  }

  absl::Status ReadUser(const std::string& place, const Json& content) {
    Json parts = Json::array();
    bool has_results = false;
    const auto add = [&](const std::string& at, const std::string& type, const Json& block) -> absl::Status {
      if (type == "text") return AddText(at, block, &parts);
      if (type != "tool_result") return RefuseBlock(at, type);
      has_results = true;
      return ReadResult(at, block);
    };
    RETURN_IF_ERROR(Visit(place, content, add));
    if (parts.empty() && has_results) return absl::OkStatus();
    request_.messages.push_back({{"role", "user"}, {"content", ContentOfParts(std::move(parts))}});
    return absl::OkStatus();
  }

  absl::Status ReadResult(const std::string& place, const Json& result) {
    ASSIGN_OR_RETURN(std::string id, StringMember(place, result, "tool_use_id"));
    Json parts = Json::array();
    const auto add = [&](const std::string& at, const std::string& type, const Json& block) -> absl::Status {
      if (type == "text") return AddText(at, block, &parts);
      const bool names_tool = type == "tool_reference";  // what a search for tools found
      parts.push_back({{"type", "text"}, {"text", names_tool ? TextOf(block, "tool_name") : kOmittedImage}});
      return absl::OkStatus();
    };
    if (const Json* content = Member(result, "content"); content != nullptr) {
      RETURN_IF_ERROR(Visit(absl::StrCat(place, ".content"), *content, add));
    }
    request_.messages.push_back(
        {{"role", "tool"}, {"content", ContentOfParts(std::move(parts))}, {"tool_call_id", std::move(id)}});
    return absl::OkStatus();
  }

  absl::Status ReadAssistant(const std::string& place, const Json& content) {
    std::string said, thought;
    Json calls = Json::array();
    const auto add = [&](const std::string& at, const std::string& type, const Json& block) -> absl::Status {
      if (type == "redacted_thinking") return absl::OkStatus();
      if (type == "tool_use") return AddCall(at, block, &calls);
      if (type == "tool_result") return RefuseBlock(at, type);
      if (type != "text" && type != "thinking") {
        SkipPart("messages", type, &request_);
        return absl::OkStatus();
      }
      ASSIGN_OR_RETURN(const std::string text, StringMember(at, block, type.c_str()));
      (type == "text" ? said : thought) += text;
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(Visit(place, content, add));
    Json message = {{"role", "assistant"}, {"content", AssistantContent(std::move(said), !calls.empty())}};
    if (!thought.empty()) message["reasoning_content"] = std::move(thought);
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    request_.messages.push_back(std::move(message));
    return absl::OkStatus();
  }

  static absl::Status AddCall(const std::string& place, const Json& use, Json* calls) {
    ASSIGN_OR_RETURN(std::string id, StringMember(place, use, "id"));
    ASSIGN_OR_RETURN(std::string name, StringMember(place, use, "name"));
    const Json* input = Member(use, "input");
    if (input != nullptr && !input->is_object()) {
      return MisplacedType(absl::StrCat(place, ".input"), "an object", *input);
    }
    Json function = {{"name", std::move(name)}, {"arguments", input == nullptr ? "{}" : CompactJson(*input)}};
    calls->push_back({{"id", std::move(id)}, {"type", "function"}, {"function", std::move(function)}});
    return absl::OkStatus();
  }

  const bool keep_client_stamp_;
  ChatRequest& request_;
  PartCounter blocks_{"messages"};
};

absl::Status ReadConversationBlocks(FieldReader* fields, bool keep_client_stamp, ChatRequest* request) {
  const Json* messages = fields->Find("messages");
  const Json* system = fields->Find("system");
  if (messages == nullptr) return MissingField("messages");
  if (!messages->is_array()) return WrongType("messages", "a list of messages", *messages);
  RETURN_IF_ERROR(CheckSize("messages", messages->size(), "messages", kMostMessages));
  BlockReader reader(keep_client_stamp, request);
  if (system != nullptr) RETURN_IF_ERROR(reader.ReadSystem("system", *system));
  for (size_t i = 0; i < messages->size(); ++i) {
    RETURN_IF_ERROR(reader.Read(absl::StrCat("messages[", i, "]"), (*messages)[i]));
  }
  if (messages->empty() || request->messages.empty()) {
    return WrongField("messages", "is empty, expected at least one message that says something");
  }
  const Json& last = request->messages.back();
  request->continue_final_message = last["role"] == "assistant" && !last.contains("tool_calls");
  return absl::OkStatus();
}

absl::Status ReadSchemaTools(const Json& tools, ToolSet* out) {
  if (!tools.is_array()) return WrongType("tools", "a list of tools", tools);
  RETURN_IF_ERROR(CheckSize("tools", tools.size(), "tools", kMostTools));
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string place = absl::StrCat("tools[", i, "]");
    if (!tools[i].is_object()) return MisplacedType(place, "an object with a name and an input_schema", tools[i]);
    const std::string type = TextOf(tools[i], "type");
    if (type.empty() || type == "custom") {
      RETURN_IF_ERROR(AddTool(place, tools[i], {.schema = "input_schema"}, out));
    } else {
      out->skipped.push_back(absl::StrCat("tools.", type));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadUseOfTools(const Json& choice, ToolSet* tools) {
  constexpr char kPlace[] = "tool_choice";
  if (!choice.is_object()) return WrongType(kPlace, "an object with a type", choice);
  ASSIGN_OR_RETURN(const std::string type, StringMember(kPlace, choice, "type"));
  if (const Json* single = Member(choice, "disable_parallel_tool_use"); single != nullptr) {
    bool one_call = false;
    RETURN_IF_ERROR(ReadBool("tool_choice.disable_parallel_tool_use", *single, &one_call));
    tools->parallel = !one_call;
  }
  if (type == "auto") return absl::OkStatus();
  if (type == "none") return tools->Choose(kPlace, ToolSet::Choice::kNone);
  if (type == "any") return tools->Choose(kPlace, ToolSet::Choice::kRequired);
  if (type != "tool") return Misplaced("tool_choice.type", "expected auto, any, tool or none");
  ASSIGN_OR_RETURN(const std::string name, StringMember(kPlace, choice, "name"));
  return tools->Choose(kPlace, ToolSet::Choice::kNamed, name);
}

absl::Status ReadOutputEffort(FieldReader* fields, ChatRequest* request) {
  ASSIGN_OR_RETURN(const Json* config, fields->FindObject("output_config"));
  if (config == nullptr || Member(*config, "effort") == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string effort, StringMember("output_config", *config, "effort"));
  return SetEffort("output_config.effort", effort, request);
}

// After the effort, over which it decides whether to think at all.
absl::Status ReadThinking(FieldReader* fields, std::vector<std::string>* ignored, ChatRequest* request) {
  const Json* thinking = fields->Find("thinking");
  if (thinking == nullptr) return absl::OkStatus();
  if (!thinking->is_object()) return WrongType("thinking", "an object with a type", *thinking);
  ASSIGN_OR_RETURN(const std::string type, StringMember("thinking", *thinking, "type"));
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    return Misplaced("thinking.type", "expected enabled, disabled or adaptive");
  }
  request->thinking = type != "disabled";
  if (type == "disabled") request->variables.erase("reasoning_effort");
  if (const Json* budget = Member(*thinking, "budget_tokens"); budget != nullptr) {
    int64_t tokens = 0;
    RETURN_IF_ERROR(ReadNumber("thinking.budget_tokens", *budget, kMaxNewTokensRange, &tokens));
    ignored->push_back("thinking.budget_tokens");  // it thinks as long as it does
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatRequest> ReadMessagesRequest(FieldReader* fields, bool keep_client_stamp,
                                                std::vector<std::string>* ignored) {
  ChatRequest request;
  RETURN_IF_ERROR(ReadConversationBlocks(fields, keep_client_stamp, &request));
  if (const Json* tools = fields->Find("tools"); tools != nullptr) {
    RETURN_IF_ERROR(ReadSchemaTools(*tools, &request.tools));
  }
  if (const Json* choice = fields->Find("tool_choice"); choice != nullptr) {
    RETURN_IF_ERROR(ReadUseOfTools(*choice, &request.tools));
  }
  RETURN_IF_ERROR(ReadOutputEffort(fields, &request));
  RETURN_IF_ERROR(ReadThinking(fields, ignored, &request));
  RETURN_IF_ERROR(ReadTemplateVariables(fields, &request));
  return request;
}

}  // namespace stagecoach
