#include "coordinator/front/api/chat_messages.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
constexpr char kOmittedImage[] = "[image omitted: this model reads text only]";

absl::Status Misplaced(const std::string& place, absl::string_view what) {
  return ApiStatus(ApiErrorCode::kInvalidValue, absl::StrCat(place, ": ", what), place);
}

absl::Status MisplacedType(const std::string& place, absl::string_view expected, const Json& found) {
  return Misplaced(place, absl::StrCat("expected ", expected, ", found ", found.type_name()));
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
  if (value == nullptr) return ApiStatus(ApiErrorCode::kMissingParameter, absl::StrCat(member, ": is missing"), member);
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
      return ApiStatus(ApiErrorCode::kMissingParameter, absl::StrCat(content_place, ": is missing"), content_place);
    }
    if (content->is_string()) return *content;
    if (!content->is_array()) return MisplacedType(content_place, "a string or a list of parts", *content);
    Json parts = Json::array();
    for (size_t i = 0; i < content->size(); ++i) {
      if (++parts_ > kMostParts) {
        return Misplaced("messages", absl::StrCat("have more than ", kMostParts, " parts, expected at most that"));
      }
      ASSIGN_OR_RETURN(std::string text, ReadPart(absl::StrCat(content_place, "[", i, "]"), (*content)[i], role));
      parts.push_back({{"type", "text"}, {"text", std::move(text)}});
    }
    if (parts.empty()) return Json("");
    return parts.size() == 1 ? std::move(parts[0]["text"]) : std::move(parts);
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
      if (++parts_ > kMostParts) {
        return Misplaced("messages", absl::StrCat("have more than ", kMostParts, " parts, expected at most that"));
      }
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
    if (function == nullptr) {
      return ApiStatus(ApiErrorCode::kMissingParameter, absl::StrCat(inner, ": is missing"), inner);
    }
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

}  // namespace stagecoach
