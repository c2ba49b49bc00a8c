#include "coordinator/text/chat/chat_format.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/counter_rng.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr char kBetweenTexts[] = "\n\n";  // of two messages that become one
constexpr size_t kCallIdBytes = 9;        // where a template wants them to be of one length
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
    std::string& said = content->get_ref<std::string&>();
    if (in_front) {
      said.insert(0, absl::StrCat(text, kBetweenTexts));
    } else {
      said.append(kBetweenTexts).append(text);  // in place: thousands of messages may become one
    }
  } else {
    *content = text;
  }
}

// Whether a JSON text can be read without a thought: reading recurses, and looks for each key among all. Maybe no JSON.
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

void ShapeArguments(const ChatAbilities& abilities, Json* arguments) {
  if (abilities.arguments == ArgumentsForm::kText && arguments->is_object()) {
    *arguments = arguments->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  if (abilities.arguments != ArgumentsForm::kObject || !arguments->is_string()) return;
  const std::string& text = arguments->get_ref<const std::string&>();
  const bool has_none = absl::StripAsciiWhitespace(text).empty();  // of a function that takes none
  Json object = has_none ? Json::object() : IsModest(text) ? ReadJson(text) : Json();
  if (object.is_object()) {
    *arguments = std::move(object);
  } else if (!abilities.text_arguments) {
    *arguments = Json{{"arguments", text}};
  }
}

// Nine hexadecimal digits of it, where it is no nine letters and digits.
void ShapeCallId(Json* id) {
  if (!id->is_string()) return;
  const std::string& given = id->get_ref<const std::string&>();
  if (given.size() == kCallIdBytes && absl::c_all_of(given, absl::ascii_isalnum)) return;
  uint64_t bits = 0;
  for (const char c : given) bits = MixBits(bits * 31 + static_cast<uint8_t>(c) + 1);
  *id = absl::StrCat(absl::Hex(bits >> (64 - 4 * kCallIdBytes), absl::kZeroPad9));
}

void ShapeCallIds(Json* message) {
  if (const auto answered = message->find("tool_call_id"); answered != message->end()) ShapeCallId(&*answered);
  const auto calls = message->find("tool_calls");
  if (calls == message->end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    if (call.is_object() && call.contains("id")) ShapeCallId(&call["id"]);
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
    ShapeArguments(abilities, &function["arguments"]);
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

bool IsResult(const Json& message) {
  return HasRole(message, "tool") || HasRole(message, "function") || HasRole(message, "ipython");
}

// The messages that follow an assistant's with several calls, each to its call: by its id, else to the first call that
// has none yet.
class ResultsOfCalls {
 public:
  explicit ResultsOfCalls(const Json& calls) : results_(calls.size(), Json::array()) {
    for (size_t i = 0; i < calls.size(); ++i) {
      if (const std::string* id = IdOf(calls[i], "id"); id != nullptr) by_id_.emplace(*id, i);
    }
  }

  void Add(const Json& result) {
    const std::string* id = IdOf(result, "tool_call_id");
    const auto found = id == nullptr ? by_id_.end() : by_id_.find(*id);
    while (first_without_ + 1 < results_.size() && !results_[first_without_].empty()) ++first_without_;
    results_[found == by_id_.end() ? first_without_ : found->second].push_back(result);
  }
  const Json& operator[](size_t call) const { return results_[call]; }

 private:
  static const std::string* IdOf(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
  }

  std::vector<Json> results_;
  std::map<std::string, size_t> by_id_;
  size_t first_without_ = 0;
};

// An assistant's message of several calls becomes one for each, with its results behind it.
Json WithOneCallEach(const Json& messages) {
  Json each = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    each.push_back(messages[i]);
    const auto calls = messages[i].find("tool_calls");
    if (!HasRole(messages[i], "assistant") || calls == messages[i].end() || !calls->is_array() || calls->size() < 2) {
      continue;
    }
    ResultsOfCalls results(*calls);
    while (i + 1 < messages.size() && IsResult(messages[i + 1])) results.Add(messages[++i]);
    for (size_t call = 0; call < calls->size(); ++call) {
      if (call > 0) each.push_back({{"role", "assistant"}, {"content", nullptr}});
      each.back()["tool_calls"] = Json::array({(*calls)[call]});
      each.insert(each.end(), results[call].begin(), results[call].end());
    }
  }
  return each;
}

// Brings system messages to places where the template takes them, and the user's together. Where one goes depends on
// its neighbours alone: what is said later moves nothing, so that a conversation's next turn begins as its last one
// did.
class MessagePlacement {
 public:
  explicit MessagePlacement(const ChatAbilities& abilities) : abilities_(abilities) {}

  void Take(Json message) {
    if (!HasRole(message, "system") && !HasRole(message, "developer")) {
      at_beginning_ = false;
      if (HasRole(message, "user") && !waiting_.empty()) {
        Add(std::exchange(waiting_, ""), /*in_front=*/true, &message);
      }
      PlaceWaiting();
      Place(std::move(message));
      return;
    }
    const std::optional<std::string> text = TextOf(message["content"]);
    const bool first = placed_.empty();  // others may have been moved
    if (!text.has_value() || (first ? abilities_.system : abilities_.late_system)) {
      PlaceWaiting();
      placed_.push_back(std::move(message));
    } else if (!text->empty()) {
      Move(*text);
    }
  }

  Json Placed() && {
    PlaceWaiting();
    return std::move(placed_);
  }

 private:
  void Add(const std::string& text, bool in_front, Json* message) {
    AddText(text, in_front, &(*message)["content"]);
    ShapeContent(abilities_, message);  // which may have had no form yet
  }

  void Move(const std::string& text) {
    const bool joins_first = at_beginning_ && abilities_.system && !placed_.empty();
    if (joins_first || (!placed_.empty() && HasRole(placed_.back(), "user"))) {
      Add(text, /*in_front=*/false, &placed_.back());
    } else {
      absl::StrAppend(&waiting_, waiting_.empty() ? "" : kBetweenTexts, text);
    }
  }

  void Place(Json message) {
    const bool joins =
        !abilities_.repeated_users && !placed_.empty() && HasRole(message, "user") && HasRole(placed_.back(), "user");
    const std::optional<std::string> text = joins ? TextOf(message["content"]) : std::nullopt;
    if (!text.has_value()) {
      placed_.push_back(std::move(message));
    } else if (!text->empty()) {
      Add(*text, /*in_front=*/false, &placed_.back());
    }
  }

  // No message of the user follows.
  void PlaceWaiting() {
    if (waiting_.empty()) return;
    Json message = {{"role", "user"}, {"content", std::exchange(waiting_, "")}};
    ShapeContent(abilities_, &message);
    placed_.push_back(std::move(message));
  }

  const ChatAbilities& abilities_;
  bool at_beginning_ = true;  // nothing but system messages so far
  std::string waiting_;       // for the next message, if that is the user's
  Json placed_ = Json::array();
};

constexpr char kUser[] = R"({"role": "user", "content": "probe-user"})";
constexpr char kTypedUser[] = R"({"role": "user", "content": [{"type": "text", "text": "probe-user"}]})";
constexpr char kAnswer[] = R"({"role": "assistant", "content": "probe-answer"})";
constexpr char kSystem[] = R"({"role": "system", "content": "probe-system"})";
constexpr char kDeveloper[] = R"({"role": "developer", "content": "probe-system"})";
constexpr char kNobody[] = R"({"role": "probe-role", "content": "probe-system"})";
constexpr char kResult[] = R"({"role": "tool", "tool_call_id": "probecal1", "name": "probe_tool", "content": "done"})";
constexpr char kSecondResult[] =
    R"({"role": "tool", "tool_call_id": "probecal2", "name": "probe_tool", "content": "done"})";
constexpr char kTypedThought[] = R"({"role": "assistant", "content": [
    {"type": "thinking", "thinking": "probe-thought"}, {"type": "text", "text": "probe-answer"}]})";
// Its field has another name than that of the calls below, so that this can be found in the text.
constexpr char kTools[] = R"([{"type": "function", "function": {
    "name": "probe_tool", "description": "A probe.", "parameters": {
    "type": "object", "properties": {
    "probe_field": {"type": "string", "description": "A field."}}, "required": []}}}])";
// There are templates that want identifiers of nine letters and digits.
constexpr char kObjectCall[] = R"({"id": "probecal1", "type": "function",
    "function": {"name": "probe_tool", "arguments": {"probe_key": "probe-value"}}})";
constexpr char kTextCall[] = R"({"id": "probecal1", "type": "function",
    "function": {"name": "probe_tool", "arguments": "{\"probe_key\": \"probe-value\"}"}})";
constexpr char kSecondObjectCall[] = R"({"id": "probecal2", "type": "function",
    "function": {"name": "probe_tool", "arguments": {"probe_key": "second-value"}}})";
constexpr char kSecondTextCall[] = R"({"id": "probecal2", "type": "function",
    "function": {"name": "probe_tool", "arguments": "{\"probe_key\": \"second-value\"}"}})";

// An assistant's message that calls; `more` is further members, each with a comma before it.
std::string Calling(absl::string_view content, absl::string_view calls, absl::string_view more = "") {
  return absl::StrCat(R"({"role": "assistant", "content": )", content, R"(, "tool_calls": [)", calls, "]", more, "}");
}

int Count(absl::string_view text, absl::string_view word) {
  int count = 0;
  for (size_t at = text.find(word); at != absl::string_view::npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

using Rendered = std::optional<std::string>;  // nothing where it failed

bool Has(const Rendered& text, absl::string_view word) { return text.has_value() && absl::StrContains(*text, word); }

// Whether the value is there, and not as one of an object that was printed as a whole.
bool HasValue(const Rendered& text, absl::string_view key, absl::string_view value) {
  return Has(text, value) && !absl::StrContains(*text, absl::StrCat("'", key, "': '", value)) &&
         !absl::StrContains(*text, absl::StrCat("\"", key, "\": \"", value));
}

class Probe {
 public:
  explicit Probe(const ChatTemplate& chat_template) : template_(chat_template) {}

  ChatAbilities Run() {
    const bool text = Has(Render({kUser}), "probe-user");
    const bool typed = HasValue(Render({kTypedUser}), "text", "probe-user");
    if (exhausted_ || (!text && !typed)) return {};
    abilities_.string_content = text;
    abilities_.typed_content = typed;
    ProbeRoles();
    ProbeTools();
    ProbeCalls();
    ProbeReasoning();
    return abilities_;
  }

 private:
  // In the form of content that is known to be taken.
  Rendered Render(std::initializer_list<absl::string_view> sample, bool with_tools = false,
                  bool add_generation_prompt = true) {
    if (exhausted_) return std::nullopt;
    Json messages = ReadJson(absl::StrCat("[", absl::StrJoin(sample, ","), "]"));
    if (!abilities_.string_content) {
      for (Json& message : messages) ShapeContent(abilities_, &message);
    }
    Conversation conversation = {.messages = &messages};
    if (with_tools) conversation.tools = &tools_;
    conversation.add_generation_prompt = add_generation_prompt;
    absl::StatusOr<MarkedText> text = template_.Render(conversation, absl::UnixEpoch());
    if (text.ok()) return text->text();
    exhausted_ = absl::IsResourceExhausted(text.status());
    return std::nullopt;
  }

  // With the tools, as there are no calls without, where the template takes them.
  Rendered RenderCall(const std::string& calling) {
    return Render({kUser, calling, kResult}, /*with_tools=*/abilities_.tools);
  }

  // Sets what the samples tell, if none reached a limit.
  template <typename Value>
  void Learn(Value* ability, Value found) {
    if (!exhausted_) *ability = found;
  }

  void ProbeRoles() {
    Learn(&abilities_.system, Has(Render({kSystem, kUser}), "probe-system"));
    if (Render({kUser, kAnswer, kUser}).has_value()) {
      Learn(&abilities_.late_system, Has(Render({kUser, kAnswer, kSystem, kUser}), "probe-system"));
    }
    Learn(&abilities_.repeated_users, Render({kUser, kUser}).has_value());
    const Rendered developer = Render({kDeveloper, kUser});
    Rendered nobody = Render({kNobody, kUser});
    if (nobody.has_value()) nobody = absl::StrReplaceAll(*nobody, {{"probe-role", "developer"}});
    Learn(&abilities_.developer, Has(developer, "probe-system") && developer != nobody);
  }

  void ProbeTools() {
    Learn(&abilities_.tools, Has(Render({kUser}, /*with_tools=*/true), "probe_tool"));
    if (!abilities_.tools) return;
    const Json described = tools_;
    tools_[0]["function"].erase("description");
    Learn(&abilities_.bare_tools, Render({kUser}, /*with_tools=*/true).has_value());
    tools_ = described;
  }

  void ProbeCalls() {
    const Rendered object = RenderCall(Calling(R"("")", kObjectCall)), text = RenderCall(Calling(R"("")", kTextCall));
    // An object that is printed as it is comes out as no model writes it.
    const bool takes_object = Has(object, "probe-value") && !absl::StrContains(*object, "'probe_key'");
    const ArgumentsForm form = takes_object               ? ArgumentsForm::kObject
                               : Has(text, "probe-value") ? ArgumentsForm::kText
                                                          : ArgumentsForm::kAny;
    Learn(&abilities_.arguments, form);
    if (takes_object) Learn(&abilities_.text_arguments, text.has_value());
    call_ = takes_object ? kObjectCall : kTextCall;
    const auto renamed = [](absl::string_view text) {
      return absl::StrReplaceAll(text, {{"probecal1", "call_probe"}});
    };
    if ((takes_object ? object : text).has_value()) {
      const std::string calling = renamed(Calling(R"("")", call_)), result = renamed(kResult);
      Learn(&abilities_.any_call_id, Render({kUser, calling, result}, abilities_.tools).has_value());
    }
    const std::string two = absl::StrCat(call_, ",", takes_object ? kSecondObjectCall : kSecondTextCall);
    const Rendered both = Render({kUser, Calling(R"("")", two), kResult, kSecondResult}, abilities_.tools);
    Learn(&abilities_.parallel_calls, Has(both, "probe-value") && Has(both, "second-value"));
    ProbeNull();
  }

  // Beside a call, or alone where the template writes none.
  void ProbeNull() {
    Rendered empty = RenderCall(Calling(R"("")", call_)), null = RenderCall(Calling("null", call_));
    if (!empty.has_value()) {
      empty = Render({kUser, R"({"role": "assistant", "content": ""})", kUser});
      null = Render({kUser, R"({"role": "assistant", "content": null})", kUser});
    }
    if (empty.has_value()) {
      Learn(&abilities_.null_content, null.has_value() && Count(*null, "None") <= Count(*empty, "None"));
    }
  }

  // Most templates leave out what was thought before the user's last message, and some all that led to no call.
  bool Reads(const char* name) {
    const std::string thought = absl::StrCat(R"(, ")", name, R"(": "probe-thought")");
    const std::string answer = absl::StrCat(R"({"role": "assistant", "content": "probe-answer")", thought, "}");
    return Has(RenderCall(Calling(R"("")", call_, thought)), "probe-thought") ||
           Has(Render({kUser, answer, kUser}), "probe-thought") ||
           Has(Render({kUser, answer}, /*with_tools=*/false, /*add_generation_prompt=*/false), "probe-thought");
  }

  void ProbeReasoning() {
    const std::pair<const char*, ReasoningForm> names[] = {{"reasoning_content", ReasoningForm::kReasoningContent},
                                                           {"thinking", ReasoningForm::kThinking},
                                                           {"reasoning", ReasoningForm::kReasoning}};
    for (const auto& [name, form] : names) {
      if (!Reads(name)) continue;
      Learn(&abilities_.reasoning, form);
      const std::string thought = absl::StrCat(R"(, ")", name, R"(": "probe-thought")");
      if (RenderCall(Calling(R"("")", call_, thought)).has_value()) {
        Learn(&abilities_.reasoning_with_content_and_calls,
              RenderCall(Calling(R"("probe-answer")", call_, thought)).has_value());
      }
      return;
    }
    const Rendered parts = Render({kUser, kTypedThought}, /*with_tools=*/false, /*add_generation_prompt=*/false);
    if (HasValue(parts, "thinking", "probe-thought")) Learn(&abilities_.reasoning, ReasoningForm::kParts);
  }

  const ChatTemplate& template_;
  Json tools_ = ReadJson(kTools);
  ChatAbilities abilities_;
  std::string call_;  // in the form that is taken
  bool exhausted_ = false;
};

Json WithDescriptions(const Json& tools) {
  Json described = tools;
  for (Json& tool : described) {
    Json& function = tool.contains("function") ? tool["function"] : tool;
    if (function.is_object() && !function.contains("description")) function["description"] = "";
  }
  return described;
}

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
  MessagePlacement placement(abilities);
  const bool splits = !abilities.parallel_calls && abilities.arguments != ArgumentsForm::kAny;
  for (Json message : splits ? WithOneCallEach(messages) : messages) {
    if (!abilities.developer && HasRole(message, "developer")) message["role"] = "system";
    if (HasRole(message, "assistant")) ShapeAssistant(abilities, &message);
    if (!abilities.any_call_id) ShapeCallIds(&message);
    ShapeContent(abilities, &message);
    placement.Take(std::move(message));
  }
  Json placed = std::move(placement).Placed();
  return placed.empty() ? messages : placed;  // nothing but system messages without a text
}

ChatAbilities ProbeAbilities(const ChatTemplate& chat_template) { return Probe(chat_template).Run(); }

ChatFormat::Template ChatFormat::Make(absl::StatusOr<ChatTemplateSource> source, const Tokenizer& tokenizer) {
  if (!source.ok()) return {.made = source.status()};
  Template made = {.source = source->text, .made = ChatTemplate::Parse(*std::move(source), tokenizer)};
  if (made.made.ok()) made.abilities = ProbeAbilities(*made.made);
  return made;
}

ChatFormat::ChatFormat(const ChatTemplateChoice& choice, const GgufMetadata& metadata, const Tokenizer* tokenizer)
    : tokenizer_(tokenizer),
      without_tools_(Make(ChooseChatTemplate(choice, metadata, /*with_tools=*/false), *tokenizer)) {
  absl::StatusOr<ChatTemplateSource> source = ChooseChatTemplate(choice, metadata, /*with_tools=*/true);
  if (source.ok() && !source->message_end.empty() &&
      tokenizer->Encode(source->message_end, /*add_special=*/false, /*parse_special=*/true).size() != 1) {
    answer_ends_ = {source->message_end};
  }
  const bool same = source.ok() && without_tools_.made.ok() && source->name == without_tools_.made->name();
  with_tools_ = same ? without_tools_ : Make(std::move(source), *tokenizer);
}

absl::StatusOr<MarkedText> ChatFormat::Render(const Conversation& conversation, absl::Time now) const {
  const Template& used = Of(HasTools(conversation));
  if (!used.made.ok()) return absl::FailedPreconditionError(used.made.status().message());
  const Json messages = ShapeMessages(*conversation.messages, used.abilities);
  Conversation shaped = conversation;
  shaped.messages = &messages;
  Json tools;
  if (HasTools(conversation) && !used.abilities.bare_tools) {
    tools = WithDescriptions(*conversation.tools);
    shaped.tools = &tools;
  }
  return used.made->Render(shaped, now);
}

int64_t ChatFormat::TokensBeforeAnswer(const Conversation& conversation, absl::Time now, const MarkedText& text,
                                       int64_t tokens) const {
  if (!conversation.add_generation_prompt || conversation.continue_final_message) return -1;
  Conversation without = conversation;
  without.add_generation_prompt = false;
  const absl::StatusOr<MarkedText> shorter = Render(without, now);
  if (!shorter.ok() || shorter->empty() || !absl::StartsWith(text.text(), shorter->text())) return -1;
  // Begins with a control token, mostly, where the text may be cut. If not it is a token more or less.
  const MarkedText asks = text.Substr(shorter->size(), text.size() - shorter->size());
  const auto asking = static_cast<int64_t>(tokenizer_->EncodeMarked(asks, /*add_bos=*/false).size());
  return std::max<int64_t>(tokens - asking, 0);
}

absl::StatusOr<std::vector<TokenId>> ChatFormat::Encode(const Conversation& conversation, absl::Time now) const {
  ASSIGN_OR_RETURN(const MarkedText text, Render(conversation, now));
  return tokenizer_->EncodeMarked(text, /*add_bos=*/true);
}

}  // namespace stagecoach
