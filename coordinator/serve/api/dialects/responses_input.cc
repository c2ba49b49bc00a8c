#include "coordinator/serve/api/dialects/responses_input.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/conversation/tools.h"

namespace stagecoach {
namespace {

// What the assistant said without anybody between: one message. What an item says or thinks goes on where the last one
// of its kind ended, behind calls between them: as in the other APIs it is one text.
struct AssistantItems {
  std::string reasoning;
  Json parts = Json::array();
  Json calls = Json::array();
};

// One conversation's items on their way in.
class InputReader {
 public:
  explicit InputReader(ChatRequest* request) : request_(*request) {}

  absl::Status Read(const std::string& place, const Json& item) {
    if (!item.is_object()) return MisplacedType(place, "an object with a type", item);
    std::string type = "message";
    if (Member(item, "type") != nullptr || Member(item, "role") == nullptr) {
      ASSIGN_OR_RETURN(type, StringMember(place, item, "type"));
    }
    if (type == "message") return ReadMessage(place, item);
    if (type == "reasoning") return ReadReasoning(place, item);
    if (type == "function_call" || type == "custom_tool_call") return ReadCall(place, item, type == "custom_tool_call");
    if (type == "function_call_output" || type == "custom_tool_call_output") return ReadOutput(place, item);
    if (type == "additional_tools") return ReadMoreTools(place, item);
    if (type == "item_reference") {
      return ApiStatus(ApiErrorCode::kUnsupportedParameter,
                       absl::StrCat(place, ": refers to an item, but none are stored here; send the item itself"),
                       place);
    }
    SkipPart("input", type, &request_);
    return absl::OkStatus();
  }

  // After the last item.
  void Finish() { EndTurn(); }

 private:
  AssistantItems& AssistantTurn() { return turn_.has_value() ? *turn_ : turn_.emplace(); }

  void EndTurn() {
    if (!turn_.has_value()) return;
    Json content = AssistantContent(ContentOfParts(std::move(turn_->parts)), !turn_->calls.empty());
    Json message = {{"role", "assistant"}, {"content", std::move(content)}};
    if (!turn_->reasoning.empty()) message["reasoning_content"] = std::move(turn_->reasoning);
    if (!turn_->calls.empty()) message["tool_calls"] = std::move(turn_->calls);
    request_.messages.push_back(std::move(message));
    turn_.reset();
  }

  absl::Status ReadMessage(const std::string& place, const Json& item) {
    ASSIGN_OR_RETURN(const std::string role, StringMember(place, item, "role"));
    const bool assistant = role == "assistant";
    if (!assistant && role != "user" && role != "system" && role != "developer") {
      return Misplaced(absl::StrCat(place, ".role"),
                       absl::StrCat("expected system, developer, user or assistant, found ", ShownValue(role)));
    }
    Json parts = Json::array();
    if (Member(item, "content") != nullptr || !assistant) {
      ASSIGN_OR_RETURN(parts, ReadParts(place, item, "content", /*of_tool=*/false));
    }
    if (!assistant) {
      EndTurn();
      request_.messages.push_back({{"role", role}, {"content", ContentOfParts(std::move(parts))}});
      return absl::OkStatus();
    }
    Json& said = AssistantTurn().parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0 || said.empty()) {
        said.push_back(std::move(parts[i]));
      } else {
        said.back()["text"].get_ref<std::string&>() += parts[0]["text"].get_ref<const std::string&>();
      }
    }
    return absl::OkStatus();
  }

  // The text of its content, else of its summary; one that keeps both from us says nothing.
  absl::Status ReadReasoning(const std::string& place, const Json& item) {
    std::string text;
    for (const char* member : {"content", "summary"}) {
      if (!text.empty() || Member(item, member) == nullptr) continue;
      ASSIGN_OR_RETURN(const Json parts, ReadParts(place, item, member, /*of_tool=*/false));
      for (const Json& part : parts) {
        absl::StrAppend(&text, text.empty() ? "" : "\n", part["text"].get_ref<const std::string&>());
      }
    }
    if (!text.empty()) AssistantTurn().reasoning += text;
    return absl::OkStatus();
  }

  absl::Status ReadCall(const std::string& place, const Json& item, bool custom) {
    RETURN_IF_ERROR(parts_.Count());
    ASSIGN_OR_RETURN(const std::string id, StringMember(place, item, "call_id"));
    ASSIGN_OR_RETURN(const std::string name, StringMember(place, item, "name"));
    std::string arguments = "{}", name_space;
    if (custom) {
      ASSIGN_OR_RETURN(const std::string input, StringMember(place, item, "input"));
      arguments = ArgumentsOfInput(input);
    } else if (Member(item, "arguments") != nullptr) {
      ASSIGN_OR_RETURN(arguments, StringMember(place, item, "arguments"));
    }
    if (Member(item, "namespace") != nullptr) {
      ASSIGN_OR_RETURN(name_space, StringMember(place, item, "namespace"));
    }
    AssistantTurn().calls.push_back(
        {{"id", id},
         {"type", "function"},
         {"function", {{"name", OfferedName(name_space, name)}, {"arguments", std::move(arguments)}}}});
    return absl::OkStatus();
  }

  absl::Status ReadOutput(const std::string& place, const Json& item) {
    ASSIGN_OR_RETURN(const std::string id, StringMember(place, item, "call_id"));
    ASSIGN_OR_RETURN(Json parts, ReadParts(place, item, "output", /*of_tool=*/true));
    EndTurn();
    request_.messages.push_back(
        {{"role", "tool"}, {"content", ContentOfParts(std::move(parts))}, {"tool_call_id", id}});
    return absl::OkStatus();
  }

  absl::Status ReadMoreTools(const std::string& place, const Json& item) {
    const std::string list_place = absl::StrCat(place, ".tools");
    const Json* list = Member(item, "tools");
    if (list == nullptr) return MissingAt(list_place);
    return ReadTools(list_place, *list, ToolSpelling::kFlat, &request_.tools);
  }

  // A string or a list of parts, as a list of parts of type text.
  absl::StatusOr<Json> ReadParts(const std::string& place, const Json& item, const char* member, bool of_tool) {
    const std::string list_place = absl::StrCat(place, ".", member);
    const Json* list = Member(item, member);
    if (list == nullptr) return MissingAt(list_place);
    if (list->is_string()) return Json::array({{{"type", "text"}, {"text", *list}}});
    if (!list->is_array()) return MisplacedType(list_place, "a string or a list of parts", *list);
    Json parts = Json::array();
    for (size_t i = 0; i < list->size(); ++i) {
      RETURN_IF_ERROR(parts_.Count());
      ASSIGN_OR_RETURN(std::string text, ReadPart(absl::StrCat(list_place, "[", i, "]"), (*list)[i], of_tool));
      parts.push_back({{"type", "text"}, {"text", std::move(text)}});
    }
    return parts;
  }

  static absl::StatusOr<std::string> ReadPart(const std::string& place, const Json& part, bool of_tool) {
    if (!part.is_object()) return MisplacedType(place, "an object with a type", part);
    ASSIGN_OR_RETURN(const std::string type, StringMember(place, part, "type"));
    if (type == "refusal") return StringMember(place, part, "refusal");
    for (const char* text : {"input_text", "output_text", "text", "reasoning_text", "summary_text"}) {
      if (type == text) return StringMember(place, part, "text");
    }
    if (of_tool) return std::string(kOmittedImage);
    return RefusePart(absl::StrCat(place, ".type"), type);
  }

  ChatRequest& request_;
  std::optional<AssistantItems> turn_;
  PartCounter parts_{"input"};
};

}  // namespace

absl::Status ReadResponsesInput(FieldReader* fields, ChatRequest* request) {
  std::string instructions;
  RETURN_IF_ERROR(fields->String("instructions", &instructions));
  if (const Json* tools = fields->Find("tools"); tools != nullptr) {
    RETURN_IF_ERROR(ReadTools("tools", *tools, ToolSpelling::kFlat, &request->tools));
  }
  const Json* input = fields->Find("input");
  if (input == nullptr) return MissingField("input");
  if (!input->is_string() && !input->is_array()) return WrongType("input", "a string or a list of items", *input);
  if (!instructions.empty()) request->messages.push_back({{"role", "system"}, {"content", instructions}});
  const size_t before = request->messages.size();
  if (input->is_array()) {
    RETURN_IF_ERROR(CheckSize("input", input->size(), "items", kMostMessages));
    InputReader reader(request);
    for (size_t i = 0; i < input->size(); ++i) {
      RETURN_IF_ERROR(reader.Read(absl::StrCat("input[", i, "]"), (*input)[i]));
    }
    reader.Finish();
  }
  // Clients probe a server with nothing.
  if (request->messages.size() == before) {
    request->messages.push_back({{"role", "user"}, {"content", input->is_string() ? *input : Json("")}});
  }
  return ReadToolChoice(fields, ToolSpelling::kFlat, &request->tools);
}

}  // namespace stagecoach
