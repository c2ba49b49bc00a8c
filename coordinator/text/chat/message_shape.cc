#include "coordinator/text/chat/message_shape.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr char kBetweenTexts[] = "\n\n";  // of two messages that become one
constexpr int kMostArgumentsDepth = 32;
constexpr int kMostArgumentsKeys = 1'024;

bool HasRole(const Json& message, absl::string_view role) {
  return message["role"].get_ref<const std::string&>() == role;
}

std::string* TextField(Json* message, const char* name) {
  const auto found = message->find(name);
  return found == message->end() ? nullptr : found->get_ptr<std::string*>();
}

Json TextPart(const std::string& text) { return Json{{"type", "text"}, {"text", text}}; }

// The text of content that has nothing but text.
std::optional<std::string> TextOf(const Json& content) {
  if (content.is_null()) return "";
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return std::nullopt;
  std::string text;
  for (const Json& part : content) {
    if (!part.is_object() || part.value("type", Json()) != "text" || !part.value("text", Json()).is_string()) {
      return std::nullopt;
    }
    if (&part != &content.front()) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

// More text at the front or the back of content, which keeps its form.
void AddText(const std::string& text, bool in_front, Json* content) {
  if (content->is_array()) {
    if (!content->empty()) {
      Json& part = in_front ? content->front() : content->back();
      if (part.is_object() && part.value("type", Json()) == "text") return AddText(text, in_front, &part["text"]);
    }
    content->insert(in_front ? content->begin() : content->end(), TextPart(text));
  } else if (content->is_string() && !content->get_ref<const std::string&>().empty()) {
    const std::string& said = content->get_ref<const std::string&>();
    *content = in_front ? absl::StrCat(text, kBetweenTexts, said) : absl::StrCat(said, kBetweenTexts, text);
  } else {
    *content = text;
  }
}

// Whether a JSON text can be read without a thought: what is read is walked recursively, and an object looks for each
// key among all. It need not be JSON.
bool IsModest(const std::string& text) {
  int depth = 0, keys = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      if (c == '\\') ++i;
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == ':') ++keys;
    if (depth > kMostArgumentsDepth || keys > kMostArgumentsKeys) return false;
  }
  return true;
}

void ShapeArguments(ArgumentsForm form, Json* arguments) {
  if (form == ArgumentsForm::kText && arguments->is_object()) {
    *arguments = arguments->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  if (form != ArgumentsForm::kObject || !arguments->is_string()) return;
  const std::string& text = arguments->get_ref<const std::string&>();
  if (absl::StripAsciiWhitespace(text).empty()) {  // of a function that takes none
    *arguments = Json::object();
  } else if (IsModest(text)) {
    Json object = ReadJson(text);
    if (object.is_object()) *arguments = std::move(object);
  }
}

void ShapeCalls(const ChatAbilities& abilities, Json* message) {
  const auto calls = message->find("tool_calls");
  if (calls == message->end()) return;
  if (calls->is_null() || (calls->is_array() && calls->empty())) {
    message->erase("tool_calls");
    return;
  }
  if (!calls->is_array()) return;
  for (Json& call : *calls) {
    if (!call.is_object()) continue;
    Json& function = call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("arguments")) continue;
    ShapeArguments(abilities.arguments, &function["arguments"]);
  }
}

// Takes what the assistant thought out of the message.
std::optional<std::string> TakeReasoning(Json* message) {
  std::optional<std::string> thought;
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    std::string* text = TextField(message, name);
    if (text != nullptr && !thought.has_value()) thought = std::move(*text);
    if (text != nullptr || (message->contains(name) && (*message)[name].is_null())) message->erase(name);
  }
  return thought;
}

void ShapeReasoning(const ChatAbilities& abilities, Json* message) {
  if (abilities.reasoning == ReasoningForm::kNone) return;
  std::optional<std::string> thought = TakeReasoning(message);
  if (!thought.has_value()) return;
  Json& content = (*message)["content"];
  if (abilities.reasoning == ReasoningForm::kParts) {
    if (thought->empty()) return;
    if (content.is_string() && !content.get_ref<const std::string&>().empty()) {
      content = Json::array({TextPart(content.get<std::string>())});
    }
    if (!content.is_array()) content = Json::array();
    content.insert(content.begin(), Json{{"type", "thinking"}, {"thinking", *thought}});
    return;
  }
  const std::optional<std::string> said = TextOf(content);
  if (!abilities.reasoning_with_content_and_calls && message->contains("tool_calls") && !thought->empty() &&
      said.has_value() && !said->empty()) {
    absl::StrAppend(&*thought, kBetweenTexts, *said);
    content = "";
  }
  const char* name = abilities.reasoning == ReasoningForm::kThinking           ? "thinking"
                     : abilities.reasoning == ReasoningForm::kReasoningContent ? "reasoning_content"
                                                                               : "reasoning";
  (*message)[name] = *std::move(thought);
}

void ShapeAssistant(const ChatAbilities& abilities, Json* message) {
  ShapeCalls(abilities, message);
  ShapeReasoning(abilities, message);
  Json& content = (*message)["content"];
  if (content.is_null() && !(abilities.null_content && message->contains("tool_calls"))) content = "";
}

// Brings system messages to places where the template takes them.
class SystemPlacement {
 public:
  SystemPlacement(const ChatAbilities& abilities, const Json& messages)
      : abilities_(abilities), last_user_(messages.size()) {
    for (size_t i = 0; i < messages.size(); ++i) {
      if (HasRole(messages[i], "user")) last_user_ = i;
    }
    has_user_ = last_user_ < messages.size();
  }

  void Take(size_t index, Json message) {
    if (!HasRole(message, "system") && !HasRole(message, "developer")) {
      at_beginning_ = false;
      if (HasRole(message, "user") && !waiting_.empty()) {
        Add(std::exchange(waiting_, ""), /*in_front=*/true, &message);
      }
      placed_.push_back(std::move(message));
      return;
    }
    const std::optional<std::string> text = TextOf(message["content"]);
    const bool first = placed_.empty();  // others may have been moved
    if (!text.has_value() || (first ? abilities_.system : abilities_.late_system)) {
      placed_.push_back(std::move(message));
    } else if (!text->empty()) {
      Move(index, *text);
    }
  }

  Json Placed() && { return std::move(placed_); }

 private:
  void Add(const std::string& text, bool in_front, Json* message) {
    AddText(text, in_front, &(*message)["content"]);
    ShapeContent(abilities_, message);  // which may have had no form yet
  }

  void Move(size_t index, const std::string& text) {
    if (at_beginning_ && abilities_.system && !placed_.empty()) {
      Add(text, /*in_front=*/false, &placed_.back());
    } else if (has_user_ && index < last_user_) {
      if (!waiting_.empty()) waiting_ += kBetweenTexts;
      waiting_ += text;
    } else if (!placed_.empty() && HasRole(placed_.back(), "user")) {
      Add(text, /*in_front=*/false, &placed_.back());
    } else {
      Json message = {{"role", "user"}, {"content", text}};
      ShapeContent(abilities_, &message);
      placed_.push_back(std::move(message));
    }
  }

  const ChatAbilities& abilities_;
  size_t last_user_;
  bool has_user_ = false;
  bool at_beginning_ = true;  // nothing but system messages so far
  std::string waiting_;       // for the next message of the user
  Json placed_ = Json::array();
};

}  // namespace

void ShapeContent(const ChatAbilities& abilities, Json* message) {
  const auto content = message->find("content");
  if (content == message->end()) return;
  if (content->is_array() && abilities.string_content) {
    if (std::optional<std::string> text = TextOf(*content)) *content = *std::move(text);
  } else if (content->is_string() && !abilities.string_content && abilities.typed_content) {
    *content = Json::array({TextPart(content->get<std::string>())});
  }
}

Json ShapeMessages(const Json& messages, const ChatAbilities& abilities) {
  SystemPlacement placement(abilities, messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    Json message = messages[i];
    if (!abilities.developer && HasRole(message, "developer")) message["role"] = "system";
    if (HasRole(message, "assistant")) ShapeAssistant(abilities, &message);
    ShapeContent(abilities, &message);
    placement.Take(i, std::move(message));
  }
  Json placed = std::move(placement).Placed();
  return placed.empty() ? messages : placed;  // nothing but system messages without a text
}

}  // namespace stagecoach
