#include "coordinator/serve/api/conversation/chat_messages.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

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
    if (Member(message, "function_call") != nullptr) {
      return Misplaced(absl::StrCat(place, ".function_call"),
                       "is the old form of a call, expected 'tool_calls', and what it gave in a message of role tool");
    }
    Json read = {{"role", role}};
    const bool assistant = role == "assistant";
    Json calls = Json::array();
    if (const Json* given = Member(message, "tool_calls"); assistant && given != nullptr) {
      ASSIGN_OR_RETURN(calls, ReadCalls(absl::StrCat(place, ".tool_calls"), *given));
    }
    ASSIGN_OR_RETURN(Json content, ReadContent(place, message, role));
    read["content"] = AssistantContent(std::move(content), !calls.empty());
    RETURN_IF_ERROR(CopyString(place, message, "name", "name", &read));
    if (role == "tool") RETURN_IF_ERROR(CopyString(place, message, "tool_call_id", "tool_call_id", &read));
    if (assistant) {
      RETURN_IF_ERROR(CopyString(place, message, "reasoning", "reasoning_content", &read));
      RETURN_IF_ERROR(CopyString(place, message, "reasoning_content", "reasoning_content", &read));
      if (TextOf(read, "reasoning_content").empty()) read.erase("reasoning_content");
    }
    if (!calls.empty()) read["tool_calls"] = std::move(calls);
    return read;
  }

 private:
  absl::StatusOr<Json> ReadContent(const std::string& place, const Json& message, const std::string& role) {
    const std::string content_place = absl::StrCat(place, ".content");
    const Json* content = Member(message, "content");
    if (content == nullptr) {
      if (role == "assistant") {
        // What it refused with is what it said.
        if (const Json* refusal = Member(message, "refusal"); refusal != nullptr && refusal->is_string()) {
          return *refusal;
        }
        return Json("");
      }
      if (role == "tool" && message.contains("content")) return Json("");
      return MissingAt(content_place);
    }
    if (content->is_string()) return *content;
    if (!content->is_array()) return MisplacedType(content_place, "a string or a list of parts", *content);
    Json parts = Json::array();
    for (size_t i = 0; i < content->size(); ++i) {
      RETURN_IF_ERROR(parts_.Count());
      ASSIGN_OR_RETURN(std::string text, ReadPart(absl::StrCat(content_place, "[", i, "]"), (*content)[i], role));
      parts.push_back({{"type", "text"}, {"text", std::move(text)}});
    }
    return ContentOfParts(std::move(parts));
  }

  absl::StatusOr<std::string> ReadPart(const std::string& place, const Json& part, const std::string& role) {
    if (!part.is_object()) return MisplacedType(place, "an object with a type", part);
    ASSIGN_OR_RETURN(const std::string type, StringMember(place, part, "type"));
    if (type == "text") return StringMember(place, part, "text");
    if (type == "refusal") return StringMember(place, part, "refusal");
    if (role == "tool") return std::string(kOmittedImage);
    return RefusePart(absl::StrCat(place, ".type"), type);
  }

  absl::StatusOr<Json> ReadCalls(const std::string& place, const Json& calls) {
    if (!calls.is_array()) return MisplacedType(place, "a list of calls", calls);
    Json read = Json::array();
    for (size_t i = 0; i < calls.size(); ++i) {
      RETURN_IF_ERROR(parts_.Count());
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
    ASSIGN_OR_RETURN(const std::string own_name, StringMember(inner, *function, "name"));
    const std::string name = OfferedName(TextOf(*function, "namespace"), own_name);
    Json arguments;
    if (custom) {
      ASSIGN_OR_RETURN(const std::string input, StringMember(inner, *function, "input"));
      arguments = ArgumentsOfInput(input);
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

  PartCounter parts_{"messages"};
};

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

absl::StatusOr<ChatRequest> ReadChatRequest(FieldReader* fields) {
  const Json* messages = fields->Find("messages");
  if (messages == nullptr) return MissingField("messages");
  ChatRequest request;
  ASSIGN_OR_RETURN(request.messages, ReadMessages(*messages));
  if (const Json* tools = fields->Find("tools"); tools != nullptr) {
    RETURN_IF_ERROR(ReadTools("tools", *tools, ToolSpelling::kNested, &request.tools));
  }
  RETURN_IF_ERROR(ReadToolChoice(fields, ToolSpelling::kNested, &request.tools));
  std::string effort;
  RETURN_IF_ERROR(fields->String("reasoning_effort", &effort));
  if (!effort.empty()) RETURN_IF_ERROR(SetEffort("reasoning_effort", effort, &request));
  RETURN_IF_ERROR(ReadTemplateVariables(fields, &request));
  RETURN_IF_ERROR(fields->Bool("continue_final_message", &request.continue_final_message));
  return request;
}

}  // namespace stagecoach
