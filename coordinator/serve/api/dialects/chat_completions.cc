// OpenAI's chat completions: answers to conversations.

#include <cstdint>
#include <utility>

#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "common/step/sampling.h"
#include "coordinator/serve/api/conversation/chat_messages.h"
#include "coordinator/serve/api/conversation/conversation.h"
#include "coordinator/serve/api/dialects/choice_writer.h"
#include "coordinator/serve/api/token_text.h"

namespace stagecoach {
namespace {

// logprobs and top_logprobs.
absl::Status ReadChatLogprobs(FieldReader* fields, int32_t* out) {
  bool wanted = false;
  RETURN_IF_ERROR(fields->Bool("logprobs", &wanted));
  int32_t top = 0;
  RETURN_IF_ERROR(fields->Number("top_logprobs", kTopLogprobsRange, &top));
  if (top > 0 && !wanted) return WrongField("top_logprobs", "is there without 'logprobs': true, expected both");
  *out = wanted ? top : -1;
  return absl::OkStatus();
}

absl::Status ReadChat(FieldReader* fields, const ServedModel& model, const CallContext& context, CallPlan* plan) {
  RETURN_IF_ERROR(ReadChatLogprobs(fields, &plan->fields.sampling.logprobs));
  std::optional<int64_t> asked = model.chat_tokens;
  RETURN_IF_ERROR(ReadMaxTokens(fields, {"max_tokens", "max_completion_tokens"}, &asked));
  ASSIGN_OR_RETURN(ChatRequest request, ReadChatRequest(fields));
  return PlanConversation(std::move(request), asked, fields, model, context, plan);
}

void ListChatTokens(const CallPlan& plan, const std::vector<ListedToken>& tokens, Json* logprobs) {
  if (logprobs->is_null()) *logprobs = {{"content", Json::array()}, {"refusal", nullptr}};
  for (const ListedToken& token : tokens) {
    (*logprobs)["content"].push_back(TokenJson(*plan.model->tokenizer, token));
  }
}

void SetReasoning(const ReasoningOptions& options, const std::string& text, Json* message) {
  if (options.as_reasoning_content) (*message)["reasoning_content"] = text;
  if (options.as_reasoning) (*message)["reasoning"] = text;
}

Json DeltaJson(size_t choice, Json delta, Json logprobs, Json finish_reason) {
  return {{"index", choice},
          {"delta", std::move(delta)},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(finish_reason)}};
}

Json FirstChatPart(size_t choice) {
  return DeltaJson(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
}

// {"function": {"name", "arguments"}}, under the client's names. Only the first part of a call has a name.
void SetCall(const ChoiceCall& call, Json* json) {
  const bool custom = call.tool != nullptr && call.tool->kind == OfferedTool::Kind::kCustom;
  Json called = Json::object();
  if (!call.name.empty()) called["name"] = call.tool == nullptr ? call.name : call.tool->own_name;
  if (!call.name.empty() && call.tool != nullptr && !call.tool->name_space.empty()) {
    called["namespace"] = call.tool->name_space;
  }
  called[custom ? "input" : "arguments"] = call.arguments;
  const char* type = custom ? "custom" : "function";
  if (!call.id.empty()) {
    (*json)["id"] = call.id;
    (*json)["type"] = type;
  }
  (*json)[type] = std::move(called);
}

Json ChatPart(const CallPlan& plan, size_t choice, const OutputDelta* delta, const ChoiceCall& call, Json logprobs,
              Json finish_reason) {
  const OutputKind kind = delta == nullptr ? OutputKind::kContent : delta->kind;
  // A string in every delta, as clients want it.
  Json json = {{"content", delta != nullptr && kind == OutputKind::kContent ? delta->text : ""}};
  if (kind == OutputKind::kReasoning) {
    SetReasoning(plan.model->reasoning, delta->text, &json);
  } else if (kind != OutputKind::kContent) {
    Json part = {{"index", call.index}};
    SetCall(call, &part);
    json["tool_calls"] = Json::array({std::move(part)});
  }
  return DeltaJson(choice, std::move(json), std::move(logprobs), std::move(finish_reason));
}

Json WholeChat(const CallPlan& plan, size_t choice, WholeChoice said) {
  Json message = {{"role", "assistant"}, {"content", said.content}, {"refusal", nullptr}};
  if (!said.reasoning.empty()) SetReasoning(plan.model->reasoning, said.reasoning, &message);
  if (!said.calls.empty()) {
    if (said.content.empty()) message["content"] = nullptr;
    Json calls = Json::array();
    for (const ChoiceCall& call : said.calls) SetCall(call, &calls.emplace_back(Json::object()));
    message["tool_calls"] = std::move(calls);
  }
  return {{"index", choice},
          {"finish_reason", said.finish_reason},
          {"logprobs", std::move(said.logprobs)},
          {"message", std::move(message)}};
}

constexpr ChoiceForm kChatForm = {.stream_object = "chat.completion.chunk",
                                  .body_object = "chat.completion",
                                  .first = FirstChatPart,
                                  .part = ChatPart,
                                  .whole = WholeChat,
                                  .list = ListChatTokens};

std::unique_ptr<AnswerWriter> MakeChatWriter(const CallPlan& plan) { return MakeChoiceWriter(kChatForm, plan); }

}  // namespace

const ApiDialect kChatApi = {.name = "chat",
                             .path = "/v1/chat/completions",
                             .id_prefix = "chatcmpl-",
                             .call_prefix = "call_",
                             .list_end = false,
                             .groups = {.refused = kRefusedChoiceFields},
                             .read = ReadChat,
                             .make_writer = MakeChatWriter,
                             .error_body = ErrorBody,
                             .ping = kPingComment};

}  // namespace stagecoach
