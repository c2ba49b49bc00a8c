// OpenAI's chat completions: answers to conversations.

#include <cstdint>
#include <utility>

#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "common/step/sampling.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/api/conversation.h"
#include "coordinator/serve/api/token_text.h"
#include "coordinator/text/chat/chat_format.h"
#include "coordinator/text/output/output_parser.h"

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

// max_completion_tokens, else max_tokens.
absl::Status ReadMaxTokens(FieldReader* fields, std::optional<int64_t>* out) {
  for (const char* field : {"max_tokens", "max_completion_tokens"}) {
    const Json* value = fields->Find(field);
    if (value == nullptr) continue;
    int64_t tokens = 0;
    RETURN_IF_ERROR(ReadNumber(field, *value, kMaxNewTokensRange, &tokens));
    *out = tokens;
  }
  return absl::OkStatus();
}

absl::Status ReadChat(FieldReader* fields, const ServedModel& model, const CallContext& context, CallPlan* plan) {
  RETURN_IF_ERROR(ReadChatLogprobs(fields, &plan->fields.sampling.logprobs));
  std::optional<int64_t> asked = model.chat_tokens;
  RETURN_IF_ERROR(ReadMaxTokens(fields, &asked));
  RETURN_IF_ERROR(CheckMinTokens(plan->fields, asked));
  const PromptRoom room(asked, context.context_tokens);
  ASSIGN_OR_RETURN(RenderedConversation conversation, ReadConversation(fields, model, context.now, room));
  CallPrompt prompt;
  prompt.tokens = std::move(conversation.tokens);
  prompt.conversation_tokens = conversation.conversation_tokens;
  ASSIGN_OR_RETURN(prompt.max_new_tokens, room.ForAnswer(static_cast<int64_t>(prompt.tokens.size())));
  plan->prompts.push_back(std::move(prompt));
  if (model.reasoning.parse) {
    plan->output_format = model.output_format;
  } else if (fields->Find("skip_special_tokens") == nullptr) {
    plan->fields.render_control = true;  // the markup that stays in the text is made of them
  }
  plan->prompt_end = OutputStart::After(conversation.text).prompt_end;
  plan->answer_ends = model.chat->answer_ends();
  plan->ignored.insert(plan->ignored.end(), conversation.ignored.begin(), conversation.ignored.end());
  return absl::OkStatus();
}

// What clients that want a number are given for a probability of 0.
constexpr double kLeastLogprob = -9999.0;

Json LogprobJson(float logprob) {
  Json json = FloatJson(logprob);
  return json.is_null() ? Json(kLeastLogprob) : json;
}

// The bytes are exact where the text cannot be.
Json TokenJson(const Tokenizer& tokenizer, TokenId token, float logprob) {
  const std::string text = tokenizer.TokenBytes(token, /*render_control=*/true);
  return {{"token", text}, {"logprob", LogprobJson(logprob)}, {"bytes", BytesJson(text)}};
}

void ListChatTokens(const CallPlan& plan, const std::vector<ListedToken>& tokens, Json* logprobs) {
  if (logprobs->is_null()) *logprobs = {{"content", Json::array()}, {"refusal", nullptr}};
  const Tokenizer& tokenizer = *plan.model->tokenizer;
  for (const ListedToken& token : tokens) {
    Json json = TokenJson(tokenizer, token.token, token.logprob.value_or(0));
    Json top = Json::array();
    for (const TokenLogprob& entry : token.top) top.push_back(TokenJson(tokenizer, entry.token, entry.logprob));
    json["top_logprobs"] = std::move(top);
    (*logprobs)["content"].push_back(std::move(json));
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

Json ChatPart(const CallPlan& plan, size_t choice, const OutputDelta* delta, Json logprobs, Json finish_reason) {
  Json json = {{"content", ""}};  // a string in every delta, as clients want it
  if (delta != nullptr && delta->kind == OutputKind::kReasoning) {
    SetReasoning(plan.model->reasoning, delta->text, &json);
  } else if (delta != nullptr) {
    json["content"] = delta->text;
  }
  return DeltaJson(choice, std::move(json), std::move(logprobs), std::move(finish_reason));
}

Json WholeChat(const CallPlan& plan, size_t choice, const std::string& content, const std::string& reasoning,
               Json logprobs, const std::string& finish_reason) {
  Json message = {{"role", "assistant"}, {"content", content}, {"refusal", nullptr}};
  if (!reasoning.empty()) SetReasoning(plan.model->reasoning, reasoning, &message);
  return {{"index", choice},
          {"finish_reason", finish_reason},
          {"logprobs", std::move(logprobs)},
          {"message", std::move(message)}};
}

}  // namespace

const ApiDialect kChatApi = {.name = "chat",
                             .path = "/v1/chat/completions",
                             .id_prefix = "chatcmpl-",
                             .list_end = false,
                             .read = ReadChat,
                             .stream_object = "chat.completion.chunk",
                             .body_object = "chat.completion",
                             .first = FirstChatPart,
                             .part = ChatPart,
                             .whole = WholeChat,
                             .list = ListChatTokens};

}  // namespace stagecoach
