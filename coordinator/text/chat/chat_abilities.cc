#include "coordinator/text/chat/chat_abilities.h"

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/json/json_value.h"
#include "coordinator/text/chat/message_shape.h"

namespace stagecoach {
namespace {

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
    const Rendered developer = Render({kDeveloper, kUser});
    Rendered nobody = Render({kNobody, kUser});
    if (nobody.has_value()) nobody = absl::StrReplaceAll(*nobody, {{"probe-role", "developer"}});
    Learn(&abilities_.developer, Has(developer, "probe-system") && developer != nobody);
  }

  void ProbeTools() { Learn(&abilities_.tools, Has(Render({kUser}, /*with_tools=*/true), "probe_tool")); }

  void ProbeCalls() {
    const Rendered object = RenderCall(Calling(R"("")", kObjectCall)), text = RenderCall(Calling(R"("")", kTextCall));
    // An object that is printed as it is comes out as no model writes it.
    const bool takes_object = Has(object, "probe-value") && !absl::StrContains(*object, "'probe_key'");
    const ArgumentsForm form = takes_object               ? ArgumentsForm::kObject
                               : Has(text, "probe-value") ? ArgumentsForm::kText
                                                          : ArgumentsForm::kAny;
    Learn(&abilities_.arguments, form);
    call_ = takes_object ? kObjectCall : kTextCall;
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
  const Json tools_ = ReadJson(kTools);
  ChatAbilities abilities_;
  std::string call_;  // in the form that is taken
  bool exhausted_ = false;
};

}  // namespace

ChatAbilities ProbeAbilities(const ChatTemplate& chat_template) { return Probe(chat_template).Run(); }

}  // namespace stagecoach
