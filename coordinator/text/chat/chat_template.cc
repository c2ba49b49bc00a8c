#include "coordinator/text/chat/chat_template.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/text/jinja/jinja_template.h"

namespace stagecoach {
namespace {

constexpr char kTemplateKey[] = "tokenizer.chat_template";
constexpr char kToolTemplateKey[] = "tokenizer.chat_template.tool_use";

constexpr char kChatMl[] = R"({%- if tools -%}
  {{- raise_exception('it cannot tell a model of tools; take the model\'s own template, or give one that can') -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.tool_calls -%}
    {{- raise_exception('it cannot write calls of tools; take the model\'s own template, or give one that can') -}}
  {%- endif -%}
  {{- '<|im_start|>' + message.role + '\n' -}}
  {%- if message.content is string -%}
    {{- message.content -}}
  {%- elif message.content -%}
    {%- for part in message.content -%}
      {%- if part.type != 'text' -%}
        {{- raise_exception('it can write parts of type text only, found ' + part.type) -}}
      {%- endif -%}
      {%- if not loop.first -%}
        {{- '\n' -}}
      {%- endif -%}
      {{- part.text -}}
    {%- endfor -%}
  {%- endif -%}
  {{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
)";

struct BuiltIn {
  const char* name;
  const char* text;
  const char* message_end;
};
constexpr BuiltIn kBuiltIns[] = {{"chatml", kChatMl, "<|im_end|>"}};

// The switch of thinking: one, which templates know by either name.
constexpr const char* kThinking[] = {"enable_thinking", "thinking"};

// What Render sets, whatever the request says.
constexpr absl::string_view kOwnVariables[] = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"};

// Templates write '<|' + message.role + '|>', so the words that all clients use have to be able to end up in a control
// token; any other word could name one that has nothing to do with roles.
constexpr absl::string_view kUsualRoles[] = {"system", "developer", "user", "assistant", "tool", "function", "ipython"};

bool IsUsualRole(const std::string& role) {
  return std::find(std::begin(kUsualRoles), std::end(kUsualRoles), role) != std::end(kUsualRoles);
}

absl::Status Misplaced(absl::string_view place, absl::string_view expected, const Json& found) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": expected ", expected, ", found ", found.type_name()));
}

absl::Status MissingField(absl::string_view place, absl::string_view field) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": '", field, "' is missing"));
}

// That `object` has the field, and it is a string.
absl::Status CheckStringField(const std::string& place, const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return MissingField(place, field);
  if (!found->is_string()) return Misplaced(absl::StrCat(place, ".", field), "a string", *found);
  return absl::OkStatus();
}

absl::Status CheckParts(const std::string& place, const Json& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part = absl::StrCat(place, "[", i, "]");
    if (!parts[i].is_object()) return Misplaced(part, "an object with a type", parts[i]);
    RETURN_IF_ERROR(CheckStringField(part, parts[i], "type"));
    if (parts[i]["type"] == "text") RETURN_IF_ERROR(CheckStringField(part, parts[i], "text"));
  }
  return absl::OkStatus();
}

// Whether a template may write any value as this role's content: what a tool gave back.
bool TakesAnyContent(absl::string_view role) { return role == "tool" || role == "function" || role == "ipython"; }

absl::Status CheckMessage(const std::string& place, const Json& message) {
  if (!message.is_object()) return Misplaced(place, "an object with role and content", message);
  RETURN_IF_ERROR(CheckStringField(place, message, "role"));
  const std::string role = message["role"].get<std::string>();
  if (role.empty()) return absl::InvalidArgumentError(absl::StrCat(place, ".role: is empty, expected such as 'user'"));
  const auto content = message.find("content");
  if (content == message.end()) return role == "assistant" ? absl::OkStatus() : MissingField(place, "content");
  if (TakesAnyContent(role)) return absl::OkStatus();
  if (content->is_array()) return CheckParts(absl::StrCat(place, ".content"), *content);
  if (content->is_string() || content->is_null()) return absl::OkStatus();
  return Misplaced(absl::StrCat(place, ".content"), "a string, a list of parts or null", *content);
}

// The text of a token for which there may be none.
std::string TokenText(const Tokenizer& tokenizer, TokenId token) {
  return token == kNoToken ? "" : tokenizer.TokenBytes(token, /*render_control=*/true);
}

// The same failure with more around its message.
absl::Status WithContext(absl::string_view before, const absl::Status& status, absl::string_view after = "") {
  absl::Status longer(status.code(), absl::StrCat(before, status.message(), after));
  status.ForEachPayload(
      [&longer](absl::string_view url, const absl::Cord& payload) { longer.SetPayload(url, payload); });
  return longer;
}

// The text that an assistant's message ends with, which is to be continued.
absl::StatusOr<std::string*> TextToContinue(Json* messages) {
  constexpr absl::string_view kExpected = "the last message cannot be continued: expected ";
  Json& last = messages->back();
  if (last["role"] != "assistant") {
    return absl::InvalidArgumentError(
        absl::StrCat(kExpected, "one of the role 'assistant', found '", CutText(last["role"].get<std::string>()), "'"));
  }
  if (const auto calls = last.find("tool_calls"); calls != last.end() && !calls->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(kExpected, "one without calls of tools, found 'tool_calls'"));
  }
  Json* content = &last["content"];  // null where there is none
  if (content->is_array() && !content->empty() && content->back()["type"] == "text") content = &content->back()["text"];
  if (content->is_string()) return content->get_ptr<std::string*>();
  return absl::InvalidArgumentError(absl::StrCat(kExpected, "content that ends with a text, found ",
                                                 content->is_array() ? "a list that does not" : content->type_name()));
}

// A text that is nowhere in the messages.
std::string AbsentText(const Json& messages) {
  const std::string all = CompactJson(messages);
  std::string absent = "end-of-what-was-said";
  while (all.find(absent) != std::string::npos) absent.append(absent.size(), '-');  // few rounds, whatever is in there
  return absent;
}

Json VariablesOf(const Conversation& conversation, const std::string& bos, const std::string& eos) {
  Json variables = Json::object();
  const Json* given = conversation.variables;
  for (const char* name : kThinking) {
    if (conversation.thinking.has_value()) variables[name] = *conversation.thinking;
    for (const char* either : kThinking) {
      if (given != nullptr && given->contains(either)) variables[name] = given->at(either);
    }
  }
  if (given != nullptr) variables.update(*given);
  variables["messages"] = *conversation.messages;
  // Undefined where there are none, not null: some templates cannot do with null, none needs the variable.
  if (HasTools(conversation)) variables["tools"] = *conversation.tools;
  variables["add_generation_prompt"] = conversation.add_generation_prompt && !conversation.continue_final_message;
  variables["bos_token"] = bos;
  variables["eos_token"] = eos;
  return variables;
}

}  // namespace

bool HasTools(const Conversation& conversation) {
  return conversation.tools != nullptr && !conversation.tools->empty();
}

std::vector<std::string> BuiltInChatTemplates() {
  std::vector<std::string> names;
  for (const BuiltIn& entry : kBuiltIns) names.emplace_back(entry.name);
  return names;
}

absl::StatusOr<ChatTemplateSource> ChooseChatTemplate(const ChatTemplateChoice& choice, const GgufMetadata& metadata,
                                                      bool with_tools) {
  if (choice.given.has_value()) return *choice.given;
  const std::string names = absl::StrJoin(BuiltInChatTemplates(), ", ");
  if (!choice.built_in.empty()) {
    for (const BuiltIn& entry : kBuiltIns) {
      if (choice.built_in == entry.name) {
        return ChatTemplateSource{absl::StrCat("the built-in chat template ", entry.name), entry.text,
                                  entry.message_end};
      }
    }
    return absl::InvalidArgumentError(
        absl::StrCat("'", CutText(choice.built_in), "' is no built-in chat template, expected one of: ", names));
  }
  const char* key = with_tools && metadata.Has(kToolTemplateKey) ? kToolTemplateKey : kTemplateKey;
  if (!metadata.Has(key)) {
    return absl::NotFoundError(absl::StrCat("'", metadata.path(), "' has no chat template in it (key '", key,
                                            "'); give one in a file, or take a built-in one: ", names));
  }
  ASSIGN_OR_RETURN(std::string text, metadata.GetString(key));
  return ChatTemplateSource{absl::StrCat("the chat template of '", metadata.path(), "' (key '", key, "')"),
                            std::move(text)};
}

absl::Status CheckMessages(const Json& messages) {
  if (!messages.is_array()) {
    return Misplaced("messages", R"(a list such as [{"role": "user", "content": "Hello"}])", messages);
  }
  if (messages.empty()) return absl::InvalidArgumentError("messages: the list is empty, expected one or more");
  for (size_t i = 0; i < messages.size(); ++i) {
    RETURN_IF_ERROR(CheckMessage(absl::StrCat("messages[", i, "]"), messages[i]));
  }
  return absl::OkStatus();
}

absl::Status CheckTools(const Json& tools) {
  if (!tools.is_array()) {
    return Misplaced("tools", R"(a list such as [{"type": "function", "function": {"name": "f"}}])", tools);
  }
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!tools[i].is_object()) return Misplaced(absl::StrCat("tools[", i, "]"), "an object", tools[i]);
  }
  return absl::OkStatus();
}

absl::Status CheckTemplateVariables(const Json& variables) {
  if (!variables.is_object())
    return Misplaced("variables", R"(an object such as {"enable_thinking": false})", variables);
  for (const absl::string_view name : kOwnVariables) {
    if (variables.contains(std::string(name))) {
      return absl::InvalidArgumentError(
          absl::StrCat("variables: '", name, "' is made from the conversation and the model, expected another name"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(ChatTemplateSource source, const Tokenizer& tokenizer) {
  absl::StatusOr<JinjaTemplate> program = JinjaTemplate::Parse(source.text);
  if (!program.ok()) {
    return WithContext(absl::StrCat(source.name, " cannot be used: "), program.status(),
                       absl::StrCat("; mend it, give another in a file, or take a built-in one: ",
                                    absl::StrJoin(BuiltInChatTemplates(), ", ")));
  }
  ChatTemplate made;
  made.name_ = std::move(source.name);
  made.program_ = std::make_shared<const JinjaTemplate>(*std::move(program));
  made.bos_ = TokenText(tokenizer, tokenizer.bos());
  made.eos_ = TokenText(tokenizer, tokenizer.eos());
  return made;
}

absl::StatusOr<MarkedText> ChatTemplate::Render(const Conversation& conversation, absl::Time now) const {
  std::vector<absl::string_view> of_template = {"bos_token", "eos_token"};
  const bool usual_roles =
      std::all_of(conversation.messages->begin(), conversation.messages->end(),
                  [](const Json& message) { return IsUsualRole(message["role"].get<std::string>()); });
  if (usual_roles) of_template.emplace_back("messages.role");
  Json variables = VariablesOf(conversation, bos_, eos_);
  // Where the content ends is found by a mark, not by the content: that may stand elsewhere too, and templates trim it.
  std::string mark;
  if (conversation.continue_final_message) {
    ASSIGN_OR_RETURN(std::string* const said, TextToContinue(&variables["messages"]));
    mark = AbsentText(*conversation.messages);
    *said += mark;
  }
  absl::StatusOr<MarkedText> text = program_->Render(variables, of_template, now);
  if (text.ok() && !mark.empty()) {
    const size_t end = text->text().rfind(mark);
    if (end != std::string::npos) return text->Substr(0, end);
    return absl::InvalidArgumentError(
        absl::StrCat(name_, " does not write the end of the last message, so that it cannot be continued"));
  }
  if (text.ok()) return text;
  const char* verb = JinjaRaised(text.status()) ? " refuses this conversation: " : " cannot write this conversation: ";
  return WithContext(absl::StrCat(name_, verb), text.status());
}

}  // namespace stagecoach
